package rewards

import (
	"context"
	"errors"
	"time"
)

// Dependency is an engine or a service that a scorer asks, or what else it cannot do without
// and this machine may lack, as it is now.
type Dependency struct {
	// Name is the dependency's for people; empty: the scorer needs nothing, or has it.
	Name string
	// Down says that none of its servers is in service: the breakers of all are open. A
	// call that failed, or many, do not make it down by themselves.
	Down bool
	// Probe says of one that is down that a call may find out now whether it is back. Due is
	// when the next one may; zero where that is not known, because one is under way.
	Probe bool
	Due   time.Time
	// Last is the last failure there, without secrets; empty: there was none.
	Last string
	// Held is what whoever starts its servers says of the first one while no call may go to any;
	// empty: nobody holds them.
	Held string
	// Unanswered is for how long nothing was answered while calls are there; 0: there are
	// none.
	Unanswered time.Duration
	// Changed is closed when Down or Probe is another, but for a Probe that becomes true
	// because Due has come. Nil where nothing ever changes.
	Changed <-chan struct{}
}

// Reliant is implemented by a Scorer, GroupScorer, Preparer or Verifier whose calls ask an
// engine or a service, or need something that this machine may lack.
type Reliant interface {
	// Dependency returns whom it asks. It is asked at any time, and must be cheap. Of several
	// it returns the one that is worst off (Worse).
	Dependency() Dependency
}

// DependencyOf returns whom a scorer, or a part of one, asks; one without a name for a
// scorer that asks nobody, or does not say.
func DependencyOf(scorer any) (d Dependency) {
	r, ok := scorer.(Reliant)
	if !ok {
		return Dependency{}
	}
	// A worker asks, whose goroutine nobody else guards.
	if err := Guard(func() error { d = r.Dependency(); return nil }); err != nil {
		return Dependency{}
	}
	return d
}

// Worse reports whether d keeps a call that needs both from being made longer than o.
func (d Dependency) Worse(o Dependency) bool {
	switch {
	case o.Name == "" || d.Name == "":
		return d.Name != ""
	case d.Down != o.Down:
		return d.Down
	case d.Down && d.Probe != o.Probe:
		return o.Probe
	case d.Down:
		return d.Due.After(o.Due)
	}
	return d.Unanswered > o.Unanswered
}

// Worst is the dependency that is worst off of what several parts ask, all of which a call
// needs.
func Worst[T any](parts ...T) (worst Dependency) {
	for _, p := range parts {
		if d := DependencyOf(p); d.Worse(worst) {
			worst = d
		}
	}
	return worst
}

// Dependencies are those of the components, each once, as they are now. Needed says that
// every sample of the profile needs the dependency: its component is required or fails the
// sample by its policy, and is for all samples.
func (m *Manager) Dependencies() (all []Needed) {
	add := func(part any, always bool) {
		d := DependencyOf(part)
		if d.Name == "" {
			return
		}
		for i := range all {
			if all[i].Name == d.Name {
				all[i].Always = all[i].Always || always
				return
			}
		}
		all = append(all, Needed{d, always})
	}
	if m.cfg.Gate != nil {
		add(m.cfg.Gate, true)
	}
	if m.cfg.Prepare != nil {
		add(m.cfg.Prepare, true)
	}
	for i := range m.cfg.Components {
		t := &m.cfg.Components[i]
		add(t.implementation(), t.always())
	}
	return all
}

// Relies reports whether a component may have a dependency, now or later.
func (m *Manager) Relies() bool {
	_, relies := m.cfg.Prepare.(Reliant)
	relies = relies || m.cfg.Gate != nil
	for i := range m.cfg.Components {
		_, one := m.cfg.Components[i].implementation().(Reliant)
		relies = relies || one
	}
	return relies
}

// Needed is a dependency of a profile.
type Needed struct {
	Dependency

	// Always says that no sample of the profile has a score without it.
	Always bool
}

// Waits returns the dependency for which all samples of the profile wait now, and true; or
// one that is down or does not answer and of which only some need something, or some still
// have a place at, and false. It has no name where all is well.
func (m *Manager) Waits() (worst Dependency, always bool) {
	for _, d := range m.Dependencies() {
		holds := d.Down && d.Always
		if holds && !always || holds == always && d.Worse(worst) {
			worst, always = d.Dependency, holds
		}
	}
	if !worst.Down && worst.Unanswered < Unanswered {
		return Dependency{}, false
	}
	return worst, always
}

