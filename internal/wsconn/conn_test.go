package wsconn_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/wsconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const protocol = "rewardloop.v1"

// funcs is a Handler of two functions.
type funcs struct {
	text   func([]byte) error
	binary func(io.Reader) error
}

func (f funcs) Text(msg []byte) error {
	if f.text == nil {
		return nil
	}
	return f.text(msg)
}

func (f funcs) Binary(r io.Reader) error {
	if f.binary == nil {
		return nil
	}
	return f.binary(r)
}

// side is one end of a connection under test with its running Run.
type side struct {
	*wsconn.Conn

	ended chan error // what Run returned
}

func run(ctx context.Context, c *wsconn.Conn, h wsconn.Handler) side {
	s := side{c, make(chan error, 1)}
	go func() { s.ended <- c.Run(ctx, h) }()
	return s
}

// wait returns what Run returned, within ten seconds.
func (s side) wait(tb testing.TB) error {
	tb.Helper()
	select {
	case err := <-s.ended:
		s.ended <- err
		return err
	case <-time.After(10 * time.Second):
		require.Fail(tb, "the connection did not end")
		return nil
	}
}

// serve starts a server whose one connection runs h; the channel yields it.
func serve(tb testing.TB, cfg wsconn.Config, h wsconn.Handler) (url string, conns <-chan side) {
	tb.Helper()
	return serveAt(tb, nil, cfg, h)
}

// serveAt serves at a listener; nil: one of this machine's ports.
func serveAt(tb testing.TB, l net.Listener, cfg wsconn.Config, h wsconn.Handler) (url string, conns <-chan side) {
	tb.Helper()
	ch := make(chan side, 16)
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Config: cfg, Subprotocols: []string{protocol}})
		if err != nil {
			return
		}
		s := side{c, make(chan error, 1)}
		ch <- s
		s.ended <- c.Run(ctx, h)
	}))
	if l != nil {
		_ = srv.Listener.Close()
		srv.Listener = l
	}
	srv.Start()
	tb.Cleanup(func() {
		cancel()
		srv.Close()
	})
	return "ws" + strings.TrimPrefix(srv.URL, "http"), ch
}

func dial(tb testing.TB, url string, cfg wsconn.Config, h wsconn.Handler) side {
	tb.Helper()
	c, err := wsconn.Dial(tb.Context(), url, wsconn.DialConfig{Config: cfg, Subprotocol: protocol})
	require.NoError(tb, err)
	s := run(context.WithoutCancel(tb.Context()), c, h)
	tb.Cleanup(func() {
		assert.NoError(tb, c.Close(wsconn.CloseNormal, ""))
		_ = s.wait(tb)
	})
	return s
}

// inMemory is a listener without a network, for tests in fake time: a busy machine is no
// slow peer there.
type inMemory struct {
	conns chan net.Conn
	ended chan struct{}
	end   func()
}

func newInMemory() *inMemory {
	l := &inMemory{conns: make(chan net.Conn), ended: make(chan struct{})}
	l.end = sync.OnceFunc(func() { close(l.ended) })
	return l
}

func (l *inMemory) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *inMemory) Close() error {
	l.end()
	return nil
}

func (l *inMemory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *inMemory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bare connects with gorilla alone: a peer without manners.
func bare(tb testing.TB, url string) *websocket.Conn {
	tb.Helper()
	return bareBy(tb, url, nil)
}

// bareBy is bare over what dial connects to; nil: the network.
func bareBy(tb testing.TB, url string, dial func(context.Context, string, string) (net.Conn, error)) *websocket.Conn {
	tb.Helper()
	d := websocket.Dialer{NetDialContext: dial, Subprotocols: []string{protocol}, HandshakeTimeout: 5 * time.Second}
	c, resp, err := d.DialContext(tb.Context(), url, nil)
	require.NoError(tb, err)
	_ = resp.Body.Close()
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func accepted(tb testing.TB, conns <-chan side) side {
	tb.Helper()
	select {
	case s := <-conns:
		return s
	case <-time.After(10 * time.Second):
		require.Fail(tb, "nobody connected")
		return side{}
	}
}

// closeCode reads until the close frame.
func closeCode(tb testing.TB, c *websocket.Conn) (int, string) {
	tb.Helper()
	require.NoError(tb, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			var ce *websocket.CloseError
			require.ErrorAs(tb, err, &ce)
			return ce.Code, ce.Text
		}
	}
}

func body(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31 + i>>8)
	}
	return b
}

