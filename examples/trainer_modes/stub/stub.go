package stub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConnections bounds the memory of idle clients; each has about 5 KiB.
	maxConnections = 1 << 16
	// wholeWithin is how long a request may take to come once it has begun.
	wholeWithin = 10 * time.Second
	// firstBuffer holds a request of the trainer's; it grows for larger ones.
	firstBuffer = 1 << 10
)

// Stub is a running service. It is safe for concurrent use.
type Stub struct {
	listener net.Listener
	closing  chan struct{} // closed by Close
	closed   atomic.Bool   // set before the timers are stirred
	wg       sync.WaitGroup
	answered atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]*time.Timer // each with what its goroutine waits for; guarded by mu; nil once closed
}

// Listen starts a stub at an address such as 127.0.0.1:0. ctx limits only the call of Listen; Close
// ends the stub.
func Listen(ctx context.Context, addr string) (*Stub, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("stub: %w", err)
	}
	s := &Stub{listener: l, closing: make(chan struct{}), conns: map[net.Conn]*time.Timer{}}
	s.wg.Go(s.accept) // ends with Close
	return s, nil
}

// URL returns the URL of the stub, which accepts POST with any path.
func (s *Stub) URL() string { return "http://" + s.listener.Addr().String() }

// Answered returns the number of answers that were written, with any status.
func (s *Stub) Answered() int64 { return s.answered.Load() }

// Close closes all connections and returns when no goroutine of the stub runs any more. It may be
// called twice.
func (s *Stub) Close() error {
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	if conns == nil {
		return nil
	}
	err := s.listener.Close()
	close(s.closing)
	s.closed.Store(true)
	for c, timer := range conns {
		_ = c.Close()  // what waits to be read or written ends
		timer.Reset(0) // and so does a wait
	}
	s.wg.Wait()
	return err
}

func (s *Stub) accept() {
	for {
		conn, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of file descriptors, most likely: some come back
			select {
			case <-time.After(10 * time.Millisecond):
			case <-s.closing:
				return
			}
		default:
			timer := time.NewTimer(time.Hour) // set for each wait
			if !s.keep(conn, timer) {
				_ = conn.Close()
				continue
			}
			s.wg.Go(func() { // ends when the client hangs up, or with Close
				defer s.drop(conn, timer)
				s.serve(conn, timer)
			})
		}
	}
}

// keep notes a connection, unless there are too many or the stub is closed.
func (s *Stub) keep(conn net.Conn, timer *time.Timer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil || len(s.conns) >= maxConnections {
		return false
	}
	s.conns[conn] = timer
	return true
}

func (s *Stub) drop(conn net.Conn, timer *time.Timer) {
	_ = conn.Close()
	timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// serve answers the requests of one connection, one after the other.
func (s *Stub) serve(conn net.Conn, timer *time.Timer) {
	buf, have := make([]byte, firstBuffer), 0
	var out []byte
	for {
		body, n, err := read(conn, &buf, &have)
		if err != nil {
			var no *refusal
			if errors.As(err, &no) && s.write(conn, failure(out, no.status, no.why)) {
				finish(conn)
			}
			return
		}
		read := time.Now()
		c, err := parseCall(body)
		have = copy(buf, buf[n:have]) // the parsed call shares no byte with the buffer
		switch {
		case err != nil:
			out = failure(out, http.StatusBadRequest, err.Error())
		case c.Label.Hang:
			_, _ = conn.Read(make([]byte, 1)) // until the client or the stub gives up
			return
		default:
			out = c.answer(out)
			wait := time.Duration(c.Label.WaitMS * float64(time.Millisecond))
			if !s.wait(timer, wait-time.Since(read)) {
				return
			}
		}
		if !s.write(conn, out) {
			return
		}
	}
}

// wait returns false where the stub was closed meanwhile. A receive from the timer alone
// costs 2 µs less than a select with closing, which all connections would share: Close
// ends it by setting the timer to now, after closed, which is looked at after Reset.
func (s *Stub) wait(timer *time.Timer, d time.Duration) bool {
	if d > 0 {
		timer.Reset(d)
		if !s.closed.Load() {
			<-timer.C
		}
	}
	return !s.closed.Load()
}

func (s *Stub) write(conn net.Conn, out []byte) bool {
	// An answer is far smaller than a socket's buffer, and a client has one under way:
	// writing does not block.
	s.answered.Add(1)
	_, err := conn.Write(out)
	return err == nil
}

// read reads until the buffer begins with a whole request. What has come in one piece
// needs no deadline; setting one costs half a microsecond.
func read(conn net.Conn, buf *[]byte, have *int) (body []byte, n int, err error) {
	limited := false
	for {
		if *have > 0 {
			body, n, err = request((*buf)[:*have])
			if n > 0 || err != nil {
				break
			}
			if !limited {
				limited = true
				if err := conn.SetReadDeadline(time.Now().Add(wholeWithin)); err != nil {
					return nil, 0, err
				}
			}
		}
		if *have == len(*buf) { // request refuses what is over the bounds before that is long
			*buf = append(*buf, make([]byte, len(*buf))...)
		}
		got, err := conn.Read((*buf)[*have:])
		if *have += got; got == 0 && err != nil {
			return nil, 0, err
		}
	}
	if limited {
		err = errors.Join(err, conn.SetReadDeadline(time.Time{}))
	}
	return body, n, err
}

// finish lets a client read why it was refused before the connection is reset because of
// what it still sends.
func finish(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, conn, 1<<20)
}
