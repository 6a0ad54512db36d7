package rewards

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
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
	// one of the two.
	BuildGroup func(raw json.RawMessage) (GroupScorer, error)
}

// Option documents one option of a scorer.
type Option struct {
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
	if s.Name == "" || (s.Build == nil) == (s.BuildGroup == nil) {
		panic("rewards: a scorer needs a name and one build function")
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
		return nil, fmt.Errorf("scorer %q looks at whole prompt groups, not at one sample", name)
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
		return nil, fmt.Errorf("scorer %q looks at one sample, not at whole prompt groups", name)
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
		return Spec{}, fmt.Errorf("%w %q; known are %s", ErrUnknownScorer, name, strings.Join(r.Names(), ", "))
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

// DecodeOptions decodes the options of a scorer into v (a pointer to a struct
// holding the defaults) and refuses unknown names and trailing text.
func DecodeOptions(raw json.RawMessage, v any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("options: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("options: more than one JSON value")
	}
	return nil
}
