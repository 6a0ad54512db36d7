package loop

import (
	"slices"

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
}

// pool is workers that serve the same rewards.
type pool struct {
	name  string
	slots int
	// rewards are what all of its workers serve; nil: anything.
	rewards []string
	workers []string
}

func (p *pool) serves(profile string) bool {
	return p.rewards == nil || slices.Contains(p.rewards, profile)
}

// survey counts the slots of live workers, unless the list is the one it knows.
func (p *pools) survey(workers []wire.WorkerInfo) {
	if p.n == len(workers) && (p.n == 0 || p.seen == &workers[0]) {
		return
	}
	p.n, p.seen, p.slots, p.list = len(workers), nil, 0, p.list[:0]
	if p.n > 0 {
		p.seen = &workers[0]
	}
	for i := range workers {
		w := &workers[i]
		slots := slotsOf(w)
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
		s.workers = append(s.workers, w.ID)
		if s.rewards != nil && w.Rewards != nil && !slices.Equal(s.rewards, w.Rewards) {
			s.rewards = slices.DeleteFunc(slices.Clone(s.rewards), func(r string) bool { return !slices.Contains(w.Rewards, r) })
		}
	}
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

// room reports whether a ticket for the profile may be published.
func (p *pools) room(profile string) bool {
	for i := range p.list {
		if s := &p.list[i]; p.out[s.name] < s.slots && s.serves(profile) {
			return true
		}
	}
	return false
}

// served reports whether a live worker serves the profile.
func (p *pools) served(profile string) bool {
	return slices.ContainsFunc(p.list, func(s pool) bool { return s.serves(profile) })
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
		if p.out[s.name] >= s.slots || !s.serves(profile) {
			continue
		}
		if len(p.list) == 1 {
			return s.name
		}
		free := max(s.slots-c.busyIn(s)-p.out[s.name], 0)
		total += free
		switch {
		case best == nil, free > 0 && c.bench.blind.rng.IntN(total) < free:
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
	for _, id := range s.workers {
		n += c.bench.busy[id]
	}
	return n
}
