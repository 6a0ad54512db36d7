package loop

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// This file is about tickets: core.next takes the sample whose turn it is out of its queue
// and makes the ticket that the dispatcher publishes. The engine holds at most as many
// unclaimed ones as there are live slots, so that it has nothing to put in order.

// next picks the sample whose ticket is to be published, or none if the engine
// holds as many unclaimed tickets as there are live slots for what waits.
func (c *core) next(now time.Time, workers []wire.WorkerInfo) (wire.Ticket, bool) {
	c.survey(workers)
	if c.unclaimed >= c.pools.slots {
		return wire.Ticket{}, false
	}
	d, found := c.policy.Choose(c.view(now, workers))
	if !found {
		return c.backup(now, workers)
	}
	e := entryOf(d.Sample)
	c.move(e, published)
	e.charged = e.run.share.Charge()
	h := c.offerTo(e, now, holder{attempt: e.attempt, pool: c.drawPool(e.profile), slow: d.Aside})
	if len(d.Aside) > 0 {
		c.aimed[e] = true
	}
	c.alarms.put(&e.alarm, earliest(e.deadline, now.Add(c.cfg.RepublishAfter)))
	return c.ticket(e, h, workers), true
}

// ticket describes an attempt at the entry. Workers whose breaker is open are to avoid it;
// others are named only while another one is ready.
func (c *core) ticket(e *entry, h *holder, workers []wire.WorkerInfo) wire.Ticket {
	t := wire.Ticket{
		ID: e.key.id, Run: e.key.run, Epoch: e.key.epoch, Step: e.step.Key().Step, Reward: e.profile, Gateway: c.cfg.Gateway,
		Attempt: h.attempt, Bytes: e.bytes, Deadline: e.deadline, Group: e.unit != nil,
		Pool: h.pool,
	}
	unfit := c.sent(e, &t)
	avoid := append(slices.Clip(e.avoid), unfit...)
	for _, h := range e.holders {
		avoid = append(slices.Clip(avoid), h.worker)
	}
	if len(h.slow) > 0 {
		avoid, t.Aside = append(slices.Clip(avoid), h.slow...), true
	}
	for _, w := range workers {
		if w.State == wire.WorkerReady && w.Pool == t.Pool && !slices.Contains(avoid, w.ID) {
			t.Avoid = slices.Clone(avoid)
			return t
		}
	}
	t.Avoid, t.Aside = unfit, false // it comes back to one that has failed it
	return t
}

// unpublish takes a ticket back that the engine did not accept.
func (c *core) unpublish(t wire.Ticket) {
	e := c.entries[sampleKey{t.Run, t.Epoch, t.ID}]
	switch {
	case e == nil || e.offer == nil || e.offer.attempt != t.Attempt:
	case e.state == running:
		c.dropSpare(e)
	default:
		c.rescind(e)
		c.breakers.unsent(e)
		c.move(e, queued)
	}
}

// rescind ends the offer of a published entry.
func (c *core) rescind(e *entry) {
	c.turn(e, e.offer, revoked)
	e.run.share.Refund(&e.charged, 0)
	delete(c.aimed, e)
}

// takeBack returns an entry whose ticket nobody has claimed to its queue.
func (c *core) takeBack(now time.Time, e *entry, fx *effects) {
	c.recall(now, e, fx)
	e.issued++
	e.attempt = e.issued
	c.move(e, queued)
}

// ticketOut notes a ticket in the engine that nobody has claimed, ticketIn that there is
// one less.
func (c *core) ticketOut(pool, profile string) {
	c.unclaimed++
	c.pools.out[pool]++
	c.pools.outOf[poolProfile{pool, profile}]++
}

func (c *core) ticketIn(pool, profile string) {
	c.unclaimed--
	if c.pools.out[pool]--; c.pools.out[pool] == 0 {
		delete(c.pools.out, pool)
	}
	of := poolProfile{pool, profile}
	if c.pools.outOf[of]--; c.pools.outOf[of] == 0 {
		delete(c.pools.outOf, of)
	}
}
