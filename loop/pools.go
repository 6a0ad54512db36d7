package loop

import (
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/wire"
)

// This file is about workers that do not all serve the same profiles. Those that do are a
// pool: at most as many unclaimed tickets as it has live slots are out for it, so that samples
// nobody there can score keep no others waiting. A ticket lies in the queue of its profile, and
// a worker of another pool that serves the profile may take it, too.

// pools are the live workers by what they serve.
type pools struct {
	last  *wire.WorkerInfo // of the list that was looked at last, which is replaced and never changed
	seen  []sighting       // of the list that this is of
	list  []pool
	slots int            // of all
	out   map[string]int // unclaimed tickets by pool
	// outOf are those of one profile: of a profile that some workers do not get, a pool
	// holds no more than the others have slots, or its tickets would keep those of other
	// profiles out.
	outOf map[poolProfile]int
}

type poolProfile struct{ pool, profile string }

// sighting is a worker as it was seen: only its counters move while its rev stays.
type sighting struct {
	id  string
	rev uint64
}

// pool is workers that serve the same profiles from the same queues.
type pool struct {
	name    string
	slots   int
	queues  map[string]string // by profile; nil: they serve anything, from the queue of its name
	workers []posted
}

// posted is a worker of a pool.
type posted struct {
	id    string
	slots int
	ready bool
}

func (p *pool) serves(profile string) bool {
	return p.queues == nil || p.queues[profile] != ""
}

// queue is where its workers take the tickets of a profile that they serve.
func (p *pool) queue(profile string) string {
	if p.queues == nil {
		return wire.QueueName(profile, "")
	}
	return p.queues[profile]
}

// survey counts the slots of live workers, and reports whether the list is another one
// than it knows.
func (p *pools) survey(workers []wire.WorkerInfo) (fresh bool) {
	if p.same(workers) {
		return false
	}
	p.last, p.slots, p.list, p.seen = nil, 0, p.list[:0], p.seen[:0]
	if len(workers) > 0 {
		p.last = &workers[0]
	}
	for i := range workers {
		w := &workers[i]
		p.seen = append(p.seen, sighting{w.ID, w.Rev})
		slots := slotsOf(w)
		if slots == 0 {
			continue
		}
		p.slots += slots
		name := poolOf(w)
		at := slices.IndexFunc(p.list, func(s pool) bool { return s.name == name })
		if at < 0 {
			p.list = append(p.list, pool{name: name, queues: queuesOf(w)})
			at = len(p.list) - 1
		}
		s := &p.list[at]
		s.slots += slots
		s.workers = append(s.workers, posted{w.ID, slots, w.State == wire.WorkerReady})
	}
	return true
}

// same reports whether the workers are those of the last survey, but for their counters.
func (p *pools) same(workers []wire.WorkerInfo) bool {
	if len(workers) != len(p.seen) {
		return false
	}
	if len(workers) == 0 || p.last == &workers[0] {
		return true
	}
	for i := range workers {
		if w := &workers[i]; w.Rev == 0 || p.seen[i] != (sighting{w.ID, w.Rev}) {
			return false
		}
	}
	return true
}

// poolOf names the workers that serve what this one does.
func poolOf(w *wire.WorkerInfo) string {
	var b strings.Builder
	for _, p := range w.Profiles {
		b.WriteString(p.Name)
		b.WriteByte(0)
		b.WriteString(p.Queue)
		b.WriteByte(0)
	}
	return b.String()
}

// queuesOf are the queues of a worker's profiles; nil of one that names none.
func queuesOf(w *wire.WorkerInfo) map[string]string {
	if len(w.Profiles) == 0 {
		return nil
	}
	queues := make(map[string]string, len(w.Profiles))
	for _, p := range w.Profiles {
		queues[p.Name] = p.Queue
	}
	return queues
}

// slotsOf is how many samples a worker may have.
func slotsOf(w *wire.WorkerInfo) int {
	switch w.State {
	case wire.WorkerReady:
		return w.Slots
	case wire.WorkerBroken: // its canary needs a sample, also when no other worker is left
		return 1
	}
	return 0
}

// takes reports whether any worker for which that holds takes the profile's tickets from the
// queue.
func (p *pools) takes(queue, profile string, holds func(posted) bool) bool {
	for i := range p.list {
		if s := &p.list[i]; s.serves(profile) && s.queue(profile) == queue && slices.ContainsFunc(s.workers, holds) {
			return true
		}
	}
	return false
}

// queueOf is where the tickets of a profile for a pool go.
func (p *pools) queueOf(name, profile string) string {
	for i := range p.list {
		if s := &p.list[i]; s.name == name && s.serves(profile) {
			return s.queue(profile)
		}
	}
	return wire.QueueName(profile, "") // its workers have gone
}

// serving are the live workers that serve the profile, whether or not they get it now.
func (p *pools) serving(profile string) (workers []string) {
	for i := range p.list {
		if s := &p.list[i]; s.serves(profile) {
			for _, w := range s.workers {
				workers = append(workers, w.id)
			}
		}
	}
	return workers
}

// slotsFor is how many samples of the profile a pool's workers may have: those whose
// breaker for it is open have none, one that is being tried has one.
func (c *core) slotsFor(s *pool, profile string) int {
	switch {
	case !s.serves(profile):
		return 0
	case len(c.breakers.shut) == 0 || c.breakers.records[profile] == nil:
		return s.slots
	}
	n := 0
	for _, w := range s.workers {
		switch r := c.breakers.records[profile][w.id]; {
		case r == nil || r.state == closed:
			n += w.slots
		case r.takes():
			n++
		}
	}
	return n
}

// room reports whether a ticket for the profile may be published to a pool.
func (c *core) roomIn(s *pool, profile string) bool {
	return c.pools.out[s.name] < s.slots && c.pools.outOf[poolProfile{s.name, profile}] < c.slotsFor(s, profile)
}

// room reports whether a ticket for the profile may be published.
func (c *core) room(profile string) bool {
	for i := range c.pools.list {
		if c.roomIn(&c.pools.list[i], profile) {
			return true
		}
	}
	return false
}

// served reports whether a live worker takes samples of the profile.
func (c *core) served(profile string) bool {
	for i := range c.pools.list {
		if c.slotsFor(&c.pools.list[i], profile) > 0 {
			return true
		}
	}
	return false
}

// takenIn reports whether a worker of that pool takes samples of the profile.
func (c *core) takenIn(name, profile string) bool {
	for i := range c.pools.list {
		if s := &c.pools.list[i]; s.name == name {
			return c.slotsFor(s, profile) > 0
		}
	}
	return false
}

// live reports whether a pool has a worker.
func (p *pools) live(name string) bool {
	return slices.ContainsFunc(p.list, func(s pool) bool { return s.name == name })
}

// drawPool draws where a ticket for the profile goes: to a pool that serves it and has room,
// each with the share that its free slots are of all.
func (c *core) drawPool(profile string) string {
	p := &c.pools
	var best *pool
	total := 0
	for i := range p.list {
		s := &p.list[i]
		if !c.roomIn(s, profile) {
			continue
		}
		if len(p.list) == 1 {
			return s.name
		}
		free := max(s.slots-c.busyIn(s)-p.out[s.name], 0)
		total += free
		switch {
		case best == nil, free > 0 && c.bench.rng.IntN(total) < free:
			best = s
		}
	}
	if best == nil {
		return ""
	}
	return best.name
}

// busyIn is how many attempts a pool's workers have, by this gateway's own count.
func (c *core) busyIn(s *pool) int {
	n := 0
	for _, w := range s.workers {
		n += c.bench.busy[w.id]
	}
	return n
}
