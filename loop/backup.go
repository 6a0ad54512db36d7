package loop

import (
	"time"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about the second ticket of a sample that runs long (dispatch.Decision).

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
