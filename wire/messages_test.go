package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// schema is messages.json.
type schema struct {
	About, Types string
	Protocols    []struct {
		Name         string
		Version      int
		Doc          string
		UnknownNames string `json:"unknown_names"`
		Messages     []described
	}
	Sample  object
	Objects map[string]object
}

type object struct {
	Doc    string
	Fields []fieldOf
}

type described struct {
	object

	Type, From string
	See        string // where its fields are described, if not in the table of messages
	Since      int
	Python     *bool // false: the Python client does not use it
	Example    json.RawMessage
}

type fieldOf struct {
	Name, Type, Unit, Doc string
	Required              bool
	Values                []string
	Since                 int
}

func readSchema(t *testing.T) schema {
	t.Helper()
	b, err := os.ReadFile("messages.json")
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var s schema
	require.NoError(t, d.Decode(&s))
	return s
}

// comparison holds Go types to the schema.
type comparison struct {
	*testing.T

	schema schema
	met    map[string]reflect.Type // objects with the Go types that they were compared with
}

// fields compares the JSON names of a struct with those of an object.
func (c *comparison) fields(where string, t reflect.Type, want []fieldOf) {
	var have []fieldOf
	c.collect(where, t, &have)
	if strings.Contains(where, " ") { // a message has its type beside its fields
		have = slices.DeleteFunc(have, func(f fieldOf) bool { return f.Name == "type" })
	}
	require.Len(c, have, len(want), "%s: Go has %v", where, have)
	for i, f := range want {
		assert.Equal(c, fieldOf{Name: f.Name, Type: f.Type, Required: f.Required}, have[i], "%s: field %d", where, i)
		assert.NotEmpty(c, f.Doc, "%s.%s", where, f.Name)
		assert.Empty(c, strings.Trim(f.Unit, "abcdefghijklmnopqrstuvwxyzH/1"), "%s.%s", where, f.Name)
	}
}

// collect appends the fields of a struct. Those of one that is embedded come first, but for
// those that the outer one hides.
func (c *comparison) collect(where string, t reflect.Type, to *[]fieldOf) {
	add := func(f reflect.StructField) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			return
		}
		at := slices.IndexFunc(*to, func(f fieldOf) bool { return f.Name == name })
		field := fieldOf{Name: name, Type: c.typeOf(where+"."+name, f.Type, options == ""), Required: options == ""}
		if at < 0 {
			*to = append(*to, field)
			return
		}
		(*to)[at] = field
	}
	for f := range t.Fields() {
		if f.Anonymous {
			c.collect(where, f.Type.Elem(), to)
			continue
		}
		add(f)
	}
}

// typeOf names a Go type as the schema does. A pointer to a scalar may be null where there has
// to be something.
func (c *comparison) typeOf(where string, t reflect.Type, required bool) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int64:
		return "int"
	case reflect.Uint32, reflect.Uint64:
		return "uint"
	case reflect.Float64:
		return "float"
	case reflect.Interface:
		return "json"
	case reflect.Slice:
		return "[" + c.typeOf(where, t.Elem(), true) + "]"
	case reflect.Map:
		return "{" + c.typeOf(where, t.Elem(), true) + "}"
	case reflect.Pointer:
		if t.Elem().Kind() != reflect.Struct && required {
			return c.typeOf(where, t.Elem(), true) + " or null"
		}
		return c.typeOf(where, t.Elem(), required)
	case reflect.Struct:
		for name, known := range c.met {
			if known == t {
				return name
			}
		}
		return c.object(where, t)
	}
	require.Fail(c, "no type of the schema", "%s is a %s", where, t)
	return ""
}

// object finds the object of a struct that was not met before: the one that the schema names
// at that place.
func (c *comparison) object(where string, t reflect.Type) string {
	at := strings.LastIndexByte(where, '.')
	message, name := where[:at], where[at+1:]
	fields := c.schema.Objects[message].Fields
	for _, p := range c.schema.Protocols {
		for _, m := range p.Messages {
			if p.Name+" "+m.Type == message {
				fields = m.Fields
			}
		}
	}
	at = slices.IndexFunc(fields, func(f fieldOf) bool { return f.Name == name })
	require.GreaterOrEqual(c, at, 0, "%s is not in messages.json", where)
	object := strings.Trim(fields[at].Type, "[]{}")
	require.Contains(c, c.schema.Objects, object, where)
	require.NotContains(c, c.met, object, "%s: two Go types are the object %s", where, object)
	c.met[object] = t
	c.fields(object, t, c.schema.Objects[object].Fields)
	return object
}

