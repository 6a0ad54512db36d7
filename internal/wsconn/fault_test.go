package wsconn_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
)

func TestADisconnectInsideAFrameIsNoMessage(t *testing.T) {
	t.Parallel()
	read := make(chan error, 1)
	url, conns := serve(t, wsconn.Config{}, funcs{binary: func(r io.Reader) error {
		_, err := io.ReadAll(r)
		read <- err
		return errors.New("the handler's own words for it")
	}})
	peer := bare(t, url)
	server := accepted(t, conns)
	// A masked binary frame of 1 MiB of which 1000 bytes come.
	_, err := peer.NetConn().Write(append([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0}, make([]byte, 1000)...))
	require.NoError(t, err)
	require.NoError(t, peer.NetConn().Close())
	require.ErrorIs(t, <-read, wsconn.ErrLost)
	require.ErrorIs(t, server.wait(t), wsconn.ErrLost, "the cause, not what the handler made of it")
}

func TestAnOversizedMessageIsRefusedWithItsCode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind int
		h    funcs
	}{
		"binary":         {websocket.BinaryMessage, funcs{binary: func(r io.Reader) error { _, err := io.ReadAll(r); return err }}},
		"binary, unread": {websocket.BinaryMessage, funcs{}},
		"text":           {websocket.TextMessage, funcs{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, conns := serve(t, wsconn.Config{MessageBytes: 1000, TextBytes: 1000}, c.h)
			peer := bare(t, url)
			server := accepted(t, conns)
			require.NoError(t, peer.WriteMessage(c.kind, make([]byte, 1000)), "the limit itself is allowed")
			_ = peer.WriteMessage(c.kind, make([]byte, 5<<20)) // may or may not get through
			code, reason := closeCode(t, peer)
			assert.Equal(t, wsconn.CloseTooBig, code)
			assert.Contains(t, reason, "1000 bytes")
			require.ErrorIs(t, server.wait(t), wsconn.ErrTooBig)
		})
	}
}

func TestAFloodOfPingsIsAnsweredInBoundedMemory(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	url, conns := serve(t, wsconn.Config{}, funcs{text: func(b []byte) error { got <- string(b); return nil }})
	peer := bare(t, url)
	server := accepted(t, conns)
	pongs := 0
	last := make(chan struct{})
	peer.SetPongHandler(func(data string) error {
		if pongs++; data == "last" {
			close(last)
		}
		return nil
	})
	go func() { _, _, _ = peer.ReadMessage() }() // ends with the connection
	ping := []byte{0x89, 0x80 | 100, 0, 0, 0, 0}
	ping = append(ping, make([]byte, 100)...)
	flood := bytes.Repeat(ping, 1000)
	for range 20 {
		_, err := peer.NetConn().Write(flood)
		require.NoError(t, err)
	}
	require.NoError(t, peer.WriteControl(websocket.PingMessage, []byte("last"), time.Now().Add(time.Second)))
	require.NoError(t, peer.WriteMessage(websocket.TextMessage, []byte("alive")))
	assert.Equal(t, "alive", <-got)
	<-last
	assert.LessOrEqual(t, pongs, 20_001)
	assert.Zero(t, server.Queued())
}

func TestASlowConsumerIsCutOff(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, wsconn.Config{OutboxBytes: 1 << 20}, funcs{})
	bare(t, url) // never reads
	server := accepted(t, conns)
	text := []byte(strings.Repeat("x", 100_000))
	var err error
	for i := 0; err == nil; i++ {
		require.Less(t, i, 100_000)
		err = server.Send(text)
		require.LessOrEqual(t, server.Queued(), int64(1<<20))
	}
	require.ErrorIs(t, err, wsconn.ErrSlowPeer)
	require.ErrorIs(t, server.wait(t), wsconn.ErrSlowPeer)
	require.ErrorIs(t, server.Send(text), wsconn.ErrSlowPeer, "and later sends say why")
	require.ErrorIs(t, server.SendBinary(t.Context(), text), wsconn.ErrSlowPeer)
}

func TestAPeerThatReadsNothingFailsTheWriteInTime(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, wsconn.Config{WriteTimeout: 100 * time.Millisecond}, funcs{})
	bare(t, url)
	server := accepted(t, conns)
	require.ErrorIs(t, server.SendBinary(t.Context(), make([]byte, 64<<20)), wsconn.ErrSlowPeer)
	require.ErrorIs(t, server.wait(t), wsconn.ErrSlowPeer)
}

func TestATextTooBigForTheOutboxIsRefusedAlone(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, wsconn.Config{}, funcs{})
	client := dial(t, url, wsconn.Config{OutboxBytes: 100}, funcs{})
	require.ErrorIs(t, client.Send(make([]byte, 101)), wsconn.ErrTooBig)
	require.NoError(t, client.Send(make([]byte, 100)))
}

