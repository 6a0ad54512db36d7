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
	e, slow := c.choose(now, workers)
	if e == nil {
		return c.backup(now, workers)
	}
	c.dequeue(e)
	c.vnow = e.run.vtime
	e.charged = c.charge(e.run)
	e.state, e.published = published, now
	c.aim(e, slow)
	e.pool = c.drawPool(e.profile)
	c.ticketOut(e.pool, e.profile)
	c.alarms.set(&e.alarm, earliest(e.deadline, now.Add(c.cfg.RepublishAfter)))
	return c.ticket(e, e.attempt), true
}

// turn is the sample that is served next: of the runs with samples that may go, the first
// of the one that has had the least of its share.
func (c *core) turn() *entry {
	var best *entry
	for _, r := range c.runs {
		if r.queued == 0 || best != nil && !r.precedes(best.run) {
			continue
		}
		if e := r.next(c.room); e != nil {
			best = e
		}
	}
	return best
}

// charge books what a ticket of the run is expected to cost.
func (c *core) charge(r *run) time.Duration {
	d := r.expected()
	r.vtime += d.Seconds() / r.weight
	return d
}

// refund replaces the charge for a ticket by what it really took.
func (c *core) refund(e *entry, charged *time.Duration, took time.Duration) {
	e.run.vtime += (took - *charged).Seconds() / e.run.weight
	*charged = 0
}

// ticket describes an attempt at the entry. Workers whose breaker is open are to avoid it;
// others are named only while another one is ready.
func (c *core) ticket(e *entry, attempt int) wire.Ticket {
	t := wire.Ticket{
		ID: e.key.id, Run: e.key.run, Epoch: e.key.epoch, Step: e.step.key.step, Reward: e.profile, Gateway: c.cfg.Gateway,
		Attempt: attempt, Bytes: e.bytes, Deadline: e.deadline, Group: e.unit != nil,
	}
	pool := e.pool
	if e.spare.out && attempt == e.spare.attempt {
		pool = e.spare.pool
	}
	t.Queue = c.pools.queueOf(pool, e.profile)
	unfit := c.sent(e, &t)
	avoid := append(slices.Clip(e.avoid), unfit...)
	for _, h := range e.holders {
		avoid = append(slices.Clip(avoid), h.worker)
	}
	if len(e.slow) > 0 {
		avoid, t.Aside = append(slices.Clip(avoid), e.slow...), true
	}
	if c.pools.takes(t.Queue, e.profile, func(w posted) bool { return w.ready && !slices.Contains(avoid, w.id) }) {
		t.Avoid = slices.Clone(avoid)
		return t
	}
	t.Avoid, t.Aside = unfit, false // it comes back to one that has failed it
	return t
}

// aim notes that an entry is published, and which workers are to leave it to others.
func (c *core) aim(e *entry, slow []string) {
	e.slow = slow
	if len(slow) > 0 {
		c.bench.aimed[e] = true
	}
}

// unaim notes that an entry's ticket is no longer unclaimed.
func (c *core) unaim(e *entry) {
	e.slow = nil
	delete(c.bench.aimed, e)
}

// unpublish takes a ticket back that the engine did not accept.
func (c *core) unpublish(t wire.Ticket) {
	e := c.entries[sampleKey{t.Run, t.Epoch, t.ID}]
	switch {
	case e == nil:
	case e.spare.out && e.spare.attempt == t.Attempt && e.state == running:
		c.dropSpare(e)
	case e.state == published && e.attempt == t.Attempt:
		c.ticketIn(e.pool, e.profile)
		c.refund(e, &e.charged, 0)
		c.unaim(e)
		c.enqueue(e)
	}
}

// takeBack returns an entry whose ticket nobody has claimed to its queue.
func (c *core) takeBack(now time.Time, e *entry, fx *effects) {
	c.recall(now, e, fx)
	e.issued++
	e.attempt = e.issued
	c.enqueue(e)
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
