package config

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/dispatch"
)

// TestEveryFieldOfASectionHasAKeyThatReadsItAndShowsIt changes one field after the other:
// exactly one setting shows the change, says in a sentence what it is, and reads what it
// shows into the same field of another Config.
func TestEveryFieldOfASectionHasAKeyThatReadsItAndShowsIt(t *testing.T) {
	t.Parallel()
	fields := 0
	for _, name := range []string{"Loop", "Pool", "Outbound", "Server", "Fabric"} {
		at := []int{reflectField(t, reflect.TypeFor[Config](), name)}
		for _, path := range leaves(reflect.TypeFor[Config]().Field(at[0]).Type, at) {
			fields++
			c := Default()
			before := shown(c.sections(), "")
			alter(t, reflect.ValueOf(c).Elem().FieldByIndex(path))
			var key, text string
			for k, now := range shown(c.sections(), "") {
				if now.show() != before[k].text {
					assert.Empty(t, key, "%s and %s are the same field", key, k)
					key, text = k, now.show()
					assert.Regexp(t, `^.{8,}\.$`, now.doc, "%s has no sentence", k)
				}
			}
			require.NotEmpty(t, key, "no setting shows %s", fieldName(path))
			again := readBack(t, key, text)
			assert.Equal(t, c, again, "%s reads %q into something else", key, text)
		}
	}
	assert.Equal(t, len(shown(Default().sections(), "")), fields, "a key for each field")
}

// line is a setting and what it showed when it was asked first.
type line struct {
	setting

	text string
}

// shown are the settings of a table by their whole keys.
func shown(sections []section, below string) map[string]line {
	out := map[string]line{}
	for _, s := range sections {
		for _, set := range s.settings {
			out[below+s.name+"."+set.key] = line{set, set.show()}
		}
		maps.Copy(out, shown(s.sections, below+s.name+"."))
	}
	return out
}

// readBack reads one key, as it was shown, into a Config of defaults.
func readBack(t *testing.T, key, text string) *Config {
	t.Helper()
	parts := strings.Split(key, ".")
	var file strings.Builder
	for i, p := range parts {
		fmt.Fprintf(&file, "%s%s:", strings.Repeat(" ", i), p)
		if i < len(parts)-1 {
			file.WriteByte('\n')
		}
	}
	r := newReader("c.yaml")
	root := r.parse([]byte(file.String() + " " + text))
	c := Default()
	o := r.mapping(value{node: root})
	r.decodeSections(o, c.sections())
	require.NoError(t, r.faults.sorted(), "%s: %s", key, text)
	return c
}

func reflectField(t *testing.T, in reflect.Type, name string) int {
	t.Helper()
	f, ok := in.FieldByName(name)
	require.True(t, ok, name)
	return f.Index[0]
}

// leaves are the paths of the fields below a struct that are no structs.
func leaves(of reflect.Type, at []int) [][]int {
	var out [][]int
	for f := range of.Fields() {
		path := append(append([]int{}, at...), f.Index...)
		if f.Type.Kind() == reflect.Struct {
			out = append(out, leaves(f.Type, path)...)
		} else {
			out = append(out, path)
		}
	}
	return out
}

func fieldName(path []int) string {
	of, names := reflect.TypeFor[Config](), []string{}
	for _, i := range path {
		names = append(names, of.Field(i).Name)
		of = of.Field(i).Type
	}
	return strings.Join(names, ".")
}

// alter gives a setting another value that it may have.
func alter(t *testing.T, v reflect.Value) {
	t.Helper()
	switch p := v.Addr().Interface().(type) {
	case *int:
		*p++
	case *int64:
		*p += 1 << 20
	case *float64:
		*p += 0.25
	case *bool:
		*p = !*p
	case *time.Duration:
		*p += 1500 * time.Millisecond
	case *[]string:
		*p = []string{"a b", "c"}
	case *map[string]float64:
		*p = map[string]float64{"a": 2}
	case *string:
		for _, words := range [][]string{
			{DeadlineMask, DeadlineFail}, {dispatch.Random, dispatch.SpeedWeighted}, {IsolationProcess, IsolationInline}, {FsyncNone, FsyncGroup},
		} {
			if *p == words[0] {
				*p = words[1]
				return
			}
		}
		*p += "/x: y"
	default:
		t.Fatalf("a setting of type %T: say here how it is changed", p)
	}
}
