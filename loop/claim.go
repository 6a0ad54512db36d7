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

// Claim gives a worker the payload of a ticket: its start notice. The frame is the
// worker's to release when every goroutine of the attempt has returned. wire.ErrGone
// means that the sample needs no scoring any more.
func (m *Manager) Claim(_ context.Context, t wire.Ticket, worker string) (*wire.Frame, error) {
	f, _, err := m.claim(t, worker)
	return f, err
}

// ClaimGroup gives a worker the payloads of a group's ticket, as Claim does for a sample.
func (m *Manager) ClaimGroup(_ context.Context, t wire.Ticket, worker string) (*wire.Group, error) {
	_, g, err := m.claim(t, worker)
	return g, err
}

func (m *Manager) claim(t wire.Ticket, worker string) (*wire.Frame, *wire.Group, error) {
	if t.Gateway != m.cfg.Gateway {
		return nil, nil, wire.ErrGone
	}
	m.mu.Lock()
	f, g, fx, err := m.core.claim(time.Now(), t, worker)
	m.mu.Unlock()
	m.apply(fx)
	return f, g, err
}

// claim hands the payload to a worker: its start notice. The frame, or the frames of
// a group, have a reference of their own.
func (c *core) claim(now time.Time, t wire.Ticket, worker string) (*wire.Frame, *wire.Group, effects, error) {
	e := c.entries[sampleKey{t.Run, t.Epoch, t.ID}]
	if e == nil || !e.open(t.Attempt) || t.Group != (e.unit != nil) {
		return nil, nil, effects{}, wire.ErrGone
	}
	backup := t.Attempt == e.spare.attempt
	if gone, fx := c.exhausted(now, e, backup, worker); gone {
		return nil, nil, fx, wire.ErrGone
	}
	if e.state == published && backup { // it was promoted
		e.spare.charged, e.charged = e.charged, 0
	}
	if e.claimed.IsZero() {
		e.claimed = now
	}
	e.item.Accepted()
	if backup {
		e.spare.claims++
	} else {
		e.claims++
	}
	if c.dismiss(e, worker) {
		c.metrics.redelivered.Inc()
	}
	c.hold(e, t.Attempt, backup, worker, now)
	c.watch(e)
	if e.unit != nil {
		return nil, e.unit.payload(), effects{wake: true}, nil
	}
	e.frame.Retain()
	return e.frame, nil, effects{wake: true}, nil
}

// open reports whether an attempt may be claimed.
func (e *entry) open(attempt int) bool {
	switch e.state {
	case published:
		return attempt == e.attempt
	case running:
		return attempt == e.attempt || e.spare.attempt != 0 && attempt == e.spare.attempt
	}
	return false
}

// exhausted reports whether the entry has been handed out often enough. It ends one whose
// workers kept vanishing, unless its other attempt is still with somebody.
func (c *core) exhausted(now time.Time, e *entry, backup bool, worker string) (bool, effects) {
	switch {
	case backup && e.state == running && slices.ContainsFunc(e.holders, func(h holder) bool { return h.worker == worker && !h.backup && h.state == claimed }):
		c.dropSpare(e) // it came round to the one that has the sample
		return true, effects{}
	case backup:
		return e.spare.claims >= c.cfg.MaxAttempts, effects{}
	case e.claims-e.answers < c.cfg.MaxAttempts:
		return false, effects{}
	case e.state == running && (e.offer != nil || slices.ContainsFunc(e.holders, func(h holder) bool { return h.backup && h.state == claimed })):
		return true, effects{}
	}
	return true, c.lose(now, e)
}

// lose ends a sample whose workers kept vanishing.
func (c *core) lose(now time.Time, e *entry) effects {
	var fx effects
	errs := []rewards.TermError{{
		Class: rewards.Lost, Message: fmt.Sprintf("handed out %d times, %d of them without an answer", e.claims, e.claims-e.answers), Attempts: e.claims,
		Blame: rewards.BlameWorker,
	}}
	if e.unit != nil {
		c.failGroup(now, e, rewards.OutcomeWorkerLost, errs, &fx)
		return fx
	}
	c.settle(now, e, &wire.Result{Outcome: rewards.OutcomeWorkerLost, Errors: errs}, &fx)
	return fx
}
