package loop

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about the start notice: a worker that has a ticket claims the payload.

// Claim returns the payload of a ticket to a worker, and records that the worker has started the
// sample. The worker must release the frame f after every goroutine of the attempt has returned.
// kept holds the results of components that finished in an earlier attempt that a worker returned;
// these components need not run again. Claim returns wire.ErrGone if the sample needs no scoring
// any more.
func (m *Manager) Claim(_ context.Context, t wire.Ticket, worker string) (f *wire.Frame, kept []rewards.ComponentResult, err error) {
	h, err := m.claim(t, worker)
	return h.frame, h.kept, err
}

// handed is what a worker gets: a frame, and what is finished of the sample; or a group.
type handed struct {
	frame *wire.Frame
	kept  []rewards.ComponentResult
	group *wire.Group
}

// ClaimGroup returns to a worker the payloads of all members of a prompt group's ticket. Otherwise
// ClaimGroup behaves like Claim.
func (m *Manager) ClaimGroup(_ context.Context, t wire.Ticket, worker string) (*wire.Group, error) {
	h, err := m.claim(t, worker)
	return h.group, err
}

func (m *Manager) claim(t wire.Ticket, worker string) (handed, error) {
	if t.Gateway != m.cfg.Gateway {
		return handed{}, wire.ErrGone
	}
	m.mu.Lock()
	h, fx, err := m.core.claim(time.Now(), t, worker)
	m.mu.Unlock()
	m.apply(fx)
	return h, err
}

// claim hands the payload to a worker: its start notice. The frame, or the frames of
// a group, have a reference of their own.
func (c *core) claim(now time.Time, t wire.Ticket, worker string) (handed, effects, error) {
	e := c.entries[sampleKey{t.Run, t.Epoch, t.ID}]
	if e == nil || !e.open(t.Attempt) || t.Group != (e.unit != nil) {
		return handed{}, effects{}, wire.ErrGone
	}
	backup := t.Attempt == e.backup.attempt
	if gone, fx := c.exhausted(now, e, backup, worker); gone {
		return handed{}, fx, wire.ErrGone
	}
	if e.state == published && backup { // it was promoted
		e.backup.charged, e.charged = e.charged, 0
	}
	if e.claimed.IsZero() {
		e.claimed = now
	}
	e.item.Accepted()
	if backup {
		e.backup.claims++
	} else {
		e.claims++
	}
	if c.dismiss(now, e, worker) {
		c.metrics.redelivered.Inc()
	}
	c.hold(e, t.Attempt, backup, worker, now)
	c.watch(e)
	if e.unit != nil {
		return handed{group: e.unit.payload()}, effects{wake: true}, nil
	}
	e.frame.Retain()
	return handed{frame: e.frame, kept: e.gave().kept}, effects{wake: true}, nil
}

// open reports whether an attempt may be claimed.
func (e *entry) open(attempt int) bool {
	switch e.state {
	case published:
		return attempt == e.attempt
	case running:
		return attempt == e.attempt || e.backup.attempt != 0 && attempt == e.backup.attempt
	}
	return false
}

// exhausted reports whether the entry has been handed out often enough. It ends one whose
// workers kept vanishing, unless its other attempt is still with somebody.
func (c *core) exhausted(now time.Time, e *entry, backup bool, worker string) (bool, effects) {
	switch {
	case backup && e.state == running && slices.ContainsFunc(e.attempts, func(a *attempt) bool { return a.worker == worker && !a.backup && a.state == claimed }):
		c.dropBackup(e) // it came round to the one that has the sample
		return true, effects{}
	case backup:
		return e.backup.claims >= c.cfg.MaxAttempts, effects{}
	case e.claims-e.answers < c.cfg.MaxAttempts:
		return false, effects{}
	case e.state == running && (e.offer != nil || slices.ContainsFunc(e.attempts, func(a *attempt) bool { return a.backup && a.state == claimed })):
		return true, effects{}
	}
	return true, c.lose(now, e)
}

// lose ends a sample whose workers kept vanishing.
func (c *core) lose(now time.Time, e *entry) effects {
	var fx effects
	errs := []rewards.ComponentError{{
		Class: rewards.Lost, Message: fmt.Sprintf("workers got the sample %d times and did not answer %d times", e.claims, e.claims-e.answers), Attempts: e.claims,
		Blame: rewards.BlameWorker,
	}}
	if e.unit != nil {
		c.failGroup(now, e, rewards.OutcomeWorkerLost, errs, &fx)
		return fx
	}
	c.settle(now, e, &wire.Result{Outcome: rewards.OutcomeWorkerLost, Errors: errs}, &fx)
	return fx
}
