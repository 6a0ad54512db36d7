package netlab

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Direction is one direction through a Proxy.
type Direction int

const (
	// Up is the direction from the client to the target.
	Up Direction = iota
	// Down is the direction from the target to the client.
	Down
)

const (
	chunkBytes = 32 << 10
	// queued chunks bound what a direction holds back: 4 MiB, which is the delay times
	// the bandwidth of 640 Mbit/s at 50 ms.
	queued = 128
)

// Proxy is a TCP proxy with faults. All settings apply to existing and future connections, and to
// each connection separately. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	ctx      context.Context //nolint:containedctx // ends with Close, and dialling with it
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	target  string             // guarded by mu
	ways    [2]way             // guarded by mu
	changed chan struct{}      // closed and replaced at each change; guarded by mu
	pairs   map[*pair]struct{} // guarded by mu
	refuse  bool               // guarded by mu
	closed  bool               // guarded by mu
	total   int                // guarded by mu
	tap     func(conn int, way Direction, b []byte)
}

// way is the settings of one direction.
type way struct {
	latency time.Duration
	rate    float64 // bytes a second; 0: no limit
	frozen  bool
	corrupt int // bytes still to flip
}

// pair is one connection through the proxy.
type pair struct {
	id             int
	client, server net.Conn
	done           chan struct{} // closed by cut
	once           sync.Once
}

// chunk is what one read returned; the last one of a direction has err.
type chunk struct {
	data []byte
	due  time.Time
	err  error
}

// NewProxy returns a proxy that listens on address ("127.0.0.1:0" if empty), forwards connections
// to target, and closes when the test ends.
func NewProxy(t testing.TB, address, target string) *Proxy {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", address)
	require.NoError(t, err, "proxy to %s", target)
	p := &Proxy{listener: l, target: target, changed: make(chan struct{}), pairs: map[*pair]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	p.wg.Go(p.accept) // ends when the listener is closed
	t.Cleanup(p.Close)
	return p
}

// Addr returns the address of the proxy: host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts every connection and returns when all goroutines of the proxy have ended.
func (p *Proxy) Close() {
	p.set(func() { p.closed = true })
	_ = p.listener.Close()
	p.cancel()
	p.Cut()
	p.wg.Wait()
}

// Target changes the target of new connections.
func (p *Proxy) Target(address string) { p.set(func() { p.target = address }) }

// Latency delays every byte in a direction.
func (p *Proxy) Latency(d Direction, latency time.Duration) {
	p.set(func() { p.ways[d].latency = latency })
}

// Rate limits a direction of each connection, in bits per second. 0 means no limit.
func (p *Proxy) Rate(d Direction, bitsPerSecond float64) {
	p.set(func() { p.ways[d].rate = bitsPerSecond / 8 })
}

// Freeze stops forwarding in a direction. Connections stay open, and not even their end is
// forwarded. Up to 4 MiB are buffered meanwhile, and delivered after Thaw.
func (p *Proxy) Freeze(d Direction) { p.set(func() { p.ways[d].frozen = true }) }

// Thaw ends Freeze.
func (p *Proxy) Thaw(d Direction) { p.set(func() { p.ways[d].frozen = false }) }

// Refuse resets new connections immediately, or stops doing so. Open connections are not affected.
func (p *Proxy) Refuse(refuse bool) { p.set(func() { p.refuse = refuse }) }

// Corrupt flips one bit, in the middle, in each of the next n reads in a direction.
func (p *Proxy) Corrupt(d Direction, n int) { p.set(func() { p.ways[d].corrupt += n }) }

// Corrupted reports whether all corruptions requested with Corrupt have happened.
func (p *Proxy) Corrupted(d Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ways[d].corrupt == 0
}

// Tap sets a function that gets every read, unchanged, with the number of its connection. f is
// called by the goroutines of the connections and must not keep b. Tap must be called before the
// first connection.
func (p *Proxy) Tap(f func(conn int, way Direction, b []byte)) { p.set(func() { p.tap = f }) }

// Cut resets every open connection on both sides and returns the number of connections.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	pairs := make([]*pair, 0, len(p.pairs))
	for c := range p.pairs {
		pairs = append(pairs, c)
	}
	p.mu.Unlock()
	for _, c := range pairs {
		c.cut()
	}
	return len(pairs)
}

