package loop

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// This file is about who gets the next sample. The order of the samples is the same
// under every policy: runs share slot time by weight, within a run the step that closes
// first goes first. What differs is which worker may have the one that is next, and so
// whether it waits for another one: Random's is whoever is free first, SpeedWeighted's is in
// speed.go. A sample that runs long may get a second one (backup.go).

// bench is who works on what, by the gateway's own count: workers announce themselves
// once a second only.
type bench struct {
	busy  map[string]int // attempts by worker, less those whose lease has lapsed
	fresh bool           // what follows is of now
	seats []seat         // live workers, by id
	field map[*run]*field
	aimed map[*entry]bool // published, and not for every worker
	known map[string]bool // workers of the last look, in any state
	// rng draws among pools; it is of the gateway's name, so that a history can be repeated.
	rng *rand.Rand
	// due is when the next sample has run so long that it gets a backup; zero: none.
	due      time.Time
	breakers *breakers
}

// seat is a live worker and its slots.
type seat struct {
	id          string
	slots, free int
	rewards     []string // nil: anything
	breakers    *breakers
}

// serves reports whether the worker may have a sample of the profile now.
func (s *seat) serves(profile string) bool {
	return (s.rewards == nil || slices.Contains(s.rewards, profile)) && s.breakers.takes(s.id, profile)
}

func newBench(gateway string, breakers *breakers) bench {
	h := fnv.New64a()
	_, _ = h.Write([]byte(gateway)) // never fails
	return bench{
		breakers: breakers, busy: map[string]int{}, field: map[*run]*field{}, aimed: map[*entry]bool{}, known: map[string]bool{},
		rng: rand.New(rand.NewPCG(h.Sum64(), 0)), //nolint:gosec // a draw among pools needs no secret randomness
	}
}

// see counts the free slots of live workers.
func (b *bench) see(workers []wire.WorkerInfo) {
	if b.fresh {
		return
	}
	b.fresh = true
	b.seats = b.seats[:0]
	clear(b.field)
	for i := range workers {
		w := &workers[i]
		if slots := slotsOf(w); slots > 0 {
			b.seats = append(b.seats, seat{w.ID, slots, max(slots-b.busy[w.ID], 0), w.Rewards, b.breakers})
		}
	}
}

func (b *bench) leave(worker string) {
	b.fresh = false
	if b.busy[worker]--; b.busy[worker] <= 0 {
		delete(b.busy, worker)
	}
}

// choose picks the sample whose ticket is next, and the workers that are to leave it to
// faster ones.
func (c *core) choose(now time.Time, workers []wire.WorkerInfo) (*entry, []string) {
	if c.cfg.Dispatch.Policy == SpeedWeighted {
		return c.chooseBySpeed(now, workers)
	}
	return c.turn(), nil
}

// reconsider looks again at what was chosen, now that time has passed: at workers that
// have gone, and at tickets that wait for some workers only.
func (c *core) reconsider(now time.Time, workers []wire.WorkerInfo, fx *effects) {
	if c.cfg.Dispatch.Policy == SpeedWeighted {
		c.noticeGone(now, workers, fx)
		c.rateAgain(now, workers, fx)
	}
}
