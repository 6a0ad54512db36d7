package loop

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is what the gateway and package dispatch tell each other.

var (
	_ dispatch.Sample = (*entry)(nil)
	_ dispatch.Step   = (*step.Step)(nil)
)

// entryOf is the entry behind a sample.
func entryOf(s dispatch.Sample) *entry {
	e, _ := s.(*entry)
	return e
}

// Item implements dispatch.Sample.
func (e *entry) Item() *dispatch.Item { return &e.item }

// Avoids implements dispatch.Sample.
func (e *entry) Avoids(worker string) bool { return slices.Contains(e.avoid, worker) }

// HeldBy implements dispatch.Sample.
func (e *entry) HeldBy(worker string) bool {
	return slices.ContainsFunc(e.attempts, func(a *attempt) bool { return a.worker == worker })
}

// Tried implements dispatch.Sample.
func (e *entry) Tried() int { return len(e.avoid) + len(e.attempts) }

// Published implements dispatch.Sample.
func (e *entry) Published() time.Time { return e.offer.published }

// Claimed implements dispatch.Sample.
func (e *entry) Claimed() time.Time { return e.attempts[len(e.attempts)-1].since }

// share is the entry's run in its profile: the part of the places that is the run's.
func (e *entry) share() *dispatch.Run { return e.item.Run() }

// itemOf makes what dispatch keeps of an entry.
func (c *core) itemOf(e *entry) dispatch.Item {
	p := c.board.Profile(e.profile)
	return dispatch.NewItem(p, p.Run(e.run.name, e.run.weight), e.step, e.order, e.arrived)
}

// reconsider looks again at what was chosen, now that time has passed: at workers that
// have gone, and at tickets that wait for some workers only.
func (c *core) reconsider(now time.Time, workers []wire.WorkerInfo, fx *effects) {
	if c.cfg.Dispatch.Policy == dispatch.Random {
		return
	}
	c.noticeGone(now, workers, fx)
	for _, s := range c.board.Reconsider(now) {
		c.takeBack(now, entryOf(s), fx)
	}
}

// sendBackup makes the second ticket of a sample, that these workers are too slow for.
func (c *core) sendBackup(now time.Time, e *entry, slow []string) wire.Ticket {
	dispatch.Sent(e)
	e.issued++
	e.backup = backup{attempt: e.issued, sent: true, charged: e.share().Charge()}
	a := c.offerTo(e, now, attempt{number: e.issued, backup: true, slow: slow})
	c.metrics.backupsSent.Inc()
	c.watch(e)
	return c.ticket(e, a)
}

// dropBackup forgets a backup's ticket that nobody has claimed.
func (c *core) dropBackup(e *entry) {
	if e.offer != nil {
		c.turn(e, e.offer, revoked)
		e.share().Refund(&e.backup.charged, 0)
	}
	e.backup.attempt = 0
}

// promote makes the backup's unclaimed ticket the entry's only one: the other attempt
// has failed.
func (c *core) promote(e *entry) {
	e.attempt = e.backup.attempt
	e.charged, e.backup.charged = e.backup.charged, 0
	c.move(e, published)
	c.alarms.put(&e.alarm, earliest(e.deadline, e.offer.published.Add(c.cfg.RepublishAfter)))
}