func TestAHalfOpenPeerIsNoticedInTime(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, wsconn.Config{ReadTimeout: 150 * time.Millisecond}, funcs{})
	bare(t, url) // does not read, so it never answers a ping
	server := accepted(t, conns)
	start := time.Now()
	require.ErrorIs(t, server.wait(t), wsconn.ErrSilentPeer)
	assert.Less(t, time.Since(start), 20*time.Second)
}

func TestAnIdlePeerThatAnswersPingsStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newInMemory()
		url, conns := serveAt(t, l, wsconn.Config{ReadTimeout: 30 * time.Second, PingInterval: 10 * time.Second}, funcs{})
		peer := bareBy(t, url, l.dial)
		server := accepted(t, conns)
		pings := 0
		answer := peer.PingHandler()
		peer.SetPingHandler(func(data string) error {
			pings++
			return answer(data)
		})
		go func() { _, _, _ = peer.ReadMessage() }() // ends with the connection
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, server.ended)
		require.Greater(t, pings, 300)
	})
}

func TestArrivingBytesAreASignOfLifeButNotForEver(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	url, conns := serve(t, wsconn.Config{ReadTimeout: 2 * time.Second, PingInterval: 1500 * time.Millisecond, MessageTimeout: 5 * time.Second}, funcs{})
	peer := bare(t, url)
	server := accepted(t, conns)
	start := time.Now()
	_, err := peer.NetConn().Write([]byte{0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0})
	require.NoError(t, err)
	drip := time.NewTicker(50 * time.Millisecond)
	defer drip.Stop()
	for err == nil {
		<-drip.C
		_, err = peer.NetConn().Write([]byte{0})
	}
	require.ErrorIs(t, server.wait(t), wsconn.ErrSlowMessage)
	assert.Greater(t, time.Since(start), 4*time.Second)
}

func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, wsconn.Config{}, funcs{text: func([]byte) error { return errors.New("must not be called") }})
	peer := bare(t, url)
	server := accepted(t, conns)
	require.NoError(t, peer.WriteMessage(websocket.TextMessage, []byte("a\xffb")))
	code, _ := closeCode(t, peer)
	assert.Equal(t, wsconn.CloseNotUTF8, code)
	require.ErrorIs(t, server.wait(t), wsconn.ErrNotUTF8)
}

func TestTheHandlersErrorBecomesTheCloseFrame(t *testing.T) {
	t.Parallel()
	refused := errors.New("a frame sent as text: " + strings.Repeat("é", 100))
	for name, c := range map[string]struct {
		err    error
		code   int
		reason string
	}{
		"a close error":   {&wsconn.CloseError{Code: wsconn.ClosePolicy, Reason: "no"}, wsconn.ClosePolicy, "no"},
		"any other error": {refused, wsconn.CloseInternal, refused.Error()[:122]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, conns := serve(t, wsconn.Config{}, funcs{text: func([]byte) error { return c.err }})
			peer := bare(t, url)
			server := accepted(t, conns)
			require.NoError(t, peer.WriteMessage(websocket.TextMessage, []byte("text instead of binary")))
			code, reason := closeCode(t, peer)
			assert.Equal(t, c.code, code)
			assert.Equal(t, c.reason, reason)
			require.ErrorIs(t, server.wait(t), c.err)
		})
	}
}

func TestBrokenFramesEndTheConnectionWithAProtocolError(t *testing.T) {
	t.Parallel()
	for name, frame := range map[string][]byte{
		"a reserved bit":             {0xC2, 0x80, 0, 0, 0, 0},
		"a reserved opcode":          {0x83, 0x80, 0, 0, 0, 0},
		"no mask":                    {0x82, 0x00},
		"a fragmented ping":          {0x09, 0x80, 0, 0, 0, 0},
		"a ping of 126 bytes":        append([]byte{0x89, 0xFE, 0, 126, 0, 0, 0, 0}, make([]byte, 126)...),
		"a continuation of nothing":  {0x80, 0x80, 0, 0, 0, 0},
		"a message within a message": {0x02, 0x80, 0, 0, 0, 0, 0x82, 0x80, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, conns := serve(t, wsconn.Config{}, funcs{})
			peer := bare(t, url)
			server := accepted(t, conns)
			_, err := peer.NetConn().Write(frame)
			require.NoError(t, err)
			code, _ := closeCode(t, peer)
			assert.Equal(t, wsconn.CloseProtocol, code)
			require.ErrorIs(t, server.wait(t), wsconn.ErrLost)
		})
	}
}

