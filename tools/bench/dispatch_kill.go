package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// mortal is what one worker has of the engine and the gateway. Once it is dead it is as
// after kill -9: the worker learns nothing more, and nothing that it says arrives.
type mortal struct {
	workers.Source
	workers.Gateway

	dead atomic.Bool
}

var errKilled = errors.New("bench: the worker was killed")

// Take implements workers.Source.
func (m *mortal) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	if m.dead.Load() {
		<-ctx.Done()
		return nil, nil
	}
	leases, err := m.Source.Take(ctx, queue, n)
	for i, l := range leases {
		leases[i] = &mortalLease{l, m}
	}
	return leases, err
}

// Announce implements workers.Source.
func (m *mortal) Announce(info wire.WorkerInfo) {
	if !m.dead.Load() {
		m.Source.Announce(info)
	}
}

// Claim implements workers.Gateway.
func (m *mortal) Claim(ctx context.Context, t wire.Ticket, worker string) (*wire.Frame, []rewards.ComponentResult, error) {
	if m.dead.Load() {
		return nil, nil, errKilled
	}
	return m.Gateway.Claim(ctx, t, worker)
}

// Finish implements workers.Gateway.
func (m *mortal) Finish(ctx context.Context, t wire.Ticket, res *wire.Result) error {
	if m.dead.Load() {
		return errKilled
	}
	return m.Gateway.Finish(ctx, t, res)
}

// mortalLease is never extended, ended or given back by a dead worker: it lapses.
type mortalLease struct {
	workers.Lease

	m *mortal
}

// Extend implements workers.Lease.
func (l *mortalLease) Extend(ctx context.Context) error {
	if l.m.dead.Load() {
		return errKilled
	}
	return l.Lease.Extend(ctx)
}

// Done implements workers.Lease.
func (l *mortalLease) Done() {
	if !l.m.dead.Load() {
		l.Lease.Done()
	}
}

// Return implements workers.Lease.
func (l *mortalLease) Return(after time.Duration) {
	if !l.m.dead.Load() {
		l.Lease.Return(after)
	}
}

// victim is the worker that is killed; replacement takes its place.
const (
	victim      = "w3"
	replacement = "w3-again"
)

// kill ends the victim at a moment when it scores a sample, waits until the gateway no
// longer counts it as live, and starts the replacement. It returns how long that took.
func (n *node) kill(ctx context.Context) (noticed time.Duration, err error) {
	i := slices.IndexFunc(n.workers, func(w *workers.Worker) bool { return w.Info().ID == victim })
	if i < 0 {
		return 0, fmt.Errorf("no worker %s to kill", victim)
	}
	if err := until(ctx, func() bool { return n.workers[i].Info().Busy > 0 }); err != nil {
		return 0, fmt.Errorf("waiting for %s to be busy: %w", victim, err)
	}
	n.mortals[victim].dead.Store(true)
	start := time.Now()
	if err := until(ctx, func() bool { return !n.live(victim) }); err != nil {
		return time.Since(start), err
	}
	return time.Since(start), n.startWorker(ctx, replacement)
}

// live reports whether the gateway counts a worker as live.
func (n *node) live(id string) bool {
	return slices.ContainsFunc(n.queue.Workers(), func(w wire.WorkerInfo) bool { return w.ID == id })
}

// until looks every millisecond.
func until(ctx context.Context, is func() bool) error {
	for !is() {
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// sleep ends early, with an error, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
