package dispatch

import (
	"slices"

	"github.com/rewardloop/rewardloop/wire"
)

// Bench is who works on what, by the gateway's own count: workers announce themselves once a
// second only.
type Bench struct {
	takes func(worker, profile string) bool
	busy  map[string]int // attempts by worker, less those whose lease has lapsed
	fresh bool           // what follows is of now
	looks int            // how often it was made
	seats []seat         // live workers, by id
}

// seat is a live worker and its places.
type seat struct {
	id          string
	slots, free int
	rewards     []string // nil: anything
}

// NewBench makes a bench. Takes reports whether a worker may get a sample of a profile now.
func NewBench(takes func(worker, profile string) bool) *Bench {
	return &Bench{takes: takes, busy: map[string]int{}}
}

// serves reports whether the worker may have a sample of the profile now.
func (b *Bench) serves(s *seat, profile string) bool {
	return (s.rewards == nil || slices.Contains(s.rewards, profile)) && b.takes(s.id, profile)
}

// See counts the free places of live workers, unless nothing has happened since it last did.
func (b *Bench) See(workers []wire.WorkerInfo) {
	if b.fresh {
		return
	}
	b.fresh = true
	b.looks++
	b.seats = b.seats[:0]
	for i := range workers {
		w := &workers[i]
		if slots := Slots(w); slots > 0 {
			b.seats = append(b.seats, seat{w.ID, slots, max(slots-b.busy[w.ID], 0), w.Rewards})
		}
	}
}

// Slots is how many samples a worker may have.
func Slots(w *wire.WorkerInfo) int {
	switch w.State {
	case wire.WorkerReady:
		return w.Slots
	case wire.WorkerBroken: // its canary needs a sample, also when no other worker is left
		return 1
	}
	return 0
}

// Stale has the next look count anew: time has passed.
func (b *Bench) Stale() { b.fresh = false }

// Enter notes that a worker has one attempt more, Leave one less.
func (b *Bench) Enter(worker string) {
	b.fresh = false
	b.busy[worker]++
}

// Leave is the end of an Enter.
func (b *Bench) Leave(worker string) {
	b.fresh = false
	if b.busy[worker]--; b.busy[worker] <= 0 {
		delete(b.busy, worker)
	}
}

// Busy is how many attempts each worker has.
func (b *Bench) Busy() map[string]int { return b.busy }

// free is how many places are free, of all workers.
func (b *Bench) free() int {
	n := 0
	for i := range b.seats {
		n += b.seats[i].free
	}
	return n
}
