package pool

import (
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// Executors describes the capacity of a device for the calls of a model.
type Executors struct {
	// Device is "cpu" or "cuda:<n>".
	Device string
	// Python reports whether the slots are processes of a model in Python instead of sessions.
	Python bool
	// Slots is how many batches run at the same time. MaxBatch is the maximum number of items in a
	// batch.
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

// Concurrency returns the number of slots for ONNX models on the CPU. For a card, and for models in
// Python, it returns twice the items of the largest batches in all slots: as many items are
// prepared while others run.
func (e Executors) Concurrency() int {
	n := max(e.Slots, 1)
	if e.batches() {
		n *= 2 * max(e.MaxBatch, 1)
	}
	return n
}

// batches says whether a batch takes less time than its items one by one.
func (e Executors) batches() bool { return e.Device != cpu || e.Python }

// ConcurrencyReason returns the number of sessions or processes, as text.
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

// Foreseer is implemented by an Opener that can report the slots of a device before the device is
// opened.
type Foreseer interface {
	// Slots returns the number that Runner.Slots will return.
	Slots(device string) int
}

// Concurrency returns how many calls of the model its devices execute at the same time, including
// the items in preparation.
func (m *Model) Concurrency() int { return m.executors().Concurrency() }

// ConcurrencyReason returns the sessions or processes behind the result of Concurrency, as text.
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

// Fleet describes the capacity of all devices of a model together.
type Fleet []Executors

// Concurrency returns the sum over the devices.
func (f Fleet) Concurrency() int {
	n := 0
	for _, e := range f {
		n += e.Concurrency()
	}
	return n
}

// ConcurrencyReason returns the sessions of all devices as text. Equal devices are listed together.
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
