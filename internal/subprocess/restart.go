package subprocess

import (
	"context"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// restartPoll is how often Restart looks whether all children are new.
const restartPoll = 10 * time.Millisecond

// Restart replaces every child once it is idle, and returns when each slot has a new child that is
// ready. A request that is running finishes on the old child. ctx limits only the wait.
func (p *Pool) Restart(ctx context.Context) error {
	p.mu.Lock()
	close(p.renew)
	p.renew = make(chan struct{})
	p.mu.Unlock()
	for {
		p.mu.Lock()
		fresh, down, started := 0, p.down, p.cancel != nil
		for c, ready := range p.live {
			if ready && c.renew == p.renew {
				fresh++
			}
		}
		p.mu.Unlock()
		switch {
		case !started:
			return fmt.Errorf("%w: not started", ErrUnavailable)
		case fresh == p.cfg.Slots:
			return nil
		}
		select {
		case <-p.stopping:
			return fmt.Errorf("%w: stopping", ErrUnavailable)
		case <-down:
			return fmt.Errorf("%w: %w", ErrUnavailable, p.whyDown())
		case <-ctx.Done():
			return ended(ctx.Err(), "while children were replaced")
		case <-time.After(restartPoll):
		}
	}
}

// Restart replaces the handler of every slot once the slot is idle.
func (p *Inline) Restart(ctx context.Context) error {
	leases := make([]*inlineLease, 0, p.cfg.Slots)
	defer func() {
		for _, l := range leases {
			l.Release()
		}
	}()
	for range p.cfg.Slots {
		l, err := p.take(ctx, fair.Tenant{})
		if err != nil {
			return err
		}
		leases = append(leases, l)
	}
	for _, l := range leases {
		t := inlineTask{turn: l.turn, done: make(chan inlineResult, 1)}
		l.slot.tasks <- t
		l.slot = nil
		p.count(func(st *Stats) { st.Restarts++ })
		select {
		case r := <-t.done:
			if r.err != nil {
				return r.err
			}
		case <-ctx.Done():
			return ended(ctx.Err(), "while a handler was built")
		}
	}
	return nil
}
