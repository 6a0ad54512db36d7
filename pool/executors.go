package pool

import (
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// Executors is what a device has to execute the calls of a model.
type Executors struct {
	// Device is "cpu" or "cuda:<n>".
	Device string
	// Slots is how many batches it runs at a time, MaxBatch how many items one may have.
	Slots, MaxBatch int
}

var (
	_ rewards.Concurrent          = Executors{}
	_ rewards.ConcurrencyReasoner = Executors{}
	_ rewards.Concurrent          = (*Model)(nil)
	_ rewards.ConcurrencyReasoner = (*Model)(nil)
)

// cpu is the one device whose batches take as long as their items one by one.
const cpu = "cpu"

// Concurrency is one call for each slot of the CPU; of a card the items of its largest
// batches, and as many that are being prepared while those run.
func (e Executors) Concurrency() int {
	n := max(e.Slots, 1)
	if e.Device != cpu {
		n *= 2 * max(e.MaxBatch, 1)
	}
	return n
}

// ConcurrencyReason counts the sessions.
func (e Executors) ConcurrencyReason() string {
	why := rewards.Count(max(e.Slots, 1), "session") + " on " + e.Device
	if e.Device != cpu {
		why += fmt.Sprintf(" with batches of up to %d, while as many are prepared", max(e.MaxBatch, 1))
	}
	return why
}

// Foreseer is implemented by an Opener that knows the slots of a device before it opens it.
type Foreseer interface {
	// Slots is what Runner.Slots will be.
	Slots(device string) int
}

// Concurrency is how many calls of the model its device executes at a time.
func (m *Model) Concurrency() int { return m.executors().Concurrency() }

// ConcurrencyReason says with what.
func (m *Model) ConcurrencyReason() string { return m.executors().ConcurrencyReason() }

func (m *Model) executors() Executors {
	d := m.device
	d.mu.Lock()
	defer d.mu.Unlock()
	e := Executors{Device: d.name, Slots: d.foreseen, MaxBatch: d.cfg.MaxBatch}
	if d.runner != nil {
		e.Slots = d.runner.slots
	}
	if top := m.account.top; top > 0 {
		e.MaxBatch = min(e.MaxBatch, top)
	}
	return e
}
