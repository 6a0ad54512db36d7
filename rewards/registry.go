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

// Spec describes a scorer that the configuration can use.
type Spec struct {
	// Name is the part of the scorer's name after builtin:// in the configuration.
	Name string
	// Summary is one line, which `rewardloop scorers` prints.
	Summary string
	// Concurrency explains to people how many calls are executed at the same time, and what
	// determines that number. It is empty for a scorer that computes in Go, with one call for each
	// CPU.
	Concurrency string
	// AsksEngine reports that the options engine and model are the names of an engine of the
	// configuration and of its model. The defaults of both come from reward_model.
	AsksEngine bool
	// Options documents the options of the scorer, for people.
	Options []Option
	// Build creates the scorer. raw is a JSON object with the options, or nil. Unknown options are
	// an error (use DecodeOptions).
	Build func(raw json.RawMessage) (Scorer, error)
	// BuildGroup creates a scorer of whole prompt groups, in the same way. A Spec has one of the
	// two functions, or both if the kind of scorer depends on the options.
	BuildGroup func(raw json.RawMessage) (GroupScorer, error)
	// Inspect determines, without building the scorer, the parameters of the user's function that
	// is set in the options. It is nil if the options contain no function. groups reports that
	// another component uses the function for finished groups. Inspect takes at most about 10 s. An
	// error of class Timeout means that this time was not enough; any other error is the reason why
	// the function cannot be called.
	Inspect func(ctx context.Context, raw json.RawMessage, groups bool) (Signature, error)
}

// Signature describes the arguments that a user's function accepts.
type Signature struct {
	// Names are the parameters of the function. Any reports whether it accepts other names as well
	// (**kwargs).
	Names []string
	Any   bool
	// At is the file and line of the function's definition. It is empty if unknown.
	At string
	// Faults are the reasons why no sample can provide the required arguments.
	Faults []string
}

// Option documents one option of a scorer.
type Option struct {
	// Name is the key in the configuration. Type and Default are texts for people, such as "int"
	// and "10". Doc describes the option in one line.
	Name, Type, Default, Doc string
}

// Registry is a set of named scorers. The zero value is empty and ready to use. A Registry may be
// read concurrently, but not while scorers are registered.
type Registry struct {
	specs map[string]Spec
	// Verifier creates the Verifier of the given kind, with options as for a scorer. It may be nil.
	Verifier func(kind string, raw json.RawMessage) (Verifier, error)
}

// Verifier checks a sample before the sample is scored.
type Verifier interface {
	// Verify returns its findings as one JSON value, or an error that wraps a Class. Verify must
	// return soon after ctx ends, must not keep s, which has no media, and must be safe for
	// concurrent use.
	Verify(ctx context.Context, s *Sample) (json.RawMessage, error)
}

// ErrUnknownScorer is wrapped by the errors of Build and BuildGroup for an unregistered name.
var ErrUnknownScorer = errors.New("unknown scorer")

// Register adds a scorer. Register panics if the name is empty or already registered, or if the
// Spec has no function that builds a scorer, because these are errors in the program.
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

// Build creates the scorer with the given name. A scorer of whole groups is created by BuildGroup.
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

// BuildGroup creates the scorer of whole groups with the given name.
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

// Names returns the registered names in alphabetical order.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.specs)) }

// Spec returns the description of a registered scorer.
func (r *Registry) Spec(name string) (Spec, bool) {
	s, ok := r.specs[name]
	return s, ok
}

// OptionError is the error for one option of a scorer.
type OptionError struct {
	// Name is the name of the option. The name of a nested key contains the keys above it, joined
	// with dots.
	Name string
	// Unknown reports that the scorer has no such option.
	Unknown bool
	// Message describes the error.
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

// DecodeOptions decodes the options of a scorer into v, a pointer to a struct that holds the
// defaults. Unknown names and trailing text are errors. The error for a single option is an
// OptionError.
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

// Columns returns the columns of reward_extra_info in the profile's results, sorted by name: the
// values and flags of its components, and the fields that their scorers declare. The columns of a
// scorer that declares no fields are known only after its first success.
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