func TestMessagesArriveWholeAndInOrderInBothDirections(t *testing.T) {
	t.Parallel()
	sizes := []int{0, 1, 125, 126, 65535, 65536, 70_000, 786_432, 1 << 20, 3<<20 + 5}
	got := make(chan []byte, len(sizes))
	collect := funcs{binary: func(r io.Reader) error {
		b, err := io.ReadAll(r)
		got <- b
		return err
	}}
	url, conns := serve(t, wsconn.Config{}, collect)
	client := dial(t, url, wsconn.Config{}, collect)
	server := accepted(t, conns)
	assert.Equal(t, protocol, client.Subprotocol())
	assert.Equal(t, protocol, server.Subprotocol())
	for _, from := range []side{client, server} {
		for _, n := range sizes {
			want := body(n)
			require.NoError(t, from.SendBinary(t.Context(), want))
			require.Equal(t, want, append([]byte{}, <-got...))
			// In parts, as a frame's head and tensors.
			require.NoError(t, from.SendBinary(t.Context(), want[:n/3], want[n/3:n/2], want[n/2:]))
			require.Equal(t, want, append([]byte{}, <-got...))
		}
	}
}

func TestABurstOfTextsOfAnySizeKeepsItsOrder(t *testing.T) {
	t.Parallel()
	texts := make(chan string, 1000)
	url, conns := serve(t, wsconn.Config{}, funcs{})
	dial(t, url, wsconn.Config{TextBytes: 1 << 20}, funcs{text: func(b []byte) error {
		texts <- string(b)
		return nil
	}})
	server := accepted(t, conns)
	var want []string
	for i := range 1000 {
		n := 10 + i%50
		if i%100 == 7 {
			n = 200_000 // beyond every buffer
		}
		want = append(want, strings.Repeat(string(rune('a'+i%26)), n))
		require.NoError(t, server.Send([]byte(want[i])))
	}
	for i := range want {
		require.Equal(t, want[i], <-texts, i)
	}
	assert.Eventually(t, func() bool { return server.Queued() == 0 }, 5*time.Second, time.Millisecond)
}

func TestTextPassesBinaryThatWaits(t *testing.T) {
	t.Parallel()
	order := make(chan string, 16)
	hold := make(chan struct{})
	url, conns := serve(t, wsconn.Config{}, funcs{
		text: func([]byte) error { order <- "text"; return nil },
		binary: func(r io.Reader) error {
			<-hold
			_, err := io.Copy(io.Discard, r)
			order <- "binary"
			return err
		},
	})
	client := dial(t, url, wsconn.Config{}, funcs{})
	accepted(t, conns)
	sent := make(chan error, 2)
	big := make([]byte, 32<<20) // more than the kernel takes while nobody reads
	go func() { sent <- client.SendBinary(t.Context(), big) }()
	go func() { sent <- client.SendBinary(t.Context(), big) }()
	require.Eventually(t, func() bool { return client.Begun() && client.Waiting() == 1 }, 5*time.Second, time.Millisecond)
	require.NoError(t, client.Send([]byte("x")))
	close(hold)
	require.NoError(t, <-sent)
	require.NoError(t, <-sent)
	assert.Equal(t, []string{"binary", "text", "binary"}, []string{<-order, <-order, <-order})
}

