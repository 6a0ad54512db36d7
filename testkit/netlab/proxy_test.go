package netlab_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/netlab"
)

// echo listens on address and sends back what it gets.
func echo(t *testing.T, l net.Listener) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() { // ends when the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return l
}

// through is a proxy to an echo and a connection through it.
func through(t *testing.T) (*netlab.Proxy, net.Conn) {
	t.Helper()
	l := listen(t)
	echo(t, l)
	p := netlab.NewProxy(t, "", l.Addr().String())
	return p, dial(t, p.Addr())
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// requireReset says that a connection does not live; the reset may come before its
// dialler has noticed that there was one.
func requireReset(t *testing.T, addr string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err == nil {
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		_, err = c.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// roundTrip sends b and returns what came back, and how long that took.
func roundTrip(t *testing.T, c net.Conn, b []byte) ([]byte, time.Duration) {
	t.Helper()
	begun := time.Now()
	var sender sync.WaitGroup
	sender.Go(func() {
		_, err := c.Write(b)
		assert.NoError(t, err)
	})
	got := make([]byte, len(b))
	_, err := io.ReadFull(c, got)
	sender.Wait()
	require.NoError(t, err)
	return got, time.Since(begun)
}

// silent says that nothing comes for a while.
func silent(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(d)))
	n, err := c.Read(make([]byte, 1))
	require.Zero(t, n)
	ne, ok := errors.AsType[net.Error](err)
	require.True(t, ok && ne.Timeout(), "%v", err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
}

func TestAProxyPassesEveryByteBothWaysAndTheEndOfEach(t *testing.T) {
	t.Parallel()
	_, c := through(t)
	b := make([]byte, 6<<20) // more than the proxy holds
	_, _ = rand.Read(b)
	got, _ := roundTrip(t, c, b)
	require.True(t, bytes.Equal(b, got))
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	rest, err := io.ReadAll(c)
	require.NoError(t, err, "the end of one direction comes back as that of the other, not as a reset")
	require.Empty(t, rest)
}

func TestAProxyDelaysEachWayByItself(t *testing.T) {
	t.Parallel()
	p, c := through(t)
	p.Latency(netlab.Up, 60*time.Millisecond)
	p.Latency(netlab.Down, 40*time.Millisecond)
	_, took := roundTrip(t, c, []byte("x"))
	require.GreaterOrEqual(t, took, 100*time.Millisecond)
	require.Less(t, took, 5*time.Second)
	// Latency is not bandwidth: 2 MiB in 64 reads take one delay, not 64.
	_, took = roundTrip(t, c, make([]byte, 2<<20))
	require.Less(t, took, 3*time.Second)
}

func TestAProxyLimitsTheBandwidth(t *testing.T) {
	t.Parallel()
	p, c := through(t)
	p.Rate(netlab.Up, 8<<20) // 1 MiB a second
	_, took := roundTrip(t, c, make([]byte, 256<<10))
	require.GreaterOrEqual(t, took, 200*time.Millisecond) // the last read leaves as soon as the line is free
	require.Less(t, took, 5*time.Second)
}

func TestAFrozenWayHoldsBytesAndTheEndBackUntilItThaws(t *testing.T) {
	t.Parallel()
	p, c := through(t)
	p.Freeze(netlab.Up)
	_, err := c.Write([]byte("later"))
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	silent(t, c, 50*time.Millisecond)
	open, _ := p.Conns()
	require.Equal(t, 1, open)
	p.Thaw(netlab.Up)
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "later", string(got))
}

func TestOneWayCanBeFrozenWhileTheOtherPasses(t *testing.T) {
	t.Parallel()
	l := listen(t)
	defer l.Close()
	p := netlab.NewProxy(t, "", l.Addr().String())
	c := dial(t, p.Addr())
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()
	p.Freeze(netlab.Down)
	_, err = server.Write([]byte("d"))
	require.NoError(t, err)
	_, err = c.Write([]byte("u"))
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = io.ReadFull(server, b)
	require.NoError(t, err)
	require.Equal(t, "u", string(b))
	silent(t, c, 50*time.Millisecond)
}

func TestACutResetsBothSides(t *testing.T) {
	t.Parallel()
	l := listen(t)
	defer l.Close()
	p := netlab.NewProxy(t, "", l.Addr().String())
	c := dial(t, p.Addr())
	server, err := l.Accept()
	require.NoError(t, err)
	defer server.Close()
	_, err = c.Write([]byte("u"))
	require.NoError(t, err)
	_, err = io.ReadFull(server, make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, p.Cut())
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = server.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestACutEndsAFrozenConnectionToo(t *testing.T) {
	t.Parallel()
	p, c := through(t)
	_, _ = roundTrip(t, c, []byte("x"))
	p.Freeze(netlab.Up)
	p.Freeze(netlab.Down)
	_, err := c.Write([]byte("x"))
	require.NoError(t, err)
	p.Cut()
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestARefusingProxyResetsNewConnectionsAndKeepsTheOld(t *testing.T) {
	t.Parallel()
	p, old := through(t)
	_, _ = roundTrip(t, old, []byte("x"))
	p.Refuse(true)
	requireReset(t, p.Addr())
	_, _ = roundTrip(t, old, []byte("x"))
	p.Refuse(false)
	_, _ = roundTrip(t, dial(t, p.Addr()), []byte("x"))
}

func TestATargetThatIsNotThereResetsTheConnection(t *testing.T) {
	t.Parallel()
	l := listen(t)
	require.NoError(t, l.Close())
	p := netlab.NewProxy(t, "", l.Addr().String())
	requireReset(t, p.Addr())
	there := listen(t)
	echo(t, there)
	p.Target(there.Addr().String())
	_, _ = roundTrip(t, dial(t, p.Addr()), []byte("x"))
}

func TestCorruptionFlipsOneBitOfOneReadAndTheTapSeesWhatWasSent(t *testing.T) {
	t.Parallel()
	l := listen(t)
	echo(t, l)
	p := netlab.NewProxy(t, "", l.Addr().String())
	var mu sync.Mutex
	seen := map[netlab.Direction][]byte{}
	p.Tap(func(conn int, way netlab.Direction, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, 1, conn)
		seen[way] = append(seen[way], b...)
	})
	c := dial(t, p.Addr())
	p.Corrupt(netlab.Up, 1)
	got, _ := roundTrip(t, c, []byte("abc"))
	require.Equal(t, "arc", string(got))
	require.True(t, p.Corrupted(netlab.Up))
	got, _ = roundTrip(t, c, []byte("abc"))
	require.Equal(t, "abc", string(got))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, "abcabc", string(seen[netlab.Up]))
	require.Equal(t, "arcabc", string(seen[netlab.Down]))
}

func TestAProxyClosesTwiceAndWithConnectionsOpen(t *testing.T) {
	t.Parallel()
	p, c := through(t)
	_, _ = roundTrip(t, c, []byte("x"))
	p.Freeze(netlab.Down)
	_, err := c.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	p.Close()
	p.Close()
	// A process that another test forks has the socket too, until it executes its program.
	require.Eventually(t, func() bool {
		conn, err := net.DialTimeout("tcp", p.Addr(), time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, 10*time.Second, 10*time.Millisecond)
}