func TestCloseDeliversWhatIsQueuedAndThenTheCode(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, wsconn.Config{}, funcs{})
	peer := bare(t, url)
	server := accepted(t, conns)
	for range 100 {
		require.NoError(t, server.Send([]byte("result")))
	}
	closed := make(chan error, 1)
	go func() { closed <- server.Close(wsconn.CloseGoingAway, "draining") }()
	require.NoError(t, peer.SetReadDeadline(time.Now().Add(5*time.Second)))
	n := 0
	for {
		_, _, err := peer.ReadMessage()
		if err != nil {
			require.True(t, websocket.IsCloseError(err, wsconn.CloseGoingAway), err)
			break
		}
		n++
	}
	assert.Equal(t, 100, n)
	require.NoError(t, <-closed)
	require.ErrorIs(t, server.wait(t), wsconn.ErrClosed)
	require.ErrorIs(t, server.Send([]byte("x")), wsconn.ErrClosed)
	require.ErrorIs(t, server.SendBinary(t.Context(), []byte("x")), wsconn.ErrClosed)
	require.NoError(t, server.Close(wsconn.CloseNormal, ""), "twice is harmless")
}

func TestCloseWaitsABoundedTimeForAnUnresponsivePeer(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, wsconn.Config{CloseTimeout: 100 * time.Millisecond}, funcs{})
	bare(t, url)
	server := accepted(t, conns)
	sent := make(chan error, 1)
	go func() { sent <- server.SendBinary(t.Context(), make([]byte, 64<<20)) }()
	require.Eventually(t, server.Begun, 5*time.Second, time.Millisecond)
	start := time.Now()
	require.NoError(t, server.Close(wsconn.CloseNormal, ""))
	assert.Less(t, time.Since(start), 20*time.Second)
	require.ErrorIs(t, server.wait(t), wsconn.ErrClosed)
	require.Error(t, <-sent, "the message was cut")
}

func TestCloseSaysSoIfTheHandlerHangs(t *testing.T) {
	t.Parallel()
	hold, in := make(chan struct{}), make(chan struct{})
	url, conns := serve(t, wsconn.Config{CloseTimeout: 50 * time.Millisecond}, funcs{text: func([]byte) error {
		close(in)
		<-hold
		return nil
	}})
	peer := bare(t, url)
	server := accepted(t, conns)
	require.NoError(t, peer.WriteMessage(websocket.TextMessage, []byte("x")))
	<-in
	require.ErrorContains(t, server.Close(wsconn.CloseNormal, ""), "handler")
	close(hold)
	require.ErrorIs(t, server.wait(t), wsconn.ErrClosed)
}

func TestThePeersCloseIsAnsweredAndNamed(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, wsconn.Config{}, funcs{})
	peer := bare(t, url)
	server := accepted(t, conns)
	require.NoError(t, peer.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(wsconn.CloseGoingAway, "bye"), time.Now().Add(time.Second)))
	code, _ := closeCode(t, peer)
	assert.Equal(t, wsconn.CloseGoingAway, code)
	err := server.wait(t)
	require.ErrorIs(t, err, wsconn.ErrPeerClosed)
	var ce *wsconn.CloseError
	require.ErrorAs(t, err, &ce)
	assert.Equal(t, wsconn.CloseError{Code: wsconn.CloseGoingAway, Reason: "bye"}, *ce)
}

func TestTheEndOfTheContextClosesWithGoingAway(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, wsconn.Config{}, funcs{})
	c, err := wsconn.Dial(t.Context(), url, wsconn.DialConfig{Subprotocol: protocol})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := run(ctx, c, funcs{})
	why := errors.New("the run is over")
	cancel(why)
	require.ErrorIs(t, s.wait(t), why)
}

func TestCloseBeforeRunFreesTheSocket(t *testing.T) {
	t.Parallel()
	url, conns := serve(t, wsconn.Config{}, funcs{})
	c, err := wsconn.Dial(t.Context(), url, wsconn.DialConfig{Subprotocol: protocol})
	require.NoError(t, err)
	require.NoError(t, c.Close(wsconn.CloseNormal, ""))
	require.ErrorIs(t, c.Run(t.Context(), funcs{}), wsconn.ErrClosed)
	require.ErrorIs(t, accepted(t, conns).wait(t), wsconn.ErrLost)
}

func TestTheUpgradeIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, wsconn.Config{}, funcs{})
	for name, c := range map[string]struct {
		cfg    wsconn.DialConfig
		status int
		body   string
	}{
		"without sub-protocol":     {wsconn.DialConfig{}, http.StatusBadRequest, "sub-protocol"},
		"with another":             {wsconn.DialConfig{Subprotocol: "rewardloop.v9"}, http.StatusBadRequest, "rewardloop.v1"},
		"from another page":        {wsconn.DialConfig{Subprotocol: protocol, Header: http.Header{"Origin": {"https://evil.example"}}}, http.StatusForbidden, "evil.example"},
		"from an opaque origin":    {wsconn.DialConfig{Subprotocol: protocol, Header: http.Header{"Origin": {"null"}}}, http.StatusForbidden, "origin"},
		"from two origins at once": {wsconn.DialConfig{Subprotocol: protocol, Header: http.Header{"Origin": {"http://a", "http://b"}}}, http.StatusForbidden, "origin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wsconn.Dial(t.Context(), url, c.cfg)
			require.ErrorIs(t, err, wsconn.ErrHandshake)
			var he *wsconn.HandshakeError
			require.ErrorAs(t, err, &he)
			assert.Equal(t, c.status, he.Status)
			assert.Contains(t, he.Body, c.body)
		})
	}
	_, err := wsconn.Dial(t.Context(), url, wsconn.DialConfig{Subprotocol: "rewardloop.v0", Version: "0.9"})
	require.ErrorIs(t, err, wsconn.ErrProtocol)
	require.ErrorContains(t, err, `this side (rewardloop/0.9) uses "rewardloop.v0", the server uses "rewardloop.v1"`)
	require.ErrorContains(t, err, `the client ("rewardloop/0.9") uses "rewardloop.v0", this server (rewardloop/unknown) uses "rewardloop.v1": install the same release`)
	own := http.Header{"Origin": {"http" + strings.TrimPrefix(url, "ws")}}
	c, err := wsconn.Dial(t.Context(), url, wsconn.DialConfig{Subprotocol: protocol, Header: own})
	require.NoError(t, err, "the host's own page may connect")
	require.NoError(t, c.Close(wsconn.CloseNormal, ""))

	resp, err := http.Get("http" + strings.TrimPrefix(url, "ws"))
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusUpgradeRequired, resp.StatusCode)
}

func TestCompressionIsNeverNegotiated(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, wsconn.Config{}, funcs{})
	d := websocket.Dialer{Subprotocols: []string{protocol}, EnableCompression: true}
	c, resp, err := d.DialContext(t.Context(), url, nil)
	require.NoError(t, err)
	_ = resp.Body.Close()
	defer func() { _ = c.Close() }()
	assert.Empty(t, resp.Header.Values("Sec-Websocket-Extensions"))

	eager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Empty(t, r.Header.Values("Sec-Websocket-Extensions"), "we do not offer it")
		r.Header.Set("Sec-Websocket-Extensions", "permessage-deflate")
		up := websocket.Upgrader{EnableCompression: true, Subprotocols: []string{protocol}}
		if c, err := up.Upgrade(w, r, nil); err == nil {
			_ = c.Close()
		}
	}))
	defer eager.Close()
	_, err = wsconn.Dial(t.Context(), "ws"+strings.TrimPrefix(eager.URL, "http"), wsconn.DialConfig{Subprotocol: protocol})
	require.ErrorIs(t, err, wsconn.ErrHandshake)
}

func TestDialGivesUpInTime(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	url := "ws://" + l.Addr().String() // accepts in the kernel and never answers
	start := time.Now()
	_, err = wsconn.Dial(t.Context(), url, wsconn.DialConfig{Subprotocol: protocol, HandshakeTimeout: 50 * time.Millisecond})
	require.Error(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = wsconn.Dial(ctx, url, wsconn.DialConfig{Subprotocol: protocol})
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(start), 20*time.Second)
}

func TestItWorksOverTLS(t *testing.T) {
	t.Parallel()
	got := make(chan []byte, 1)
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Subprotocols: []string{protocol}})
		if err != nil {
			return
		}
		_ = c.Run(ctx, funcs{binary: func(r io.Reader) error {
			b, err := io.ReadAll(r)
			got <- b
			for range 10 {
				assert.NoError(t, c.Send([]byte("ok")))
			}
			return err
		}})
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // it would tell of the handshake refused below
	srv.StartTLS()
	defer srv.Close()
	defer cancel()
	pool := srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	texts := make(chan string, 10)
	c, err := wsconn.Dial(t.Context(), "wss"+strings.TrimPrefix(srv.URL, "https"), wsconn.DialConfig{Subprotocol: protocol, TLS: &tls.Config{RootCAs: pool}})
	require.NoError(t, err)
	s := run(t.Context(), c, funcs{text: func(b []byte) error { texts <- string(b); return nil }})
	want := body(3 << 20)
	require.NoError(t, c.SendBinary(t.Context(), want))
	require.Equal(t, want, <-got)
	for range 10 {
		require.Equal(t, "ok", <-texts)
	}
	require.NoError(t, c.Close(wsconn.CloseNormal, ""))
	_ = s.wait(t)
	_, err = wsconn.Dial(t.Context(), "wss"+strings.TrimPrefix(srv.URL, "https"), wsconn.DialConfig{Subprotocol: protocol})
	require.Error(t, err, "an unknown authority")
}
