package loop

import (
	"container/list"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// This file is RandomBlind: a worker is drawn for every sample when it comes, among all
// that live, and the sample waits for that one whatever the others do. Samples stay in
// their run's queue until their worker can have no more than its slots of unclaimed
// tickets; a worker's samples go to it in the order in which they were drawn, whatever
// the weights of their runs. When a worker is gone, what waited for it is drawn anew, and
// so is what it had begun: its tickets' leases may lapse, but nobody else could take them.

// blind is who waits for whom.
type blind struct {
	drawing []*entry              // queued, and to be drawn for
	desks   map[string]*list.List // queued, by the worker they wait for
	out     map[string]int        // unclaimed tickets by the worker they are for
	rng     *rand.Rand            // of the gateway's name, so that a history can be repeated
}

func newBlind(gateway string) blind {
	h := fnv.New64a()
	_, _ = h.Write([]byte(gateway))                        // never fails
	return blind{rng: rand.New(rand.NewPCG(h.Sum64(), 0)), //nolint:gosec // a draw among workers needs no secret randomness
		desks: map[string]*list.List{}, out: map[string]int{}}
}

// leave takes an entry from those who wait for its worker; the worker stays its own.
func (b *blind) leave(e *entry) {
	if e.desk == nil {
		return
	}
	b.desks[e.to].Remove(e.desk)
	e.desk = nil
}

// draw draws a worker for every entry that has none. With nobody ready it waits.
func (c *core) draw() {
	b := &c.bench.blind
	live := slices.DeleteFunc(slices.Clone(c.bench.seats), func(s seat) bool { return !s.ready })
	if len(live) == 0 {
		live = c.bench.seats // whose canaries need samples
	}
	if len(live) == 0 {
		return
	}
	var waiting []*entry // for workers that serve their reward
	for _, e := range b.drawing {
		if e.state != queued || e.desk != nil {
			continue
		}
		able := slices.DeleteFunc(slices.Clone(live), func(s seat) bool { return !s.serves(e.profile) })
		if len(able) == 0 {
			waiting = append(waiting, e)
			continue
		}
		others := slices.DeleteFunc(slices.Clone(able), func(s seat) bool { return slices.Contains(e.avoid, s.id) })
		if len(others) == 0 {
			others = able
		}
		e.to = others[b.rng.IntN(len(others))].id
		d := b.desks[e.to]
		if d == nil {
			d = list.New()
			b.desks[e.to] = d
		}
		e.desk = d.PushBack(e)
	}
	b.drawing = append(b.drawing[:0], waiting...)
}

// chooseBlind picks the oldest of the samples that are first for a worker with room for
// another ticket.
func (c *core) chooseBlind(workers []wire.WorkerInfo) *entry {
	c.bench.see(workers)
	c.draw()
	var best *entry
	for _, s := range c.bench.seats {
		d := c.bench.blind.desks[s.id]
		if d == nil || d.Len() == 0 || c.bench.blind.out[s.id] >= s.slots {
			continue
		}
		if e, _ := d.Front().Value.(*entry); best == nil || e.order < best.order {
			best = e
		}
	}
	return best
}

// redraw looks for workers that have gone, or that take nothing more.
func (c *core) redraw(now time.Time, workers []wire.WorkerInfo, fx *effects) {
	c.bench.see(workers)
	b := &c.bench.blind
	ready := map[string]bool{}
	for _, s := range c.bench.seats {
		ready[s.id] = s.ready
	}
	if len(b.drawing) > 2*len(c.entries)+publishBatch { // nobody is there, and samples expire
		b.drawing = slices.DeleteFunc(b.drawing, func(e *entry) bool { return e.state != queued || e.desk != nil })
	}
	if !slices.ContainsFunc(c.bench.seats, func(s seat) bool { return s.ready }) {
		return // it can wait for whom it waits for
	}
	for id, d := range b.desks {
		if ready[id] {
			continue
		}
		for d.Len() > 0 {
			e, _ := d.Front().Value.(*entry)
			b.leave(e)
			e.to = ""
			b.drawing = append(b.drawing, e)
		}
		delete(b.desks, id)
	}
	for e := range c.bench.aimed {
		if !ready[e.to] {
			c.takeBack(now, e, fx)
		}
	}
}
