package outbound_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
)

// stalled is a connection that takes everything and answers when it is told to.
type stalled struct {
	answer <-chan struct{}
	left   []byte
	closed chan struct{}
	once   sync.Once
	total  int           // Written; only the writer touches it.
	stop   int           // Beyond so many bytes it takes no more until flowing is closed.
	there  *atomic.Int64 // Counts connections that have come to stop.
	flows  <-chan struct{}
}

func (c *stalled) Read(b []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case <-c.answer:
	}
	if len(c.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

func (c *stalled) Write(b []byte) (int, error) {
	if c.total < c.stop && c.total+len(b) >= c.stop {
		c.there.Add(1)
		<-c.flows
	}
	c.total += len(b)
	return len(b), nil
}

func (c *stalled) Close() error                     { c.once.Do(func() { close(c.closed) }); return nil }
func (c *stalled) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *stalled) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *stalled) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (c *stalled) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *stalled) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func TestFiveThousandCallsInFlightCostLessThanAHundredKilobytesEach(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const calls, size = 5120, 48 << 10
	for name, stop := range map[string]int{"while they are sent": size / 2, "while they wait for the answer": size} {
		var there, wrong atomic.Int64
		release, flows := make(chan struct{}), make(chan struct{})
		if stop == size {
			close(flows)
		}
		tr, err := outbound.NewTransport(outbound.Policy{})
		require.NoError(t, err)
		outbound.SetDial(tr, func(context.Context, string, string) (net.Conn, error) {
			return &stalled{
				answer: release, left: []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), closed: make(chan struct{}),
				stop: stop, there: &there, flows: flows,
			}, nil
		})
		g, err := tr.Upstream(outbound.UpstreamConfig{URLs: []string{"http://a", "http://b"}, Concurrency: calls, Timeout: 10 * time.Minute})
		require.NoError(t, err)
		body := make([]byte, size) // One for all: a body is the caller's memory.
		before := inUse()
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				a, err := g.Do(t.Context(), &outbound.Call{Path: "/v1/score", Body: body})
				if err != nil || string(a.Body) != "ok" {
					wrong.Add(1)
				}
			})
		}
		require.Eventually(t, func() bool { return there.Load() == calls }, time.Minute, 10*time.Millisecond)
		each := (inUse() - before) / calls
		t.Logf("%s: %d bytes each", name, each)
		assert.Less(t, each, uint64(100<<10), name)
		if stop < size {
			close(flows)
		}
		close(release)
		wg.Wait()
		assert.Zero(t, wrong.Load(), name)
		tr.Close()
	}
}
