package loop

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about what is lost for certain: a worker whose process has ended, a queue
// that has forgotten its tickets. Leases and deadlines would mend both in time; whoever
// knows it sooner says so here.

// Lost reports that workers are gone. The gateway gives the samples that these workers have claimed
// to other workers at once. Reporting a worker that is still running does no harm: the first of two
// answers counts.
func (m *Manager) Lost(workers []string) {
	gone := make(map[string]bool, len(workers))
	for _, w := range workers {
		gone[w] = true
	}
	m.mu.Lock()
	var fx effects
	m.core.reassign(time.Now(), gone, &fx)
	m.mu.Unlock()
	m.apply(fx)
}

// Republish reports that the queue may have lost all tickets. The gateway publishes all unclaimed
// tickets again.
func (m *Manager) Republish() {
	m.mu.Lock()
	var fx effects
	m.core.reissue(time.Now(), &fx)
	m.mu.Unlock()
	m.apply(fx)
}

// reassign gives samples to others whose workers are gone.
func (c *core) reassign(now time.Time, gone map[string]bool, fx *effects) {
	for _, e := range c.all() { // it is seldom that one goes
		before := len(e.attempts)
		for i := 0; e.state == running && i < len(e.attempts); {
			if !gone[e.attempts[i].worker] {
				i++
				continue
			}
			a := c.letGo(e, i, revoked)
			e.tried(a, now, string(rewards.OutcomeWorkerLost))
			fx.revoked = append(fx.revoked, c.keyOf(e, a.number))
		}
		if e.state == running && len(e.attempts) < before {
			c.again(e, fx)
		}
	}
}

// reissue takes every ticket back that nobody has claimed.
func (c *core) reissue(now time.Time, fx *effects) {
	for _, e := range c.all() {
		switch {
		case e.state == published:
			c.takeBack(now, e, fx)
			c.metrics.republished.Inc()
		case e.state == running && e.offer != nil:
			fx.revoked = append(fx.revoked, c.keyOf(e, e.offer.number))
			c.dropBackup(e)
			c.watch(e)
		}
	}
	fx.wake = true
}

// noticeGone gives samples to others whose worker is no longer there. The lease of a ticket
// that not every worker may take would lapse for nothing: the ticket comes back as it was,
// and those who may take it may all be gone.
func (c *core) noticeGone(now time.Time, workers []wire.WorkerInfo, fx *effects) {
	known := c.known
	if len(workers) == len(known) && !slices.ContainsFunc(workers, func(w wire.WorkerInfo) bool { return !known[w.ID] }) {
		return
	}
	here := make(map[string]bool, len(workers))
	for _, w := range workers {
		here[w.ID] = true
		delete(known, w.ID)
	}
	c.known = here
	if len(known) == 0 {
		return
	}
	c.reassign(now, known, fx)
}
