package rewards

import (
	"context"
	"sync"
	"time"
)

// This file is about functions of users, which show only when they are called whether they
// can work: they are called with known samples before the first real one comes.

// KnownTime is the maximum duration of a call with a known sample, unless the component's timeout
// is shorter.
const KnownTime = 10 * time.Second

// Tried is the outcome of a call with one known sample.
type Tried struct {
	// Component is the key of the component. Manager.TryKnown sets Component and Optional.
	Component string
	// Optional reports whether samples get a score without the component.
	Optional bool
	// Kind is the kind of the sample: image, video or text.
	Kind string
	// Err is the reason why there was no score, or nil if there was one.
	Err error
	// Lacks is the name of a module that the function needs and that is not installed on this
	// machine. It is empty if no module is missing.
	Lacks string
	Took  time.Duration
}

// Knower is implemented by a Scorer that runs a user's function.
type Knower interface {
	// KnownSamples returns the known samples that the function accepts, one of each kind. It is
	// called after Warm. It returns none if the user has disabled such calls.
	KnownSamples() []*Sample
	// TryKnown calls the function with a known sample of each kind that it accepts, each call for
	// at most timeout, and returns the outcome of each call. It returns none if the user has
	// disabled such calls.
	TryKnown(ctx context.Context, timeout time.Duration) []Tried
}

// TryKnown calls TryKnown of all scorers that are Knowers, at the same time, and returns the
// outcomes in the order of the components. The calls produce no results of samples.
func (m *Manager) TryKnown(ctx context.Context) (all []Tried) {
	found := make([][]Tried, len(m.cfg.Components))
	var trying sync.WaitGroup
	for i := range m.cfg.Components {
		t := &m.cfg.Components[i]
		k, ok := t.implementation().(Knower)
		if !ok {
			continue
		}
		trying.Go(func() { // ends within KnownTime for each kind
			if err := Guard(func() error { found[i] = k.TryKnown(ctx, min(t.Timeout, KnownTime)); return nil }); err != nil {
				found[i] = []Tried{{Err: err}}
			}
			for j := range found[i] {
				found[i][j].Component, found[i][j].Optional = t.Key, m.optional(t)
			}
		})
	}
	trying.Wait()
	for _, f := range found {
		all = append(all, f...)
	}
	return all
}

// KnownSamples returns the known samples of the first component whose scorer is a Knower. knows
// reports whether there is such a component; its user may have disabled such calls.
func (m *Manager) KnownSamples() (samples []*Sample, knows bool) {
	for i := range m.cfg.Components {
		if k, ok := m.cfg.Components[i].implementation().(Knower); ok {
			return k.KnownSamples(), true
		}
	}
	return nil, false
}

// optional reports whether samples have a score without the component: from others.
func (m *Manager) optional(t *Component) bool { return !t.always() && len(m.cfg.Components) > 1 }

// Needs reports whether a component uses a dependency (asked), and whether samples have no score
// without it (needed).
func (m *Manager) Needs(dependency string) (asked, needed bool) {
	asked = m.cfg.Prepare != nil && DependencyOf(m.cfg.Prepare).Name == dependency
	needed = asked
	for i := range m.cfg.Components {
		if t := &m.cfg.Components[i]; DependencyOf(t.implementation()).Name == dependency {
			asked, needed = true, needed || !m.optional(t)
		}
	}
	return asked, needed
}

// always reports whether no sample of the profile has a score without the component.
func (t *Component) always() bool {
	return (t.Required || t.OnFailure.Policy == PolicyFail) && len(t.When) == 0
}