// Conns returns the number of open connections, and the total number of connections.
func (p *Proxy) Conns() (open, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs), p.total
}

// set makes a change and wakes whoever waits for one.
func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) }) // ends with the connection
	}
}

// serve passes one connection on until both directions have ended.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	target, refuse := p.target, p.refuse || p.closed
	p.mu.Unlock()
	if refuse {
		reset(client)
		return
	}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	server, err := dialer.DialContext(p.ctx, "tcp", target)
	if err != nil {
		reset(client)
		return
	}
	c := &pair{client: client, server: server, done: make(chan struct{})}
	p.mu.Lock()
	p.total++
	c.id = p.total
	p.pairs[c] = struct{}{}
	closed := p.closed
	p.mu.Unlock()
	if closed {
		c.cut()
	}
	var both sync.WaitGroup
	both.Go(func() { p.pass(c, Up, client, server) })
	both.Go(func() { p.pass(c, Down, server, client) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
	_ = client.Close()
	_ = server.Close()
}

// pass is one direction: a reader that stamps chunks with the time they are due, and
// this goroutine, which delivers them.
func (p *Proxy) pass(c *pair, d Direction, from, to net.Conn) {
	chunks := make(chan chunk, queued)
	var reader sync.WaitGroup
	reader.Go(func() { p.read(c, d, from, chunks) })
	defer reader.Wait()
	var free time.Time // when the line is free again, with a rate
	broken := false    // the other side is gone; its end comes back by the other direction
	for k := range chunks {
		if !p.hold(c, d, k.due, len(k.data), &free) {
			continue // cut: nothing is delivered any more
		}
		switch {
		case broken:
		case k.err == nil:
			_, err := to.Write(k.data)
			broken = err != nil
		case errors.Is(k.err, io.EOF):
			_ = to.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // dialled or accepted as tcp
		default: // reset by one side: the other sees the same
			c.cut()
		}
	}
}

// read fills chunks until its side ends or the connection is cut.
func (p *Proxy) read(c *pair, d Direction, from net.Conn, chunks chan<- chunk) {
	defer close(chunks)
	for {
		buf := make([]byte, chunkBytes)
		n, err := from.Read(buf)
		p.mu.Lock()
		k := chunk{data: buf[:n], err: err, due: time.Now().Add(p.ways[d].latency)}
		tap := p.tap
		flip := n > 0 && p.ways[d].corrupt > 0
		if flip {
			p.ways[d].corrupt--
		}
		p.mu.Unlock()
		if tap != nil && n > 0 {
			tap(c.id, d, k.data)
		}
		if flip {
			k.data[n/2] ^= 0x10
		}
		if n > 0 && err != nil { // the end is a chunk of its own
			k.err = nil
			if !c.put(chunks, k) {
				return
			}
			k = chunk{due: k.due, err: err}
		}
		if !c.put(chunks, k) || err != nil {
			return
		}
	}
}

func (c *pair) put(chunks chan<- chunk, k chunk) bool {
	select {
	case chunks <- k:
		return true
	case <-c.done:
		return false
	}
}

// hold returns when a chunk may be delivered: it is due, the line is free and the
// direction not frozen. It returns false if the connection was cut.
func (p *Proxy) hold(c *pair, d Direction, due time.Time, size int, free *time.Time) bool {
	for {
		p.mu.Lock()
		w, changed := p.ways[d], p.changed
		p.mu.Unlock()
		at := due
		if w.rate > 0 && free.After(at) {
			at = *free
		}
		wait := time.Until(at)
		var timer <-chan time.Time
		if !w.frozen {
			if wait <= 0 {
				if w.rate > 0 {
					start := time.Now()
					if free.After(start) {
						start = *free
					}
					*free = start.Add(time.Duration(float64(size) / w.rate * float64(time.Second)))
				}
				return !c.isCut()
			}
			timer = time.After(wait)
		}
		select {
		case <-timer:
		case <-changed:
		case <-c.done:
			return false
		}
	}
}

func (c *pair) isCut() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// cut resets both sides.
func (c *pair) cut() {
	c.once.Do(func() {
		close(c.done)
		reset(c.client)
		reset(c.server)
	})
}

// reset closes a connection so that the other end is told by RST.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
