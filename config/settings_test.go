package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config/keys"
)

// TestEveryKeyOfASectionIsReadAndShown changes the field of one key after the other: that key
// alone shows the change, says in a sentence what it is, and reads what it shows into the same
// field of another Config.
func TestEveryKeyOfASectionIsReadAndShown(t *testing.T) {
	t.Parallel()
	all := listed(Default())
	require.Greater(t, len(all), 70)
	for name := range all {
		c := Default()
		changed := listed(c)
		alter(t, changed[name])
		text := show(changed[name].Value())
		for other, k := range listed(c) {
			if other != name {
				assert.Equal(t, show(all[other].Value()), show(k.Value()), "%s and %s are the same field", name, other)
			}
		}
		assert.NotEqual(t, show(all[name].Value()), text, name)
		assert.Regexp(t, `^.{8,}\.$`, changed[name].Doc, "%s has no sentence", name)
		again := listed(readBack(t, name, text))
		assert.Equal(t, changed[name].Value(), again[name].Value(), "%s reads %q into something else", name, text)
	}
}

// TestEveryFieldOfASectionHasAKey holds the fields that the sections have of their own.
func TestEveryFieldOfASectionHasAKey(t *testing.T) {
	t.Parallel()
	c, has := Default(), map[any]bool{}
	for _, k := range listed(c) {
		has[k.Field] = true
	}
	for _, in := range []any{&c.Loop, &c.Pool, &c.Queue} {
		of := reflect.ValueOf(in).Elem()
		for f, v := range of.Fields() {
			if f.Type.Kind() != reflect.Struct {
				assert.True(t, has[v.Addr().Interface()], "no key sets %s.%s", of.Type(), f.Name)
			}
		}
	}
}

// listed are the keys of a Config by their whole names.
func listed(c *Config) map[string]*keys.Key {
	out := map[string]*keys.Key{}
	for _, top := range c.sections() {
		for path, s := range top.All {
			for _, k := range s.Keys {
				out[top.Name+"."+path+k.Name] = k
			}
		}
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

// alter gives the field of a key another value that it may have.
func alter(t *testing.T, k *keys.Key) {
	t.Helper()
	switch p := k.Field.(type) {
	case *int:
		*p++
	case *int64:
		*p += 1 << 20
	case *float64:
		*p += 0.25
		if high, ok := k.High.(float64); ok && *p > high {
			*p -= 0.5
		}
	case *bool:
		*p = !*p
	case *time.Duration:
		*p += 1500 * time.Millisecond
	case *[]string:
		*p = []string{"a b", "c"}
	case *map[string]float64:
		*p = map[string]float64{"a": 2}
	case *string:
		if k.Words != nil {
			*p = k.Words[1]
		} else {
			*p += "/x: y"
		}
	default:
		t.Fatalf("a setting of type %T: say here how it is changed", p)
	}
}
