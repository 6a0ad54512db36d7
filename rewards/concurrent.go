package rewards

import (
	"fmt"
	"runtime"
	"strings"
)

// Concurrent is implemented by a Scorer, GroupScorer, Preparer or Verifier that can report how many
// of its calls this process executes at the same time, such as the number of its sessions, child
// processes or places at a service. Workers hold no more samples than that, because a further call
// would wait in this process while another process may be idle.
//
// A scorer that does not implement Concurrent computes in Go; the process executes as many of its
// calls as there are CPUs.
type Concurrent interface {
	// Concurrency returns the current number, which is at least 1. It is called for every sample,
	// so it must be fast. The number may change, for example when the share of a service is
	// redistributed, or when a process detects at its start whether its function is async.
	Concurrency() int
}

// ConcurrencyReasoner is implemented by a Concurrent that can give the reason for its number.
type ConcurrencyReasoner interface {
	// ConcurrencyReason returns a text for people, such as "2 Tesseract processes", which is
	// printed in brackets after the number. The text contains every limit for which an accepted
	// call may still wait, such as a number of requests per minute.
	ConcurrencyReason() string
}

// ConcurrencyOf returns how many calls of a scorer, or of a part of one, this process executes at
// the same time. The result is at least 1.
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

// ConcurrencyReason returns a short reason for the result of ConcurrencyOf.
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

// Narrowest returns the part with the lowest concurrency; of several equal parts, the first. A
// scorer that needs all parts for each call has the concurrency of that part.
func Narrowest[T any](parts ...T) (least T) {
	for i, p := range parts {
		if i == 0 || ConcurrencyOf(p) < ConcurrencyOf(least) {
			least = p
		}
	}
	return least
}

// Count returns a number with its noun, such as "1 CPU", "2 CPUs" or "2 processes", for a
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

// ComponentConcurrency is the concurrency of one separately executed part of a profile.
type ComponentConcurrency struct {
	// Key is the key of the component in the profile, or "verify" for the Preparer.
	Key string
	// Group reports whether the component scores whole prompt groups, in RunGroup. Prepares reports
	// whether the part is the profile's Preparer, which runs before the components.
	Group, Prepares bool
	// Concurrency is how many calls this process executes at the same time. Reason is a short
	// explanation of that number.
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

// Concurrencies returns the current concurrency of all components. The indices of the slice are the
// numbers that OnEnd passes on: those of the components, and the last index for the Preparer, if
// the profile has one.
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

// Capacity returns how many samples of the profile this process can score at the same time:
// ManagerConfig.Concurrency if it is set, otherwise the largest concurrency of a component. Places
// reports whether the process can take one more sample now.
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
