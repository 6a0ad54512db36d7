package loop

import (
	"context"
	"fmt"
	"io"
	"maps"

	"github.com/rewardloop/rewardloop/wire"
)

// Conn is what a session needs of a connection.
type Conn = conn

// Attach opens or resumes a session on a connection of the test's own.
func (m *Manager) Attach(h wire.Hello, c Conn) (*Session, error) { return m.attach(h, c) }

// Detach ends a session's connection.
func (m *Manager) Detach(s *Session, c Conn) { m.detach(s, c) }

// Receive takes one frame as it comes over the session's socket.
func (m *Manager) Receive(s *Session, r io.Reader) error {
	st := &stream{m: m, session: s}
	return st.Binary(r)
}

// Declare declares how many samples a step will have; with 0 it has all.
func (m *Manager) Declare(s *Session, msg wire.Step) {
	if msg.Expected == 0 {
		_ = m.endStep(s, &wire.EndOfStep{Split: msg.Split, Step: msg.Step})
		return
	}
	_ = m.declare(s, &msg)
}

// Confirm confirms results.
func (s *Session) Confirm(seq uint64) { s.confirm(seq) }

// CreditState shows a session's window.
func (s *Session) CreditState() string {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return fmt.Sprintf("live %v window %+v budget %+v", s.m.sessions[s], s.credit, s.m.budget)
}

// Peek returns the result if it is there.
func (f *Future) Peek() *wire.Result {
	select {
	case <-f.ready:
		return f.res
	default:
		return nil
	}
}

// Unconfirmed returns how many results a session keeps.
func (s *Session) Unconfirmed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.results)
}

// Audit recounts what the manager keeps count of. The one message that a connection
// may send beyond its credit is not bounded by max_bytes: over is what those come to.
func (m *Manager) Audit(over int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var unused, frames int64
	for s := range m.sessions {
		unused += s.credit.unused().Bytes
	}
	unclaimed := 0
	busy := map[string]int{}
	inflight, open := map[*run]int{}, map[owner]int64{}
	for _, e := range m.core.entries {
		inflight[e.run]++
		open[e.owner]++
		if e.frame != nil {
			frames += e.bytes
		}
		if e.state == published || e.spare.out {
			unclaimed++
		}
		for _, h := range e.holders {
			if !h.lapsed {
				busy[h.worker]++
			}
		}
		if e.state == running && len(e.holders) == 0 || e.alarm.index < 0 || (e.frame == nil) != (e.state == held) {
			return fmt.Errorf("sample %s is %s with %d holders, alarm %d, frame %v", e.key.id, e.state, len(e.holders), e.alarm.index, e.frame != nil)
		}
	}
	switch {
	case unused != m.budget.unused:
		return fmt.Errorf("unused credit is booked as %d and comes to %d", m.budget.unused, unused)
	case frames > m.budget.held:
		return fmt.Errorf("frames of entries come to %d bytes, held are %d", frames, m.budget.held)
	case m.budget.held+m.budget.unused > m.budget.max+over:
		return fmt.Errorf("%d bytes held and %d granted exceed max_bytes = %d", m.budget.held, m.budget.unused, m.budget.max)
	case unclaimed != m.core.unclaimed:
		return fmt.Errorf("%d tickets are unclaimed, booked are %d", unclaimed, m.core.unclaimed)
	}
	if !maps.Equal(busy, m.core.bench.busy) {
		return fmt.Errorf("workers have %v, booked are %v", busy, m.core.bench.busy)
	}
	for _, r := range m.core.runs {
		queued := 0
		for _, l := range r.lanes {
			queued += len(l.queue)
		}
		if queued != r.queue.Len() {
			return fmt.Errorf("run %s has %d samples queued by step, %d in all", r.name, queued, r.queue.Len())
		}
		if r.inflight != inflight[r] {
			return fmt.Errorf("run %s has %d in flight, booked are %d", r.name, inflight[r], r.inflight)
		}
		for _, s := range r.sessions {
			if s.credit.open != open[s] {
				return fmt.Errorf("client %s waits for %d samples, booked are %d", s.id.client, open[s], s.credit.open)
			}
		}
	}
	return nil
}

// Asks lets a test ask as a client does over its socket; wait returns when nothing of it
// runs any more.
func (m *Manager) Asks(ctx context.Context, s *Session, c Conn) (ask func(wire.Take), wait func()) {
	st := &stream{m: m, session: s, ctx: ctx, conn: c}
	return func(t wire.Take) { _ = st.take(&t) }, st.takes.Wait
}

// StepBytes is what is kept of steps.
func (m *Manager) StepBytes() int64 { return m.stepBytes() }