func TestSendBinaryThatHasNotBegunIsTakenBack(t *testing.T) {
	t.Parallel()
	c, s := make(chan struct{}), make(chan error, 1)
	url, conns := serve(t, wsconn.Config{}, funcs{binary: func(io.Reader) error { <-c; return nil }})
	client := dial(t, url, wsconn.Config{}, funcs{})
	accepted(t, conns)
	go func() { s <- client.SendBinary(t.Context(), make([]byte, 32<<20)) }()
	require.Eventually(t, func() bool { return client.Begun() }, 5*time.Second, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, client.SendBinary(ctx, []byte("x")), context.Canceled)
	assert.Zero(t, client.Waiting())
	close(c)
	require.NoError(t, <-s)
}

func TestAPongPassesBetweenTheFragmentsOfAMessage(t *testing.T) {
	t.Parallel()
	const size = 32 << 20 // more than the kernel takes while nobody reads
	pinged, begun := make(chan struct{}, 1), make(chan struct{})
	type outcome struct {
		read, pongAt int
		err          error
	}
	result := make(chan outcome, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{Subprotocols: []string{protocol}}
		peer, err := up.Upgrade(w, r, nil)
		if err != nil {
			result <- outcome{err: err}
			return
		}
		defer func() { _ = peer.Close() }()
		<-begun
		o := outcome{pongAt: -1, err: peer.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))}
		<-pinged
		peer.SetPongHandler(func(string) error { o.pongAt = o.read; return nil })
		_, in, err := peer.NextReader()
		buf := make([]byte, 64<<10)
		for err == nil {
			var n int
			n, err = in.Read(buf)
			o.read += n
		}
		if !errors.Is(err, io.EOF) {
			o.err = err
		}
		result <- o
	}))
	defer srv.Close()
	client, err := wsconn.Dial(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http"), wsconn.DialConfig{Subprotocol: protocol})
	require.NoError(t, err)
	client.OnPing(func() { pinged <- struct{}{} })
	s := run(t.Context(), client, funcs{})
	sent := make(chan error, 1)
	go func() { sent <- client.SendBinary(t.Context(), make([]byte, size)) }()
	require.Eventually(t, client.Begun, 5*time.Second, time.Millisecond)
	close(begun)
	o := <-result
	require.NoError(t, o.err)
	require.NoError(t, <-sent)
	assert.Equal(t, size, o.read)
	assert.Positive(t, o.pongAt)
	assert.Less(t, o.pongAt, size)
	require.Error(t, s.wait(t))
}

func TestWhatTheHandlerLeavesUnreadIsDropped(t *testing.T) {
	t.Parallel()
	heads := make(chan string, 4)
	url, _ := serve(t, wsconn.Config{}, funcs{binary: func(r io.Reader) error {
		b := make([]byte, 3)
		_, err := io.ReadFull(r, b)
		heads <- string(b)
		return err
	}})
	client := dial(t, url, wsconn.Config{}, funcs{})
	for _, head := range []string{"one", "two"} {
		require.NoError(t, client.SendBinary(t.Context(), []byte(head), make([]byte, 2<<20)))
		assert.Equal(t, head, <-heads)
	}
}

func TestRunIsCalledOnce(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, wsconn.Config{}, funcs{})
	client := dial(t, url, wsconn.Config{}, funcs{})
	require.Eventually(t, func() bool { return client.Started() }, 5*time.Second, time.Millisecond)
	require.ErrorIs(t, client.Run(t.Context(), funcs{}), wsconn.ErrBusy)
}

func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	require.NoError(t, wsconn.Config{}.WithDefaults().Validate())
	err := wsconn.Config{ReadTimeout: -1, TextBytes: -1}.WithDefaults().Validate()
	require.ErrorContains(t, err, "read_timeout")
	require.ErrorContains(t, err, "text_bytes")
	_, err = wsconn.Dial(t.Context(), "ws://127.0.0.1:1", wsconn.DialConfig{Config: wsconn.Config{WriteTimeout: -1}})
	require.ErrorContains(t, err, "write_timeout")
}
