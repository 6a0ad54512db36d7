package rewards

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Spec describes a scorer that can be named in the configuration.
type Spec struct {
	// Name is what follows builtin:// in the configuration.
	Name string
	// Summary is one line; `rewardloop scorers` prints it.
	Summary string
	// Concurrency says how many calls are executed at a time, and what decides it, for
	// people; "": it computes in Go, a call for each CPU.
	Concurrency string
	// AsksEngine says that the options engine and model name an engine of the
	// configuration and its model. Where they are left out they are reward_model's.
	AsksEngine bool
	// Options lists what the scorer's options may hold, for people.
	Options []Option
	// Build makes the scorer. Raw is a JSON object with the options, or nil;
	// unknown options are an error (use DecodeOptions).
	Build func(raw json.RawMessage) (Scorer, error)
	// BuildGroup makes a scorer of whole prompt groups, in the same way. A scorer has
	// one of the two, or both where its options say which it is.
	BuildGroup func(raw json.RawMessage) (GroupScorer, error)
	// Inspect finds out, without building the scorer, what the user's function takes that
	// the options name; nil: the options name none. Groups says that another component works
	// on finished groups with it. It takes some 10 s at most. An error of class Timeout says
	// that this was not long enough, any other one why nobody can call the function.
	Inspect func(ctx context.Context, raw json.RawMessage, groups bool) (Signature, error)
}

// Signature is what a function of a user's may be called with.
type Signature struct {
	// Names are its parameters. Any says that it takes other names as well (**kwargs).
	Names []string
	Any   bool
	// At is the file and line where it is defined; empty: not known.
	At string
	// Faults say why no sample can satisfy it.
	Faults []string
}

// Option documents one option of a scorer.
type Option struct {
	// Name is the key in the configuration; Type and Default are written for people, such as
	// "int" and "10"; Doc says in one line what it does.
	Name, Type, Default, Doc string
}

// Registry is a set of named scorers. The zero value is empty and ready; filling
// it is not safe for concurrent use, reading is.
type Registry struct {
	specs map[string]Spec
	// Verifier makes what looks at a sample before it is scored, of a kind and with
	// options such as a scorer's; nil: there is none.
	Verifier func(kind string, raw json.RawMessage) (Verifier, error)
}

// Verifier looks at a sample before it is scored.
type Verifier interface {
	// Verify returns what it found: one JSON value, or an error that wraps a Class. It
	// must return soon after ctx ends, must not keep s, which has no media, and must be
	// safe for concurrent use.
	Verify(ctx context.Context, s *Sample) (json.RawMessage, error)
}

// ErrUnknownScorer is wrapped by Build for a name that is not registered.
var ErrUnknownScorer = errors.New("unknown scorer")

// Register adds a scorer. A name that is empty or taken is a mistake in the
// program, found at start: it panics.
func (r *Registry) Register(s Spec) {
	if s.Name == "" || s.Build == nil && s.BuildGroup == nil {
		panic("rewards: a scorer needs a name and a build function")
	}
	if _, ok := r.specs[s.Name]; ok {
		panic("rewards: scorer " + s.Name + " registered twice")
	}
	if r.specs == nil {
		r.specs = make(map[string]Spec)
	}
	r.specs[s.Name] = s
}

// Build makes the scorer of that name. One that looks at whole groups is made by
// BuildGroup.
func (r *Registry) Build(name string, raw json.RawMessage) (Scorer, error) {
	s, err := r.spec(name)
	if err != nil {
		return nil, err
	}
	if s.Build == nil {
		return nil, fmt.Errorf("scorer %q scores whole prompt groups, not single samples", name)
	}
	sc, err := s.Build(raw)
	if err != nil {
		return nil, fmt.Errorf("scorer %q: %w", name, err)
	}
	return sc, nil
}

