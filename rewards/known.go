package rewards

import (
	"context"
	"sync"
	"time"
)

// This file is about functions of users, which show only when they are called whether they
// can work: they are called with known samples before the first real one comes.

// KnownTime bounds a call with a known sample, if the component's timeout does not.
const KnownTime = 10 * time.Second

// Tried is what came of the call with one known sample.
type Tried struct {
	// Component is the key of the component; Manager.TryKnown sets it, and Optional.
	Component string
	// Optional says that samples have a score without the component.
	Optional bool
	// Kind is that of the sample: image, video or text.
	Kind string
	// Err says why there was no score; nil: there was one.
	Err error
	// Lacks is the module that the function needs and this machine does not have; empty:
	// none.
	Lacks string
	Took  time.Duration
}

// Knower is implemented by a Scorer that runs a function of the user's.
type Knower interface {
	// KnownSamples are the known samples that it takes, one of each kind, once Warm has been
	// called; none where its user wants no such calls.
	KnownSamples() []*Sample
	// TryKnown calls it with a known sample of each kind that it takes, each for timeout at
	// most, and returns what came of each. A scorer whose user wants no such calls returns
	// none.
	TryKnown(ctx context.Context, timeout time.Duration) []Tried
}

// TryKnown has the scorers that are Knowers try their known samples, all at once, and returns
// what came of them in the order of the components. No results come of the calls.
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

// KnownSamples are those of the first component whose scorer is a Knower. Knows says that there
// is one; it may want no such calls.
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

// Needs reports whether a component asks a dependency, and whether one does without which
// samples have no score.
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
