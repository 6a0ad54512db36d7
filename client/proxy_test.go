package client_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy passes bytes on and cuts each connection after some number of them from the
// client, wherever in a frame that is.
type proxy struct {
	url   string
	cuts  atomic.Int64
	least int // bytes that pass in any case

	wg     sync.WaitGroup
	mu     sync.Mutex
	target string            // guarded by mu
	rng    *rand.Rand        // guarded by mu
	conns  map[net.Conn]bool // guarded by mu
}

// newProxy cuts after least to 2·least bytes.
func newProxy(t *testing.T, target string, least int) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{
		url: "ws://" + l.Addr().String(), target: target, least: least, rng: rand.New(rand.NewPCG(1, 2)), conns: map[net.Conn]bool{},
	}
	p.wg.Go(func() { // ends when the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) pass(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client] = true
	limit := int64(p.least + p.rng.IntN(p.least))
	p.mu.Unlock()
	p.wg.Go(func() {
		_, _ = io.Copy(client, server) // ends when either side does
		_ = client.Close()
	})
	if n, _ := io.CopyN(server, client, limit); n == limit {
		p.cuts.Add(1)
	}
	p.mu.Lock()
	delete(p.conns, client)
	p.mu.Unlock()
}

// assign sends later connections elsewhere.
func (p *proxy) assign(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}
