package pool

import (
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// Executors is what a device has to execute the calls of a model.
type Executors struct {
	// Device is "cpu" or "cuda:<n>".
	Device string
	// Python says that the slots are processes of a model in Python, and not sessions.
	Python bool
	// Slots is how many batches it runs at a time, MaxBatch how many items one may have.
	Slots, MaxBatch int
}

var (
	_ rewards.Concurrent          = Executors{}
	_ rewards.ConcurrencyReasoner = Executors{}
	_ rewards.Concurrent          = Fleet{}
	_ rewards.ConcurrencyReasoner = Fleet{}
	_ rewards.Concurrent          = (*Model)(nil)
	_ rewards.ConcurrencyReasoner = (*Model)(nil)
)

// cpu is the one device whose batches take as long as their items one by one.
const cpu = "cpu"

// Concurrency is one call for each slot of the CPU; of a card the items of its largest
// batches, and as many that are being prepared while those run.
func (e Executors) Concurrency() int {
	n := max(e.Slots, 1)
	if e.batches() {
		n *= 2 * max(e.MaxBatch, 1)
	}
	return n
}

// batches says whether a batch takes less time than its items one by one.
func (e Executors) batches() bool { return e.Device != cpu || e.Python }

// ConcurrencyReason counts the sessions or processes.
func (e Executors) ConcurrencyReason() string {
	what := "session"
	if e.Python {
		what = "Python process"
	}
	why := rewards.Count(max(e.Slots, 1), what) + " on " + e.Device
	if e.batches() {
		why += fmt.Sprintf(" with batches of up to %d, while as many are prepared", max(e.MaxBatch, 1))
	}
	return why
}

// Foreseer is implemented by an Opener that knows the slots of a device before it opens it.
type Foreseer interface {
	// Slots is what Runner.Slots will be.
	Slots(device string) int
}

// Concurrency is how many calls of the model its devices execute at a time.
func (m *Model) Concurrency() int { return m.executors().Concurrency() }

// ConcurrencyReason says with what.
func (m *Model) ConcurrencyReason() string { return m.executors().ConcurrencyReason() }

func (m *Model) executors() Fleet {
	all := make(Fleet, len(m.replicas))
	for i, r := range m.replicas {
		all[i] = r.executors()
	}
	return all
}

func (r *replica) executors() Executors {
	d := r.device
	d.mu.Lock()
	defer d.mu.Unlock()
	e := Executors{Device: r.model.Device, Python: r.model.Entry != "", Slots: d.foreseen, MaxBatch: d.cfg.MaxBatch}
	if d.runner != nil {
		e.Slots = d.runner.slots
	}
	if top := r.account.top; top > 0 {
		e.MaxBatch = min(e.MaxBatch, top)
	}
	return e
}

// Fleet is what the devices of a model have, all together.
type Fleet []Executors

// Concurrency is the sum.
func (f Fleet) Concurrency() int {
	n := 0
	for _, e := range f {
		n += e.Concurrency()
	}
	return n
}

// ConcurrencyReason counts the sessions of all devices, once where they are alike.
func (f Fleet) ConcurrencyReason() string {
	var kinds []Executors
	names := make(map[Executors][]string)
	for _, e := range f {
		kind := e
		kind.Device = ""
		if names[kind] == nil {
			kinds = append(kinds, kind)
		}
		names[kind] = append(names[kind], e.Device)
	}
	why := make([]string, len(kinds))
	for i, kind := range kinds {
		all := names[kind]
		if kind.Device = all[0]; len(all) > 1 {
			kind.Device = "each of " + strings.Join(all, ", ")
		}
		why[i] = kind.ConcurrencyReason()
	}
	return strings.Join(why, "; ")
}