// BuildGroup makes the scorer of that name, which looks at whole groups.
func (r *Registry) BuildGroup(name string, raw json.RawMessage) (GroupScorer, error) {
	s, err := r.spec(name)
	if err != nil {
		return nil, err
	}
	if s.BuildGroup == nil {
		return nil, fmt.Errorf("scorer %q scores single samples, not whole prompt groups", name)
	}
	sc, err := s.BuildGroup(raw)
	if err != nil {
		return nil, fmt.Errorf("scorer %q: %w", name, err)
	}
	return sc, nil
}

func (r *Registry) spec(name string) (Spec, error) {
	s, ok := r.specs[name]
	if !ok {
		return Spec{}, fmt.Errorf("%w %q, want one of %s", ErrUnknownScorer, name, strings.Join(r.Names(), ", "))
	}
	return s, nil
}

// Names returns the registered names in order.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.specs)) }

// Spec returns the description of a registered scorer.
func (r *Registry) Spec(name string) (Spec, bool) {
	s, ok := r.specs[name]
	return s, ok
}

// OptionError is what is wrong with one option of a scorer.
type OptionError struct {
	// Name is the option's; what lies below it has the names in between, with dots.
	Name string
	// Unknown says that there is no such option.
	Unknown bool
	// Message says what is wrong with it.
	Message string
}

// Error implements error.
func (e *OptionError) Error() string { return "options." + e.Name + ": " + e.Message }

// optionError names the option whose value encoding/json says is wrong.
func optionError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return &OptionError{Name: wrong.Field, Message: fmt.Sprintf("want %s, got %s", jsonKind(wrong.Type), wrong.Value)}
	}
	return fmt.Errorf("options: %w", err)
}

// unknownOption is the first name of a JSON object, in the order of the alphabet, that the
// struct behind v has no field for; nil: there is none, or either is something else.
func unknownOption(raw json.RawMessage, v any) error {
	t := reflect.TypeOf(v)
	var given map[string]json.RawMessage
	if _, own := v.(json.Unmarshaler); own || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || json.Unmarshal(raw, &given) != nil {
		return nil //nolint:nilerr // what is wrong with the options, their decoding says
	}
	for _, f := range reflect.VisibleFields(t.Elem()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		maps.DeleteFunc(given, func(word string, _ json.RawMessage) bool {
			return f.IsExported() && name != "-" && strings.EqualFold(word, cmp.Or(name, f.Name)) // encoding/json takes either case
		})
	}
	if unknown := slices.Sorted(maps.Keys(given)); len(unknown) > 0 {
		return &OptionError{Name: unknown[0], Unknown: true, Message: "unknown option"}
	}
	return nil
}

// jsonKind is what stands in JSON for values of a type.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "keys below it"
	case reflect.Pointer:
		return jsonKind(t.Elem())
	}
	return "text"
}

// DecodeOptions decodes the options of a scorer into v (a pointer to a struct
// holding the defaults) and refuses unknown names and trailing text. What is wrong with one
// option is an OptionError.
func DecodeOptions(raw json.RawMessage, v any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	if err := unknownOption(raw, v); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields() // below the options as well
	if err := d.Decode(v); err != nil {
		return optionError(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("options: more than one JSON value")
	}
	return nil
}

// Columns returns the columns of reward_extra_info that the profile's results have,
// by name: its components' values and flags, and the fields their scorers declare. What
// a scorer without a declaration adds is known only after its first success.
func (m *Manager) Columns() []Field {
	var out []Field
	for _, f := range m.fields {
		out = append(out, f.declaredColumns()...)
	}
	if !m.cfg.Single {
		out = append(out, Field{combinedColumn, Number})
	}
	slices.SortFunc(out, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (f *componentFields) declaredColumns() []Field {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []Field{{f.key, Number}, {f.flag, Bool}}
	if f.raw != "" {
		out = append(out, Field{f.raw, Number})
	}
	for name, field := range f.kinds {
		out = append(out, Field{f.columns[name], field.Kind})
	}
	return out
}
