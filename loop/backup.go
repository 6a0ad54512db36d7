package loop

import (
	"maps"
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about the second ticket of a sample that runs long (dispatch.Backup).

// backup picks a sample that is to have a second ticket, and makes it; c.backupDue is then
// when there may be the next one.
func (c *core) backup(now time.Time, workers []wire.WorkerInfo) (wire.Ticket, bool) {
	c.backupDue = time.Time{}
	if !c.backups.On() || c.queue.Any(c.served) {
		return wire.Ticket{}, false
	}
	s, due := c.backups.Choose(c.view(now, workers), func(yield func(*dispatch.Run) bool) {
		for r := range maps.Values(c.runs) {
			if !yield(r.share) {
				return
			}
		}
	})
	c.backupDue = due
	if s == nil {
		return wire.Ticket{}, false
	}
	return c.sendBackup(now, entryOf(s), workers), true
}

// sendBackup makes the second ticket of a sample.
func (c *core) sendBackup(now time.Time, e *entry, workers []wire.WorkerInfo) wire.Ticket {
	c.backups.Sent(e)
	e.issued++
	e.spare = spare{attempt: e.issued, sent: true, charged: e.run.share.Charge()}
	h := c.offerTo(e, now, holder{attempt: e.issued, backup: true, pool: c.drawPool(e.profile)})
	c.metrics.backupsSent.Inc()
	c.watch(e)
	h.slow = c.backups.Slow(c.view(now, workers), e)
	return c.ticket(e, h, workers)
}

// dropSpare forgets a backup's ticket that nobody has claimed.
func (c *core) dropSpare(e *entry) {
	if e.offer != nil {
		c.turn(e, e.offer, revoked)
		e.run.share.Refund(&e.spare.charged, 0)
	}
	e.spare.attempt = 0
}

// promote makes the backup's unclaimed ticket the entry's only one: the other attempt
// has failed.
func (c *core) promote(e *entry) {
	e.attempt = e.spare.attempt
	e.charged, e.spare.charged = e.spare.charged, 0
	c.move(e, published)
	c.alarms.put(&e.alarm, earliest(e.deadline, e.offer.published.Add(c.cfg.RepublishAfter)))
}
