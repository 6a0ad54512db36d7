package chat

import (
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// flightKey names a question on its way. One that is asked again joins only those
// who ask it for the same time.
type flightKey struct {
	key     key
	attempt int
}

// flight is a question on its way, shared by those who wait for it.
type flight struct {
	done   chan struct{}   // closed when reply and err are set
	ctx    context.Context //nolint:containedctx // it ends with the last of several callers, and belongs to none of them
	began  <-chan struct{} // closed when an endpoint is asked
	cancel context.CancelFunc

	waiting int // guarded by Client.mu

	reply *Reply // written before done is closed
	err   error
}

// join finds what there is for a question: a reply that is remembered, or a flight,
// which the caller has to start if first is true, and to leave in any case.
func (c *Client) join(ctx context.Context, k flightKey) (reply *Reply, f *flight, first bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, false, errClosed()
	}
	if k.attempt == 0 {
		if r, ok := c.cache.get(k.key); ok {
			c.hits.Add(1)
			return r, nil, false, nil
		}
	}
	if f, ok := c.flights[k]; ok {
		f.waiting++
		c.joined.Add(1)
		return nil, f, false, nil
	}
	f = &flight{done: make(chan struct{}), waiting: 1}
	f.ctx, f.began = rewards.Joined(ctx)
	f.ctx, f.cancel = context.WithCancel(f.ctx)
	c.flights[k] = f
	return nil, f, true, nil
}

// start sends f's question on a goroutine that belongs to the client.
func (c *Client) start(k flightKey, f *flight, q *question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // since join: Close waits for nobody new
		f.err = errClosed()
		close(f.done)
		return
	}
	c.asking.Go(func() { c.fly(k, f, q) })
}

func (c *Client) fly(k flightKey, f *flight, q *question) {
	defer close(f.done)
	defer f.cancel()
	f.err = rewards.Guard(func() (err error) { // nobody else would catch a panic here
		f.reply, err = c.ask(f.ctx, q)
		return err
	})
	if f.err != nil {
		c.forget(k, f) // whoever comes now asks again
	}
}

// leave is called once by everybody who joined, after the reply is remembered: the
// next one who asks finds the flight or what it brought, never neither.
func (c *Client) leave(k flightKey, f *flight, remember *Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if remember != nil {
		c.cache.put(k.key, remember)
	}
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		c.forgetLocked(k, f)
	}
}

func (c *Client) forget(k flightKey, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(k, f)
}

func (c *Client) forgetLocked(k flightKey, f *flight) {
	if c.flights[k] == f {
		delete(c.flights, k)
	}
}

func errClosed() error {
	return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: the chat client is closed", rewards.Unavailable))
}