func TestTheSchemaHasEveryMessageAndFieldThatGoHasAndNoOther(t *testing.T) {
	t.Parallel()
	c := comparison{T: t, schema: readSchema(t), met: map[string]reflect.Type{"media": nil}}
	require.Len(t, c.schema.Protocols, 2)
	for _, p := range c.schema.Protocols {
		rows := wire.Rows(p.Name)
		require.Len(t, p.Messages, len(rows), p.Name)
		for i, m := range p.Messages {
			require.Equal(t, rows[i].Name+" from "+rows[i].From, m.Type+" from "+m.From, "order of %s", p.Name)
			assert.NotEmpty(t, m.Doc, m.Type)
			assert.LessOrEqual(t, m.Since, p.Version, m.Type)
			c.fields(p.Name+" "+m.Type, rows[i].Form, m.Fields)
		}
	}
	for name := range c.schema.Objects {
		assert.Contains(t, c.met, name, "no message has such an object")
	}
}

func TestTheSchemaHasTheWordsThatGoHas(t *testing.T) {
	t.Parallel()
	s := readSchema(t)
	outcomes := []rewards.Outcome{rewards.Scored, rewards.Failed, rewards.Rejected, rewards.OutcomeExpired, rewards.OutcomeCancelled, rewards.OutcomeWorkerLost}
	blames := []rewards.Blame{rewards.BlameSample, rewards.BlameReward, rewards.BlameDependency, rewards.BlameWorker, rewards.BlameNobody}
	words := map[string]any{
		"split": []rewards.Split{rewards.Train, rewards.Val}, "outcome": outcomes, "outcomes": outcomes, "blame": blames,
		"state":       []string{wire.StepOpen, wire.StepComplete, wire.StepShort, wire.StepFailed},
		"on_deadline": []string{wire.DeadlineMask, wire.DeadlineFail, wire.DeadlineShortfall},
		"order":       []string{wire.ByCompletion, wire.ByIndex},
		"reason":      []string{wire.RefusedToken, wire.RefusedExpired, wire.RefusedGone, wire.RefusedMalformed, wire.RefusedBusy, wire.RefusedFailed, wire.RefusedProtocol},
		"encoding": []rewards.Encoding{
			rewards.Raw, rewards.JPEG, rewards.PNG, rewards.WebP, rewards.Frames, rewards.MP4, rewards.WebM, rewards.GIF, rewards.WAV, rewards.FLAC,
		},
	}
	check := func(where string, fields []fieldOf) {
		for _, f := range fields {
			if want := words[f.Name]; want != nil && f.Values != nil {
				assert.Equal(t, fmt.Sprint(want), fmt.Sprint(f.Values), "%s.%s", where, f.Name)
			}
		}
	}
	check("sample", s.Sample.Fields)
	for _, p := range s.Protocols {
		for _, m := range p.Messages {
			check(m.Type, m.Fields)
		}
	}
	for name, o := range s.Objects {
		check(name, o.Fields)
	}
}

func TestEveryExampleOfTheSchemaIsReadAndWrittenAgain(t *testing.T) {
	t.Parallel()
	for _, p := range readSchema(t).Protocols {
		decode, encode := wire.DecodeControl, wire.EncodeControl
		if p.Name == wire.ClaimProtocol {
			decode, encode = wire.DecodeClaim, wire.EncodeClaim
		}
		for _, m := range p.Messages {
			v, err := decode(m.Example)
			require.NoError(t, err, "%s: %s", p.Name, m.Type)
			b, err := encode(v)
			require.NoError(t, err)
			assert.JSONEq(t, string(m.Example), string(b))
			later := bytes.Replace(m.Example, []byte(`{"type"`), []byte(`{"later":1,"type"`), 1)
			_, err = decode(later)
			assert.Equal(t, p.UnknownNames == "refused", err != nil, "%s: %s: names that are not known are %s", p.Name, m.Type, p.UnknownNames)
		}
	}
}

func TestASampleHasTheFieldsOfTheSchemaAndNoOther(t *testing.T) {
	t.Parallel()
	s := readSchema(t)
	full := rewards.Sample{
		ID: "a", Run: "r", Step: 7, Split: rewards.Val, Index: new(int64(0)), UID: "u", GroupSize: 2, Reward: "p", DataSource: "d",
		Prompt: "p", Response: "x", GroundTruth: json.RawMessage(`1`), ExtraInfo: json.RawMessage(`{}`), Traceparent: traceparent,
		Media: []*rewards.Media{
			{Kind: rewards.Video, Encoding: rewards.Frames, Frames: [][]byte{{1}}, FPS: 8},
			{Kind: rewards.Audio, Encoding: rewards.Raw, Layout: "T", DType: "I16", Shape: []int{1}, Data: []byte{1, 2}, SampleRate: 8000},
		},
	}
	for f, v := range reflect.ValueOf(full).Fields() {
		require.False(t, v.IsZero(), "this test leaves %s out", f.Name)
	}
	m, err := wire.Encode(&full, wire.Options{Deadline: time.Second})
	require.NoError(t, err)
	_, err = wire.ReadHeader(bytes.NewReader(m.Bytes()), wire.Limits{})
	require.NoError(t, err)
	var head map[string]struct{ Sample string }
	require.NoError(t, json.Unmarshal(m.Head[8:], &head))
	text := head["__metadata__"].Sample
	require.Equal(t, names(s.Sample.Fields), namesIn(t, text), "in the canonical order")
	var media struct{ Media []json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(text), &media))
	var known []string
	for _, f := range names(s.Objects["media"].Fields) {
		if slices.ContainsFunc(media.Media, func(b json.RawMessage) bool { return slices.Contains(namesIn(t, string(b)), f) }) {
			known = append(known, f)
		}
	}
	require.Equal(t, names(s.Objects["media"].Fields), known)
	for _, b := range media.Media {
		require.Subset(t, known, namesIn(t, string(b)))
	}
}

