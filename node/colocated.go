package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// colocated shares the memory of the cards with a trainer, by the phases that its runs tell: in
// rollout nothing is scored and all memory is given back, in reward samples are scored. A run is in
// reward while one of its clients is, and the process while every run is that has told of a phase, and
// at least one has. Every reward waits for it as for a dependency, so that samples stay in the gateway,
// without a lease.
type colocated struct {
	log       *slog.Logger
	rest      func(ctx context.Context) error // gives all memory back
	wake      func()                          // has it taken again
	connected func(run, client string) bool   // set before it is asked

	stop       context.CancelFunc // of forget; nil: it does not run
	forgetting sync.WaitGroup
	grace      time.Duration // for which the word of a run counts whose clients have gone

	entering sync.Mutex // held while memory changes hands

	mu      sync.Mutex
	clients map[teller]*told // guarded by mu
	open    bool             // guarded by mu; it is in reward
	changed chan struct{}    // guarded by mu; closed when open is another
}

// teller is a client of a run.
type teller struct{ run, client string }

// told is what a client has said.
type told struct {
	phase string
	seen  time.Time // when it was connected last
}

func newColocated(log *slog.Logger, rest func(ctx context.Context) error, wake func(), grace time.Duration) *colocated {
	return &colocated{log: log, rest: rest, wake: wake, grace: grace, clients: map[teller]*told{}, changed: make(chan struct{})}
}

var _ rewards.Reliant = (*colocated)(nil)

// Dependency implements rewards.Reliant.
func (c *colocated) Dependency() rewards.Dependency {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := rewards.Dependency{Name: "the reward phase of the trainer", Changed: c.changed, Down: !c.open}
	if d.Down {
		d.Held = "pool.colocated is on, and the trainer keeps the memory until it begins its reward phase (loop.phase(\"reward\") in Python)"
		d.Last = d.Held
	}
	return d
}

// enter notes the phase that a client of a run has begun, and returns when what follows from it is done.
func (c *colocated) enter(ctx context.Context, run, client, phase string) error {
	c.mu.Lock()
	c.clients[teller{run, client}] = &told{phase, time.Now()}
	c.mu.Unlock()
	err := c.settle(ctx)
	if others := c.inRollout(); err == nil && phase == wire.PhaseReward && len(others) > 0 {
		err = fmt.Errorf("%w: scoring waits until the other runs on these cards begin their reward phase: %s", rewards.Unavailable, strings.Join(others, ", "))
	}
	return err
}

// inRollout are the runs no client of which is in reward.
func (c *colocated) inRollout() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rolling()
}

// rolling is inRollout for whoever holds mu.
func (c *colocated) rolling() []string {
	reward := map[string]bool{}
	for t, said := range c.clients {
		reward[t.run] = reward[t.run] || said.phase == wire.PhaseReward
	}
	maps.DeleteFunc(reward, func(_ string, on bool) bool { return on })
	return slices.Sorted(maps.Keys(reward))
}

// settle has memory change hands if that follows from what the runs have said.
func (c *colocated) settle(ctx context.Context) error {
	c.entering.Lock()
	defer c.entering.Unlock()
	c.mu.Lock()
	reward := len(c.clients) > 0 && len(c.rolling()) == 0
	was := c.open
	if !reward && was { // first nobody begins anything
		c.set(false)
	}
	c.mu.Unlock()
	switch {
	case reward && !was:
		c.wake()
		c.mu.Lock()
		c.set(true)
		c.mu.Unlock()
		c.log.InfoContext(ctx, "the reward phase began: engines and models load into memory")
	case !reward:
		begun := time.Now()
		if err := c.rest(ctx); err != nil {
			return fmt.Errorf("%w: %w", rewards.Unavailable, err)
		}
		if was {
			c.log.InfoContext(ctx, "the reward phase ended: engines and models released their memory", "after", time.Since(begun).Round(time.Millisecond))
		}
	}
	return nil
}

// set changes the phase. The caller holds mu.
func (c *colocated) set(open bool) {
	c.open = open
	close(c.changed)
	c.changed = make(chan struct{})
}

// forget lets the word of clients go that have no connection any more, until ctx ends: a trainer that died in
// its reward phase must not keep the memory from the next one.
func (c *colocated) forget(ctx context.Context) {
	tick := time.NewTicker(min(time.Second, max(c.grace/4, time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if c.gone(now) {
				if err := c.settle(ctx); err != nil && ctx.Err() == nil {
					c.log.ErrorContext(ctx, "a trainer disconnected, and engines or models did not release their memory", "error", err)
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// gone forgets the clients without a connection, and reports whether there were any.
func (c *colocated) gone(now time.Time) (some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, said := range c.clients {
		switch {
		case c.connected(t.run, t.client):
			said.seen = now
		case now.Sub(said.seen) > c.grace:
			c.log.Warn("a client has been disconnected for longer than loop.resume_grace; the server ignores the client's phase", "run", t.run, "client", t.client, "phase", said.phase)
			delete(c.clients, t)
			some = true
		}
	}
	return some
}

// restAll has nobody ask the engines any more, and engines and models give their memory back.
func (p *parts) restAll(ctx context.Context) error {
	return errors.Join(p.scorers.Engines.sleep(ctx), p.scorers.Readers.Devices.Rest(ctx))
}
