package loop

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// This file is about tickets: core.next takes the sample whose turn it is out of its queue
// and makes the ticket that the dispatcher publishes. A profile's queue of tickets holds a
// few more unclaimed ones than there are free places, so that it has nothing to put in order.

// next picks the sample whose ticket is to be published, or none where no profile's queue of
// tickets has room for what waits.
func (c *core) next(now time.Time, workers []wire.WorkerInfo) (wire.Ticket, bool) {
	c.survey(workers)
	d, found, due := c.board.Next(now)
	c.backupDue = due
	if !found {
		return wire.Ticket{}, false
	}
	e := entryOf(d.Sample)
	if d.Backup {
		return c.sendBackup(now, e, d.Aside), true
	}
	c.move(e, published)
	e.charged = e.share().Charge()
	a := c.offerTo(e, now, attempt{number: e.attempt, slow: d.Aside})
	c.alarms.put(&e.alarm, earliest(e.deadline, now.Add(c.cfg.RepublishAfter)))
	return c.ticket(e, a), true
}

// ticket describes an attempt at the entry. Workers whose breaker is open are to avoid it;
// others are named only while another one takes samples of the profile.
func (c *core) ticket(e *entry, a *attempt) wire.Ticket {
	t := wire.Ticket{
		ID: e.key.id, Run: e.key.run, Epoch: e.key.epoch, Step: e.step.Key().Step, Reward: e.profile, Gateway: c.cfg.Gateway,
		Attempt: a.number, Bytes: e.bytes, Deadline: e.deadline, Group: e.unit != nil,
		Queue: e.item.Profile().Queue(), Weight: e.run.weight,
		Traceparent: e.trace.traceparent(),
	}
	unfit := c.sent(e, &t)
	avoid := append(slices.Clip(e.avoid), unfit...)
	avoid = append(avoid, e.gave().returned...)
	for _, a := range e.attempts {
		avoid = append(slices.Clip(avoid), a.worker)
	}
	if len(a.slow) > 0 {
		avoid, t.Aside = append(slices.Clip(avoid), a.slow...), true
	}
	if len(avoid) > 0 && e.item.Profile().Fit(avoid) {
		t.Avoid = slices.Clone(avoid)
		return t
	}
	t.Avoid, t.Aside = unfit, false // it comes back to one that has failed it
	return t
}

// unpublish takes a ticket back that the queue did not accept.
func (c *core) unpublish(t wire.Ticket) {
	e := c.entries[sampleKey{t.Run, t.Epoch, t.ID}]
	switch {
	case e == nil || e.offer == nil || e.offer.number != t.Attempt:
	case e.state == running:
		c.dropBackup(e)
	default:
		c.rescind(e)
		c.breakers.unsent(e)
		c.move(e, queued)
	}
}

// rescind ends the offer of a published entry.
func (c *core) rescind(e *entry) {
	c.turn(e, e.offer, revoked)
	e.share().Refund(&e.charged, 0)
}

// Requeue changes the ticket queues of profiles whose configuration has changed; queues maps the
// names of the profiles to the new queues. Requeue calls move, which must switch the workers of
// this process to the new queues before it returns. Then all unclaimed tickets of these profiles
// are published again; claimed samples are finished with the old configuration. If move fails, the
// profiles keep their queues, and Requeue returns the error of move.
func (m *Manager) Requeue(queues map[string]string, move func() error) error {
	m.mu.Lock()
	m.core.board.Expect(queues)
	m.mu.Unlock()
	err := move()
	if err != nil {
		queues = nil
	}
	workers, now := m.presence.Workers(), time.Now()
	m.mu.Lock()
	fx := m.core.requeue(now, queues, workers)
	m.mu.Unlock()
	m.apply(fx)
	m.wakeUp()
	return err
}

func (c *core) requeue(now time.Time, queues map[string]string, workers []wire.WorkerInfo) (fx effects) {
	renamed := c.board.Rename(queues)
	c.survey(workers)
	for _, e := range c.all() {
		switch {
		case !renamed[e.item.Profile()] || e.offer == nil:
		case e.state == published:
			c.takeBack(now, e, &fx)
		default: // its backup
			fx.revoked = append(fx.revoked, c.keyOf(e, e.offer.number))
			c.dropBackup(e)
		}
	}
	return fx
}

// takeBack returns an entry whose ticket nobody has claimed to its queue.
func (c *core) takeBack(now time.Time, e *entry, fx *effects) {
	c.recall(now, e, fx)
	e.issued++
	e.attempt = e.issued
	c.move(e, queued)
}
