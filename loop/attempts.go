package loop

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/rewards"
)

// This file is about the workers that have a sample: one, or another one as well where
// the first one's lease has lapsed or where it takes so long that it got a backup.

// hold notes that a worker has claimed the entry. Of the others that have claimed the
// same ticket the lease has lapsed: a ticket has one.
func (c *core) hold(e *entry, number int, backup bool, worker string, now time.Time) {
	for _, o := range e.attempts {
		if o.number == number && o.state == claimed {
			c.turn(e, o, lapsed)
		}
	}
	a := e.offer
	if a == nil || a.number != number {
		a = &attempt{number: number}
	}
	a.backup, a.worker, a.since = backup, worker, now
	if !backup {
		e.trace.waited(now)
	}
	c.turn(e, a, claimed)
	c.move(e, running)
	if e.back != nil {
		e.back.waits = ""
	}
	if c.cfg.Dispatch.BackupAfter > 0 && e.unit == nil && !e.backup.sent {
		dispatch.Running(e)
	}
}

// dismiss takes away the attempt of a worker that has its sample once more, and reports whether there was one.
func (c *core) dismiss(now time.Time, e *entry, worker string) bool {
	i := slices.IndexFunc(e.attempts, func(a *attempt) bool { return a.worker == worker })
	if i < 0 {
		return false
	}
	a := c.letGo(e, i, revoked)
	e.trace.tried(&a, now, string(rewards.OutcomeCancelled), nil)
	return true
}

// busy reports whether a worker has the entry, and its lease has not lapsed.
func (e *entry) busy() bool {
	return slices.ContainsFunc(e.attempts, func(a *attempt) bool { return a.state == claimed })
}

// elsewhere reports whether another worker has the running entry, or is about to.
func (e *entry) elsewhere() bool { return e.offer != nil || e.busy() }

// chargedFor is what was booked for the ticket of an attempt.
func (e *entry) chargedFor(a attempt) *time.Duration {
	if a.backup {
		return &e.backup.charged
	}
	return &e.charged
}

// watch sets the alarm of an entry that workers have: when the first of them will have
// had it for too long, or its backup's ticket has lain about for too long.
func (c *core) watch(e *entry) {
	at := e.deadline
	for _, a := range e.attempts {
		if a.state == claimed {
			at = earliest(at, a.since.Add(c.cfg.ClaimTimeout))
		}
	}
	if e.offer != nil {
		at = earliest(at, e.offer.published.Add(c.cfg.RepublishAfter))
	}
	c.alarms.put(&e.alarm, at)
}

// overdue decides about an entry that a worker has had for too long without an answer:
// another one is to try. A backup that nobody has claimed for so long is taken back.
func (c *core) overdue(now time.Time, e *entry, fx *effects) {
	if e.offer != nil && !now.Before(e.offer.published.Add(c.cfg.RepublishAfter)) {
		fx.revoked = append(fx.revoked, c.keyOf(e, e.offer.number))
		c.dropBackup(e)
	}
	for i := 0; i < len(e.attempts); {
		if now.Before(e.attempts[i].since.Add(c.cfg.ClaimTimeout)) {
			i++
			continue
		}
		a := c.letGo(e, i, revoked)
		e.tried(a, now, string(rewards.OutcomeWorkerLost))
		e.avoid = append(e.avoid, a.worker)
		fx.revoked = append(fx.revoked, c.keyOf(e, a.number))
	}
	c.again(e, fx)
}
