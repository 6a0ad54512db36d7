package rewards

import (
	"context"
	"errors"
	"time"
)

// Dependency is the current state of something that a scorer needs: an engine, a service, or
// something that may be missing on this machine.
type Dependency struct {
	// Name is the name of the dependency, for people. Name is empty if the scorer needs nothing, or
	// has what it needs.
	Name string
	// Down reports that none of the dependency's servers is in service: the breakers of all are
	// open. Failed calls alone do not make a dependency down.
	Down bool
	// Probe reports that a call may now test whether a dependency that is down works again. Due is
	// the time of the next such call; it is zero if the time is unknown because a call is in
	// flight.
	Probe bool
	Due   time.Time
	// Last is the last failure of the dependency, without secrets. It is empty if there was none.
	Last string
	// Held is the reason why the program that starts the dependency's servers keeps one of them out
	// of service, while the dependency is down. It is empty if no server is kept out of service.
	Held string
	// Unanswered is the time since the last answer while calls are in flight. It is 0 if no calls
	// are in flight.
	Unanswered time.Duration
	// Changed is closed when Down or Probe changes, except when Probe becomes true because the time
	// Due has come. It is nil if the state never changes.
	Changed <-chan struct{}
}

// Reliant is implemented by a Scorer, GroupScorer, Preparer or Verifier whose calls use an engine
// or a service, or need something that may be missing on this machine.
type Reliant interface {
	// Dependency returns the current state of the dependency. It is called at any time and must be
	// fast. If there are several dependencies, Dependency returns the one in the worst state (see
	// Worse).
	Dependency() Dependency
}

// DependencyOf returns the dependency of a scorer, or of a part of one. The Name is empty if the
// scorer has no dependency or does not implement Reliant.
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

// Worse reports whether d delays a call that needs both d and o longer than o does.
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

// Worst returns the dependency in the worst state among those of several parts, all of which a call
// needs.
func Worst[T any](parts ...T) (worst Dependency) {
	for _, p := range parts {
		if d := DependencyOf(p); d.Worse(worst) {
			worst = d
		}
	}
	return worst
}

// Dependencies returns the current dependencies of the profile, each once. Needed.Always is true if
// every sample of the profile needs the dependency: the component applies to all samples and is
// required, or fails the sample by its policy.
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

	// Always reports that no sample of the profile gets a score without the dependency.
	Always bool
}

// Waits returns the dependency for which all samples of the profile wait now, and true. If there is
// none, Waits returns false and a dependency that is down or does not answer, but that only some
// samples need or that still has places. The Name is empty if all dependencies work.
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

// Unanswered is how long calls may stay without an answer from a dependency before users are told.
// It does not reduce the capacity, because a model may need longer.
const Unanswered = 5 * time.Second

// outage is the error of a call that was not made, or failed, because its dependency is
// down.
type outage struct {
	error
	dependency string
}

// Unwrap returns the error itself.
func (e *outage) Unwrap() error { return e.error }

// WaitsFor returns err with the mark that the call failed because the dependency is down. Such an
// error is not a result for the sample; the call may be repeated when the dependency works again.
// WaitsFor returns nil if err is nil.
func WaitsFor(dependency string, err error) error {
	if err == nil {
		return nil
	}
	return &outage{err, dependency}
}

// WaitedFor returns the name of the dependency that err is waiting for (see WaitsFor), or "".
func WaitedFor(err error) string {
	if o, ok := errors.AsType[*outage](err); ok {
		return o.dependency
	}
	return ""
}

type returningKey struct{}

// Returning marks the calls under the returned context: their sample goes back to a queue if a
// dependency is down. Such a call fails immediately, with WaitsFor, instead of waiting for the
// dependency.
func Returning(ctx context.Context) context.Context {
	return context.WithValue(ctx, returningKey{}, true)
}

// Returns reports whether ctx comes from Returning.
func Returns(ctx context.Context) bool {
	is, _ := ctx.Value(returningKey{}).(bool)
	return is
}

// Return lets a run give back a sample that cannot be scored because a dependency is down. Its
// Result has Waits set, and Partial contains the finished components. This is not a failure.
func Return() RunOption { return func(p *pass) { p.returns = true } }

// Kept lets a run take over the components that an earlier run of the same sample finished, from
// Result.Partial. The run executes the components that wait, and ignores results of components that
// are not in this profile.
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
