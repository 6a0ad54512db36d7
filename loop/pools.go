package loop

import (
	"slices"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about workers that do not all serve the same rewards. Those that do are a
// pool, with slots of its own in the engine: it holds at most as many unclaimed tickets as
// it has live slots, so that samples nobody there can score keep no others waiting.

// pools are the live workers by what they serve.
type pools struct {
	seen  *wire.WorkerInfo // of the list that this is of, which is replaced and never changed
	n     int
	list  []pool
	slots int            // of all
	out   map[string]int // unclaimed tickets by pool
	// outOf are those of one profile: of a profile that some workers do not get, a pool
	// holds no more than the others have slots, or its tickets would keep those of other
	// profiles out.
	outOf map[poolProfile]int
}

type poolProfile struct{ pool, profile string }

// pool is workers that serve the same rewards.
type pool struct {
	name  string
	slots int
	// rewards are what all of its workers serve; nil: anything.
	rewards []string
	workers []posted
}

// posted is a worker of a pool.
type posted struct {
	id    string
	slots int
}

func (p *pool) serves(profile string) bool {
	return p.rewards == nil || slices.Contains(p.rewards, profile)
}

// survey counts the slots of live workers, and reports whether the list is another one
// than it knows.
func (p *pools) survey(workers []wire.WorkerInfo) (fresh bool) {
	if p.n == len(workers) && (p.n == 0 || p.seen == &workers[0]) {
		return false
	}
	p.n, p.seen, p.slots, p.list = len(workers), nil, 0, p.list[:0]
	if p.n > 0 {
		p.seen = &workers[0]
	}
	for i := range workers {
		w := &workers[i]
		slots := dispatch.Slots(w)
		if slots == 0 {
			continue
		}
		p.slots += slots
		at := slices.IndexFunc(p.list, func(s pool) bool { return s.name == w.Pool })
		if at < 0 {
			p.list = append(p.list, pool{name: w.Pool, rewards: w.Rewards})
			at = len(p.list) - 1
		}
		s := &p.list[at]
		s.slots += slots
		s.workers = append(s.workers, posted{w.ID, slots})
		if s.rewards != nil && w.Rewards != nil && !slices.Equal(s.rewards, w.Rewards) {
			s.rewards = slices.DeleteFunc(slices.Clone(s.rewards), func(r string) bool { return !slices.Contains(w.Rewards, r) })
		}
	}
	return true
}

// has reports whether a worker belongs to the pool of that name.
func (p *pools) has(name, worker string) bool {
	return slices.ContainsFunc(p.list, func(s pool) bool {
		return s.name == name && slices.ContainsFunc(s.workers, func(w posted) bool { return w.id == worker })
	})
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
		case best == nil, free > 0 && c.rng.IntN(total) < free:
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
		n += c.bench.Busy()[w.id]
	}
	return n
}
