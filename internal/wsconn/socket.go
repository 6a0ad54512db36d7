package wsconn

import (
	"net"
	"sync"
	"time"
)

// corkBytes is how much a burst of small messages collects before it is written.
const corkBytes = 64 << 10

// socket is the network connection under gorilla's. It moves the read deadline
// with every read, which gorilla cannot do inside a message, and joins a burst of
// small messages into one write.
type socket struct {
	net.Conn

	// Guarded by readMu; Close and the reader set deadlines.
	readMu    sync.Mutex
	idle      time.Duration // 0: not running yet, deadlines are the handshake's
	messageBy time.Time     // zero: between messages
	closeBy   time.Time     // zero: not closing

	// Guarded by writeMu: the writer's texts and gorilla's own control frames.
	writeMu sync.Mutex
	corked  bool
	pending []byte
}

// tcpSocket keeps the TCP connection's own method for writing several buffers in
// one call, which net.Buffers looks for.
type tcpSocket struct {
	*net.TCPConn

	s *socket
}

// wrap returns the connection to give to gorilla and the socket behind it.
func wrap(c net.Conn) (net.Conn, *socket) {
	s := &socket{Conn: c}
	if tcp, ok := c.(*net.TCPConn); ok {
		return &tcpSocket{tcp, s}, s
	}
	return s, s
}

// Read reads with a fresh deadline.
func (t *tcpSocket) Read(p []byte) (int, error) { return t.s.Read(p) }

// Write writes, or collects while corked.
func (t *tcpSocket) Write(p []byte) (int, error) { return t.s.Write(p) }

// Read reads with a fresh deadline.
func (s *socket) Read(p []byte) (int, error) {
	s.readMu.Lock()
	s.setReadDeadline()
	s.readMu.Unlock()
	return s.Conn.Read(p)
}

// setReadDeadline applies the earliest of the deadlines. The caller holds readMu.
// An error means a closed connection, which the read reports.
func (s *socket) setReadDeadline() {
	if s.idle == 0 {
		return
	}
	by := time.Now().Add(s.idle)
	for _, t := range [...]time.Time{s.messageBy, s.closeBy} {
		if !t.IsZero() && t.Before(by) {
			by = t
		}
	}
	_ = s.SetReadDeadline(by)
}

// start begins to move the read deadline.
func (s *socket) start(idle time.Duration) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	s.idle = idle
}

// message sets the deadline of the message being read; the zero time ends it.
func (s *socket) message(by time.Time) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	s.messageBy = by
}

// overdue reports whether the deadline of the message being read has passed.
func (s *socket) overdue() bool {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	return !s.messageBy.IsZero() && !time.Now().Before(s.messageBy)
}

// closing bounds all further reading, also one under way.
func (s *socket) closing(by time.Time) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if s.closeBy.IsZero() {
		s.closeBy = by
		s.setReadDeadline()
		if s.idle == 0 {
			_ = s.SetReadDeadline(by)
		}
	}
}

// Write writes, or collects while corked.
func (s *socket) Write(p []byte) (int, error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	if !s.corked {
		return s.Conn.Write(p)
	}
	s.pending = append(s.pending, p...)
	if len(s.pending) >= corkBytes {
		return len(p), s.flush()
	}
	return len(p), nil
}

// cork makes writes collect.
func (s *socket) cork() {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.corked = true
}

// uncork writes what was collected.
func (s *socket) uncork(by time.Time) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.corked = false
	if err := s.SetWriteDeadline(by); err != nil {
		return err
	}
	return s.flush()
}

// flush writes what was collected. The caller holds writeMu.
func (s *socket) flush() error {
	if len(s.pending) == 0 {
		return nil
	}
	_, err := s.Conn.Write(s.pending)
	s.pending = s.pending[:0]
	if cap(s.pending) > 4*corkBytes {
		s.pending = nil
	}
	return err
}

// abort closes the network connection at once. Closing a TLS connection may wait
// seconds to say so to a peer that does not read; we close what is below.
func (s *socket) abort() {
	if t, ok := s.Conn.(interface{ NetConn() net.Conn }); ok {
		_ = t.NetConn().Close()
		return
	}
	_ = s.Close()
}
