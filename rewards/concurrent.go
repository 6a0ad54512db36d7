package rewards

import (
	"fmt"
	"runtime"
	"strings"
)

// Concurrent is implemented by a Scorer, GroupScorer, Preparer or Verifier that knows how
// many of its calls this process executes at a time: as many as it has sessions, child
// processes, or places at a service. Workers hold no more samples than that, because a
// call beyond it would only wait in this process while another one is free.
//
// A scorer without it computes in Go: as many of its calls run as there are CPUs.
type Concurrent interface {
	// Concurrency returns the number now, 1 or more. It is asked for every sample, so that
	// it must be cheap, and it may change: the share of a service is divided anew, a
	// process finds out when it starts whether its function is async.
	Concurrency() int
}

// ConcurrencyReasoner is implemented by a Concurrent that can say why the number is what
// it is.
type ConcurrencyReasoner interface {
	// ConcurrencyReason is for people and stands in brackets behind the number, such as "2
	// Tesseract processes". It names every limit that a call may still wait for after it
	// was taken, such as requests a minute.
	ConcurrencyReason() string
}

// ConcurrencyOf returns how many calls of a scorer, or of a part of one, this process
// executes at a time: 1 or more.
func ConcurrencyOf(scorer any) (n int) {
	c, ok := scorer.(Concurrent)
	if !ok {
		return runtime.GOMAXPROCS(0)
	}
	// A worker asks, whose goroutine nobody else guards.
	if err := Guard(func() error { n = c.Concurrency(); return nil }); err != nil {
		return 1
	}
	return max(n, 1)
}

// ConcurrencyReason says why ConcurrencyOf is what it is, in a few words.
func ConcurrencyReason(scorer any) (why string) {
	if r, ok := scorer.(ConcurrencyReasoner); ok {
		if err := Guard(func() error { why = r.ConcurrencyReason(); return nil }); err != nil {
			return fmt.Sprintf("the scorer does not give the reason: %.100s", err)
		}
		return why
	}
	if _, ok := scorer.(Concurrent); ok {
		return "set by the scorer"
	}
	return Count(runtime.GOMAXPROCS(0), "CPU")
}

// Narrowest is the part that executes the fewest calls at a time; of several such the first.
// A scorer each of whose calls needs all of its parts executes as many.
func Narrowest[T any](parts ...T) (least T) {
	for i, p := range parts {
		if i == 0 || ConcurrencyOf(p) < ConcurrencyOf(least) {
			least = p
		}
	}
	return least
}

// Count is a number of things, "1 CPU", "2 CPUs" or "2 processes", for a
// ConcurrencyReason.
func Count(n int, one string) string {
	switch {
	case n == 1:
		return "1 " + one
	case strings.HasSuffix(one, "s"):
		one += "e"
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// ComponentConcurrency is one part of a profile that is executed by itself.
type ComponentConcurrency struct {
	// Key is that of the component in the profile. That of the preparation is "verify".
	Key string
	// Group says that it looks at whole prompt groups: RunGroup runs it. Prepares says that
	// it is the profile's Preparer, which runs before the others.
	Group, Prepares bool
	// Concurrency is how many of its calls this process executes at a time, Reason why.
	Concurrency int
	Reason      string
}

// preparation is the Key of the component that is the profile's Preparer.
const preparation = "verify"

// count is the number of components: the components, and behind them the preparation where
// there is one.
func (m *Manager) count() int {
	if m.cfg.Prepare != nil {
		return len(m.cfg.Components) + 1
	}
	return len(m.cfg.Components)
}

// Concurrencies describes all components as they are now. Their places in the list are the
// numbers that OnEnd is told: those of the components, and the last one that of the Preparer,
// where the profile has one.
func (m *Manager) Concurrencies() []ComponentConcurrency {
	out := make([]ComponentConcurrency, 0, m.count())
	for i := range m.cfg.Components {
		t := &m.cfg.Components[i]
		c := ComponentConcurrency{Key: t.Key, Group: t.Group != nil, Concurrency: m.concurrency(i), Reason: "the concurrency of its entry"}
		if t.Concurrency == 0 {
			c.Reason = ConcurrencyReason(t.implementation())
		}
		out = append(out, c)
	}
	if m.cfg.Prepare != nil {
		out = append(out, ComponentConcurrency{
			Key: preparation, Prepares: true, Concurrency: m.concurrency(len(out)), Reason: ConcurrencyReason(m.cfg.Prepare),
		})
	}
	return out
}

// concurrency is that of a component.
func (m *Manager) concurrency(component int) int {
	if component == len(m.cfg.Components) {
		return ConcurrencyOf(m.cfg.Prepare)
	}
	t := &m.cfg.Components[component]
	if t.Concurrency > 0 {
		return t.Concurrency
	}
	return ConcurrencyOf(t.implementation())
}

// computes reports whether a component is executed by this process, as many calls at a time as
// its scorer says.
func (m *Manager) computes(component int) bool {
	if component == len(m.cfg.Components) {
		return DependencyOf(m.cfg.Prepare).Name == ""
	}
	t := &m.cfg.Components[component]
	return t.Concurrency == 0 && DependencyOf(t.implementation()).Name == ""
}

// Capacity is how many samples of the profile this process can use at a time:
// ManagerConfig.Concurrency where that is set, else the concurrency of the component that
// has the most. Whether it can use one more now, Places says.
func (m *Manager) Capacity() int {
	if m.cfg.Concurrency > 0 {
		return m.cfg.Concurrency
	}
	most := 1
	for i := range m.count() {
		most = max(most, m.concurrency(i))
	}
	return most
}
