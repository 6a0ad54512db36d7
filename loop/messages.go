package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about what a client's control messages do. wire/messages.json has their list.

// Message implements stream.Gateway.
func (m gateway) Message(s *stream.Session, msg any) error {
	switch msg := msg.(type) {
	case *wire.Step:
		return m.declare(s, msg)
	case *wire.EndOfStep:
		return m.endStep(s, msg)
	case *wire.Cancel:
		m.takeBack(s, msg.IDs)
	case *wire.Confirm:
		m.confirm(s, msg.Seq)
	case *wire.Want:
		m.grant(func(now time.Time) stream.Grants { return m.flow.Want(now, s, *msg) })
	case *wire.Yield:
		m.grant(func(now time.Time) stream.Grants { return m.flow.Yield(now, s, *msg) })
	default:
		name, _ := wire.ControlName(msg)
		return fmt.Errorf("%w: this gateway does not handle the message %s", rewards.Malformed, name)
	}
	return nil
}

// confirm has the session's run forget the results that the client has.
func (m *Manager) confirm(s *stream.Session, seq uint64) {
	answers := s.Confirm(seq)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.current(s)
	if r == nil {
		return // it has forgotten all of them
	}
	for _, a := range answers {
		r.done.confirmed(sampleKey{r.name, r.epoch, a.Result.ID}, a)
	}
}

// grant sends the credit that a change of flow control makes free.
func (m *Manager) grant(change func(now time.Time) stream.Grants) {
	now := time.Now()
	m.mu.Lock()
	grants := change(now)
	m.mu.Unlock()
	grants.Send()
}

// Phase implements stream.Gateway.
func (m gateway) Phase(ctx context.Context, s *stream.Session, name string) error {
	if m.phase == nil { // nothing here has memory that a trainer waits for
		return nil
	}
	return m.phase(ctx, s.Run(), s.ID().Client, name)
}

// Connected reports whether a client of a run has a connection.
func (m *Manager) Connected(run, client string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.core.runs[run]; r != nil {
		for id, s := range r.sessions {
			if id.Client == client && s.Live() {
				return true
			}
		}
	}
	return false
}

// Rewards implements stream.Gateway.
func (m gateway) Rewards(ctx context.Context, s *stream.Session, t *wire.Fetch) (*wire.Rewards, error) {
	res, err := m.Manager.Rewards(ctx, s.Run(), s.Epoch(), *t)
	if errors.Is(err, ErrStopped) {
		return nil, nil // Stop ends the connection, and the next gateway says what became of the step
	}
	return res, err
}
