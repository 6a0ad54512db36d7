package client

import (
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Cancel cancels samples by their ids. Each sample still gets exactly one result: the outcome is
// cancelled, unless another result arrived first. The client itself cancels a sample that it has
// not sent yet, and the server cancels all other samples; while the connection is down, the server
// is informed over the next connection. Ids that are not in flight are ignored. A declared step
// still expects the samples that never arrived at the server: declare it again with a smaller
// number.
func (c *Client) Cancel(ids ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	var sent []string
	for _, id := range ids {
		f := c.calls[id]
		switch {
		case f == nil || f.taken:
		case !f.sent:
			c.takeBack(f)
		default:
			f.taken = true
			sent = append(sent, id)
		}
	}
	if c.link == nil {
		return nil // what has to be sent again is taken back then
	}
	return c.link.cancel(sent...)
}

// cancel tells the server of samples that were taken back. A connection that ends
// meanwhile is no error: the next one is told. The caller holds c.mu.
func (l *link) cancel(ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	messages, err := splitIDs(ids, func(some []string) any { return &wire.Cancel{IDs: some} })
	if err == nil {
		l.say(messages)
	}
	return err
}

// takeBack settles a sample that the server does not have, or is not to answer. The
// caller holds mu.
func (c *Client) takeBack(f *Future) {
	c.settle(f, &wire.Result{
		Type: "result", ID: f.ID, Outcome: rewards.OutcomeCancelled,
		Errors: []rewards.ComponentError{{Class: rewards.Cancelled, Message: "the client cancelled the sample"}},
	})
}

// settle gives a sample its result. The caller holds mu and has found it in calls.
func (c *Client) settle(f *Future, r *wire.Result) {
	delete(c.calls, f.ID)
	c.settled(f.step)
	if i := slices.Index(c.queue, f); i >= 0 { // answered before it was sent, or sent again
		c.queue = slices.Delete(c.queue, i, i+1)
	}
	f.res = r
	if c.results != nil {
		select {
		case c.results <- r:
		default: // nobody reads; the Future has it
		}
	}
	close(f.done)
	if len(c.queue) > 0 || c.link != nil && c.link.draining {
		c.stir()
	}
}
