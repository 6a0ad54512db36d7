package loop

import (
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// This file is about backup requests: near the end of a step, when slots are idle anyway,
// a sample that runs far longer than samples do gets a second ticket. A worker that hangs,
// or a server's hiccup, then costs the step a second service time instead of its own. The
// first result wins; core.recall takes the other attempt back.

// minObserved is how many results a run must have before it is known what is long.
const minObserved = 8

// backup picks a sample that is to have a second ticket, or none; then bench.due is when
// there may be one. It looks only when nothing is queued and a slot is idle, and then at
// the oldest of each step's running samples, so that its cost is the number of steps with
// samples in flight plus that of the samples which are overdue: 5,120 that run cost
// nothing.
func (c *core) backup(now time.Time, workers []wire.WorkerInfo) (wire.Ticket, bool) {
	c.bench.due = time.Time{}
	if c.cfg.Dispatch.BackupAfter == 0 || c.serveable() {
		return wire.Ticket{}, false
	}
	c.bench.see(workers)
	free := 0
	for _, s := range c.bench.seats {
		free += s.free
	}
	if free <= c.unclaimed {
		return wire.Ticket{}, false
	}
	var best *entry
	var bestDue time.Time
	for _, r := range c.runs {
		patience := r.patience(c.cfg.Dispatch.BackupAfter)
		for _, l := range r.lanes {
			if patience == 0 || !l.step.whole() || l.backups >= l.mayHave(c.cfg.Dispatch.BackupShare) {
				continue
			}
			if e, due := c.oldest(now, l, patience); e != nil && (best == nil || due.Before(bestDue) || due.Equal(bestDue) && e.order < best.order) {
				best, bestDue = e, due
			}
		}
	}
	if best == nil {
		return wire.Ticket{}, false
	}
	return c.sendBackup(now, best, workers), true
}

// patience is how long a sample of the run may run: so many times its usual service time.
func (r *run) patience(after float64) time.Duration {
	if r.pace.usual.n < minObserved {
		return 0
	}
	return seconds(after * r.pace.usual.value)
}

// mayHave is how many backups a step may have.
func (l *lane) mayHave(share float64) int {
	return max(1, int(math.Floor(share*float64(max(l.step.expected, l.step.arrived)))))
}

// overlooked bounds the overdue samples that are looked at for one whose worker is not
// the only idle one.
const overlooked = 64

// oldest returns the sample of a lane that has run too long for longest and that another
// idle worker could take; if none has, it notes when one will have.
func (c *core) oldest(now time.Time, l *lane, patience time.Duration) (*entry, time.Time) {
	seen := 0
	for el := l.running.Front(); el != nil && seen < overlooked; el = el.Next() {
		e, _ := el.Value.(*entry)
		due := e.holders[len(e.holders)-1].since.Add(patience)
		if due.After(now) {
			if c.bench.due.IsZero() || due.Before(c.bench.due) {
				c.bench.due = due
			}
			return nil, time.Time{}
		}
		if c.idleFor(e) && c.room(e.profile) {
			return e, due
		}
		seen++
	}
	return nil, time.Time{}
}

// idleFor reports whether a worker is idle that neither has the entry nor has failed it
// nor is known to be slow.
func (c *core) idleFor(e *entry) bool {
	return slices.ContainsFunc(c.bench.seats, func(s seat) bool {
		return s.free > 0 && s.serves(e.profile) && !slices.Contains(e.avoid, s.id) && !e.heldBy(s.id) &&
			!slices.Contains(c.slowFor(e), s.id)
	})
}

// slowFor names the workers that are too slow to help with a sample that is late already.
func (c *core) slowFor(e *entry) []string {
	if c.cfg.Dispatch.Policy != SpeedWeighted {
		return nil
	}
	var out []string
	for _, s := range c.fieldOf(e.run).seats {
		if s.slow {
			out = append(out, s.id)
		}
	}
	return out
}

// sendBackup makes the second ticket of a sample.
func (c *core) sendBackup(now time.Time, e *entry, workers []wire.WorkerInfo) wire.Ticket {
	l := e.run.laneOf(e.step)
	l.stop(e)
	l.backups++
	e.issued++
	e.spare = spare{attempt: e.issued, sent: true, out: true, pool: c.drawPool(e.profile), published: now, charged: c.charge(e.run)}
	c.ticketOut(e.spare.pool, e.profile)
	c.metrics.backupsSent.Inc()
	c.watch(e)
	e.slow = c.slowFor(e)
	t := c.ticket(e, e.spare.attempt)
	e.slow = nil
	return t
}

// dropSpare forgets a backup's ticket that nobody has claimed.
func (c *core) dropSpare(e *entry) {
	if e.spare.out {
		c.ticketIn(e.spare.pool, e.profile)
		c.refund(e, &e.spare.charged, 0)
	}
	e.spare.out, e.spare.attempt = false, 0
}

// promote makes the backup's unclaimed ticket the entry's only one: the other attempt
// has failed.
func (c *core) promote(e *entry) {
	e.state, e.attempt, e.published, e.pool = published, e.spare.attempt, e.spare.published, e.spare.pool
	e.charged, e.spare.charged = e.spare.charged, 0
	e.spare.out = false
	c.alarms.set(&e.alarm, earliest(e.deadline, e.published.Add(c.cfg.RepublishAfter)))
}