// Unanswered is how long calls may be without any answer from a dependency before people
// are told. It takes no capacity: a model may think for longer.
const Unanswered = 5 * time.Second

// outage is the error of a call that was not made, or failed, because its dependency is
// down.
type outage struct {
	error
	dependency string
}

// Unwrap returns the error itself.
func (e *outage) Unwrap() error { return e.error }

// WaitsFor returns err, and says that the call failed because a dependency is down: it is
// worth nothing as an answer about the sample, and may be made again when that is back.
func WaitsFor(dependency string, err error) error {
	if err == nil {
		return nil
	}
	return &outage{err, dependency}
}

// WaitedFor returns for which dependency an error says that it waits; empty: for none.
func WaitedFor(err error) string {
	if o, ok := errors.AsType[*outage](err); ok {
		return o.dependency
	}
	return ""
}

type returningKey struct{}

// Returning marks calls whose sample goes back to a queue while a dependency is down: they
// fail at once, with WaitsFor, where they would otherwise wait for it.
func Returning(ctx context.Context) context.Context {
	return context.WithValue(ctx, returningKey{}, true)
}

// Returns reports whether ctx is Returning's.
func Returns(ctx context.Context) bool {
	is, _ := ctx.Value(returningKey{}).(bool)
	return is
}

// Return lets the run give a sample back that cannot be scored while a dependency is down:
// its Result then has Waits, and in Partial what is finished. It is not a failure.
func Return() RunOption { return func(p *pass) { p.returns = true } }

// Kept has the run take over what an earlier one of the same sample has finished: Result's
// Partial. Components that wait are run. What is not of this profile is passed over.
func Kept(components []ComponentResult) RunOption { return func(p *pass) { p.kept = components } }

// keeps returns what an earlier run has said of a component, if it was finished.
func (p *pass) keeps(component int) (ComponentResult, bool) {
	if len(p.kept) != len(p.m.cfg.Components) {
		return ComponentResult{}, false
	}
	r := p.kept[component]
	return r, r.Key == p.m.cfg.Components[component].Key && r.Status != StatusWaiting && r.Status != ""
}

// context is ctx for the calls of the pass.
func (p *pass) context(ctx context.Context) context.Context {
	if p.returns {
		return Returning(ctx)
	}
	return ctx
}

// decisive reports whether the component's failure is the sample's.
func (t *Component) decisive(s *Sample) bool { return t.policy(s).Policy == PolicyFail }

// awaited is the component for which a sample waits that is to be returned; nil: none, because
// nothing that decides is down, or because another component has decided already.
func (m *Manager) awaited(s *Sample, components []ComponentResult) (first *ComponentResult) {
	for i := range components {
		switch r := &components[i]; {
		case r.Status != StatusFailed || !m.cfg.Components[i].decisive(s):
		case r.Waits == "":
			return nil
		case first == nil:
			first = r
		}
	}
	return first
}

// returned is the result of a sample that waits for a dependency. Components that failed because
// one is down run again with the rest.
func returned(components []ComponentResult, why *ComponentResult) Result {
	kept := make([]ComponentResult, len(components))
	for i, r := range components {
		if r.Status == StatusFailed && r.Waits != "" {
			r = ComponentResult{Key: r.Key, Status: StatusWaiting}
		}
		kept[i] = r
	}
	return Result{Outcome: OutcomeCancelled, Waits: why.Waits, Components: components, Partial: kept, Errors: []ComponentError{why.failure()}}
}

// unready is the result of a sample whose preparation waits for a dependency; ok is false
// where it does not.
func (p *pass) unready(err error) (r Result, ok bool) {
	dependency := WaitedFor(err)
	if !p.returns || dependency == "" {
		return r, false
	}
	blame, _ := BlameOf(err)
	r = Result{Outcome: OutcomeCancelled, Waits: dependency, Errors: []ComponentError{{
		Class: ClassOf(err), Message: tell(p.m.cfg.Redact, MessageOf(err)), Blame: blame, Attempts: 1,
	}}}
	for i, t := range p.m.cfg.Components {
		kept, ok := p.keeps(i)
		if !ok {
			kept = ComponentResult{Key: t.Key, Status: StatusWaiting}
		}
		r.Partial = append(r.Partial, kept)
	}
	return r, true
}
