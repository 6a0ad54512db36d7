package loop

import (
	"fmt"
	"io"

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