func names(fields []fieldOf) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.Name
	}
	return out
}

// namesIn returns the names of an object in their order.
func namesIn(t *testing.T, text string) (out []string) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	_, err := d.Token()
	require.NoError(t, err)
	for d.More() {
		name, err := d.Token()
		require.NoError(t, err)
		out = append(out, name.(string))
		var value json.RawMessage
		require.NoError(t, d.Decode(&value))
	}
	return out
}

// generated is a table of a document that messages.json makes: of the messages that a side
// says, or of the fields of a message, of the sample or of an object.
var generated = regexp.MustCompile(`(?s)(<!-- messages\.json: (\w+) -->\n\n).*?(\n<!-- end -->)`)

func TestTheTablesOfMessagesInTheDocumentsAreThoseOfTheSchema(t *testing.T) {
	t.Parallel()
	s := readSchema(t)
	for _, p := range s.Protocols {
		path := filepath.Join("..", p.Doc)
		doc, err := os.ReadFile(path)
		require.NoError(t, err)
		var shown []string
		want := generated.ReplaceAllStringFunc(string(doc), func(block string) string {
			parts := generated.FindStringSubmatch(block)
			shown = append(shown, parts[2])
			return parts[1] + s.table(t, p.Messages, parts[2]) + parts[3]
		})
		for _, m := range p.Messages {
			assert.Contains(t, shown, m.From, "%s has no table of the messages that a %s says", p.Doc, m.From)
			if m.See != "" {
				assert.Contains(t, shown, m.Type, "%s has no table of the fields of %s", p.Doc, m.Type)
			}
		}
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(want), 0o644)) //nolint:gosec // a document
			continue
		}
		assert.Equal(t, want, string(doc), "go test ./wire -run %s -update writes it anew", t.Name())
	}
}

// table makes the table that a document asks for.
func (s schema) table(t *testing.T, messages []described, what string) string {
	t.Helper()
	var b strings.Builder
	if slices.ContainsFunc(messages, func(m described) bool { return m.From == what }) {
		b.WriteString("| type | fields | meaning |\n|---|---|---|\n")
		for _, m := range messages {
			if m.From == what {
				fields := "see " + m.See
				if m.See == "" {
					fields = s.list(m.Fields)
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.Type, fields, m.Doc)
			}
		}
		return b.String()
	}
	fields := s.Objects[what].Fields
	if what == "sample" {
		fields = s.Sample.Fields
	}
	if i := slices.IndexFunc(messages, func(m described) bool { return m.Type == what }); i >= 0 {
		fields = messages[i].Fields
	}
	require.NotEmpty(t, fields, "messages.json has no %q", what)
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	for _, f := range fields {
		kind := f.Type
		if f.Values != nil {
			kind = strings.Replace(kind, "string", "one of `"+strings.Join(f.Values, "`, `")+"`", 1)
		}
		if f.Unit != "" && f.Unit != "samples" && f.Unit != "groups" {
			kind += ", " + f.Unit
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.shown(), kind, f.Doc)
	}
	return b.String()
}

// list names fields in one line, with those of small objects.
func (s schema) list(fields []fieldOf) string {
	if len(fields) == 0 {
		return "–"
	}
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = "`" + s.inside(f) + "`"
	}
	return strings.Join(out, ", ")
}

// inside is a field with those of its object, if these are few.
func (s schema) inside(f fieldOf) string {
	name := strings.Trim(f.shown(), "`")
	inner := strings.Trim(f.Type, "[]")
	if o := s.Objects[inner].Fields; len(o) > 0 && len(o) <= 5 {
		var of []string
		for _, f := range o {
			of = append(of, s.inside(f))
		}
		return name + strings.Replace(f.Type, inner, "{"+strings.Join(of, ", ")+"}", 1)
	}
	if strings.HasPrefix(f.Type, "[") {
		name += "[]"
	}
	return name
}

// shown is a field's name, with a question mark where it may be left out.
func (f fieldOf) shown() string {
	if f.Required {
		return "`" + f.Name + "`"
	}
	return "`" + f.Name + "?`"
}
