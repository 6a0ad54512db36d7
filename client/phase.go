package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// ErrPhase means that a phase has begun but the server did not complete everything that it requires.
var ErrPhase = errors.New("the server did not complete the change of phase")

// phase is the latest that was told. Guarded by Client.mu but for done.
type phase struct {
	req  uint64
	name string
	done chan struct{}
	why  string // set before done is closed
}

// Phase announces that the run has begun a phase of its training, wire.PhaseRollout or wire.PhaseReward, to a
// server that shares the memory of its GPUs with the trainer (pool.colocated). Phase waits until the server has
// completed the change: after PhaseRollout the memory is free. The client repeats the announcement over every
// new connection. The error is ErrPhase with what was not completed, ErrClosed, ErrLost, or the cause of ctx.
func (c *Client) Phase(ctx context.Context, name string) error {
	if name != wire.PhaseRollout && name != wire.PhaseReward {
		return fmt.Errorf("client: phase %q: want %s or %s", name, wire.PhaseRollout, wire.PhaseReward)
	}
	c.mu.Lock()
	c.req++
	p := &phase{req: c.req, name: name, done: make(chan struct{})}
	c.latest = p
	lost := c.err
	if c.link != nil {
		c.sayPhase(c.link)
	}
	c.mu.Unlock()
	if lost != nil {
		return fmt.Errorf("client: phase %s: %w", name, lost)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			if p.why != "" {
				return fmt.Errorf("client: phase %s: %w: %s", name, ErrPhase, p.why)
			}
			return nil
		case <-tick.C:
			c.mu.Lock()
			lost := c.err
			c.mu.Unlock()
			if lost != nil {
				return fmt.Errorf("client: phase %s: %w", name, lost)
			}
		case <-ctx.Done():
			return fmt.Errorf("client: phase %s: %w", name, context.Cause(ctx))
		}
	}
}

// sayPhase says the latest phase over a link. The caller holds mu.
func (c *Client) sayPhase(l *link) {
	if c.latest == nil {
		return
	}
	if text, err := wire.EncodeControl(&wire.Phase{Req: c.latest.req, Name: c.latest.name}); err == nil {
		_ = l.conn.Send(text) // over one that has ended nothing goes, and the next one says it again
	}
}

// phased takes the answer to a phase.
func (c *Client) phased(m *wire.Phased) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.latest
	if p == nil || p.req != m.Req {
		return
	}
	select {
	case <-p.done: // it was said again
	default:
		p.why = m.Why
		close(p.done)
	}
}
