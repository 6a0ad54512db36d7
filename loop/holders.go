package loop

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// This file is about the workers that have a sample: one, or another one as well where
// the first one's lease has lapsed or where it takes so long that it got a backup.

// hold notes that a worker has claimed the entry. Of the others that have claimed the
// same ticket the lease has lapsed: a ticket has one.
func (c *core) hold(e *entry, h holder) {
	for i := range e.holders {
		if o := &e.holders[i]; o.attempt == h.attempt && !o.lapsed {
			o.lapsed = true
			c.bench.Leave(o.worker)
			c.breakers.holds(o.worker, e.profile, -1)
		}
	}
	e.holders = append(e.holders, h)
	c.bench.Enter(h.worker)
	c.breakers.holds(h.worker, e.profile, 1)
	if c.backups.On() && e.unit == nil && !e.spare.sent {
		c.backups.Running(e)
	}
}

// letGo takes a holder from the entry's.
func (c *core) letGo(e *entry, i int) holder {
	h := e.holders[i]
	e.holders = slices.Delete(e.holders, i, i+1)
	if !h.lapsed {
		c.bench.Leave(h.worker)
		c.breakers.holds(h.worker, e.profile, -1)
	}
	return h
}

// dismiss takes a worker from the holders and reports whether it was one.
func (c *core) dismiss(e *entry, worker string) (holder, bool) {
	i := slices.IndexFunc(e.holders, func(h holder) bool { return h.worker == worker })
	if i < 0 {
		return holder{}, false
	}
	return c.letGo(e, i), true
}

// elsewhere reports whether another worker has the entry, or is about to.
func (e *entry) elsewhere() bool {
	return e.spare.out || slices.ContainsFunc(e.holders, func(h holder) bool { return !h.lapsed })
}

// chargedFor is what was booked for a holder's ticket.
func (e *entry) chargedFor(h holder) *time.Duration {
	if h.backup {
		return &e.spare.charged
	}
	return &e.charged
}

// watch sets the alarm of an entry that workers have: when the first of them will have
// had it for too long, or its backup's ticket has lain about for too long.
func (c *core) watch(e *entry) {
	at := e.deadline
	for _, h := range e.holders {
		if !h.lapsed {
			at = earliest(at, h.since.Add(c.cfg.ClaimTimeout))
		}
	}
	if e.spare.out {
		at = earliest(at, e.spare.published.Add(c.cfg.RepublishAfter))
	}
	c.alarms.put(&e.alarm, at)
}

// overdue decides about an entry that a worker has had for too long without an answer:
// another one is to try. A backup that nobody has claimed for so long is taken back.
func (c *core) overdue(now time.Time, e *entry, fx *effects) {
	if e.spare.out && !now.Before(e.spare.published.Add(c.cfg.RepublishAfter)) {
		fx.revoked = append(fx.revoked, c.keyOf(e, e.spare.attempt))
		c.dropSpare(e)
	}
	for i := 0; i < len(e.holders); {
		if now.Before(e.holders[i].since.Add(c.cfg.ClaimTimeout)) {
			i++
			continue
		}
		h := c.letGo(e, i)
		e.tried(h, now, string(rewards.OutcomeWorkerLost))
		e.avoid = append(e.avoid, h.worker)
		fx.revoked = append(fx.revoked, c.keyOf(e, h.attempt))
	}
	c.again(e, fx)
}
