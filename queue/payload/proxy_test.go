package payload_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/wire"
)

// proxy is a network between workers and a gateway that a test can spoil.
type proxy struct {
	listener net.Listener
	tasks    sync.WaitGroup

	mu      sync.Mutex
	target  string
	conns   map[net.Conn]struct{}
	accepts int
	down    bool
	ended   bool          // the test is over: a connection that is being dialled is closed
	frozen  chan struct{} // not nil: nothing passes until it is closed
	// tap sees what comes from the gateway: the connection's number from 1, where in its
	// stream the bytes are, and the bytes, which it may change. true cuts the connection.
	tap func(conn int, at int64, b []byte) bool
}

func newProxy(tb testing.TB, target string) *proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	p := &proxy{listener: l, target: strings.TrimSuffix(strings.TrimPrefix(target, "ws://"), "/v1/claim"), conns: map[net.Conn]struct{}{}}
	p.tasks.Go(p.serve)
	tb.Cleanup(func() {
		_ = l.Close()
		p.set(func() { p.ended = true })
		p.thaw()
		p.cut()
		p.tasks.Wait()
	})
	return p
}

// via returns the ticket with the proxy's address.
func (p *proxy) via(t wire.Ticket) wire.Ticket {
	t.Claim = "ws://" + p.listener.Addr().String() + "/v1/claim"
	return t
}

func (p *proxy) serve() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepts++
		n, down, target := p.accepts, p.down, p.target
		p.mu.Unlock()
		if down {
			_ = in.Close()
			continue
		}
		out, err := net.Dial("tcp", target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = struct{}{}, struct{}{}
		ended := p.ended
		p.mu.Unlock()
		if ended { // after the last cut
			_, _ = in.Close(), out.Close()
		}
		p.tasks.Go(func() { p.pass(in, out, 0) })
		p.tasks.Go(func() { p.pass(out, in, n) })
	}
}

func (p *proxy) pass(from, to net.Conn, conn int) {
	defer func() {
		_, _ = from.Close(), to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		delete(p.conns, to)
		p.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for at := int64(0); ; {
		n, err := from.Read(buf)
		p.mu.Lock()
		tap, frozen := p.tap, p.frozen
		p.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		if conn > 0 && tap != nil && n > 0 && tap(conn, at, buf[:n]) {
			return
		}
		at += int64(n)
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (p *proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// fall breaks all connections and takes no new ones.
func (p *proxy) fall() {
	p.set(func() { p.down = true })
	p.cut()
}

func (p *proxy) freeze() { p.set(func() { p.frozen = make(chan struct{}) }) }

func (p *proxy) thaw() {
	p.set(func() {
		if p.frozen != nil {
			close(p.frozen)
			p.frozen = nil
		}
	})
}

func (p *proxy) accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepts
}
