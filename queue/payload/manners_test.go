package payload_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/wire"
)

// end is one side of a connection that says whatever a test wants.
type end struct {
	conn  *wsconn.Conn
	texts chan string
	ended chan error
}

func (e *end) Text(b []byte) error { e.texts <- string(b); return nil }

func (e *end) Binary(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }

func (e *end) run(t *testing.T, conn *wsconn.Conn) {
	t.Helper()
	e.conn = conn
	go func() { e.ended <- conn.Run(t.Context(), e) }()
}

func (e *end) say(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, e.conn.Send([]byte(text)))
}

func newEnd() *end { return &end{texts: make(chan string, 100), ended: make(chan error, 1)} }

// stranger opens a connection with a good token.
func stranger(t *testing.T, r *rig) *end {
	t.Helper()
	ticket := r.ticket("sample-1", 10)
	key, err := json.Marshal(ticket.Key())
	require.NoError(t, err)
	conn, err := wsconn.Dial(t.Context(), ticket.Claim, wsconn.DialConfig{
		Config: wsconn.Config{CloseTimeout: time.Second}, Subprotocol: wire.ClaimProtocol,
		Header: http.Header{"Authorization": {"Bearer " + ticket.Token}, "Rewardloop-Attempt": {base64.RawURLEncoding.EncodeToString(key)}},
	})
	require.NoError(t, err)
	e := newEnd()
	e.run(t, conn)
	return e
}

func TestTheGatewayEndsConnectionsThatBreakTheRules(t *testing.T) {
	t.Parallel()
	hello := `{"type":"hello","protocol":1,"session":"s"}`
	for what, texts := range map[string][]string{
		"no JSON":                     {hello, `{"type":`},
		"no hello":                    {`{"type":"confirm","n":[1]}`},
		"an unknown message first":    {`{"type":"whatever"}`},
		"two hellos":                  {hello, hello},
		"a session without a name":    {`{"type":"hello","protocol":1,"session":""}`},
		"a session with a long one":   {`{"type":"hello","protocol":1,"session":"` + strings.Repeat("x", 2000) + `"}`},
		"a gateway's message":         {hello, `{"type":"ok","n":1}`},
		"a claim without a number":    {hello, `{"type":"claim","attempt":{"id":"a","attempt":1},"token":"","worker":"w"}`},
		"a claim without a worker":    {hello, `{"type":"claim","n":1,"attempt":{"id":"a","attempt":1},"token":""}`},
		"a token of a kilobyte":       {hello, `{"type":"claim","n":1,"attempt":{"id":"a","attempt":1},"worker":"w","token":"` + strings.Repeat("x", 1024) + `"}`},
		"a result of nothing":         {hello, `{"type":"result","n":1,"token":"x"}`},
		"a result of another sample":  {hello, `{"type":"result","n":1,"token":"x","result":{"id":"b","outcome":"failed","worker":"w","attempt":{"id":"a","attempt":1}}}`},
		"a scored result without one": {hello, `{"type":"result","n":1,"token":"x","result":{"id":"a","outcome":"scored","worker":"w","attempt":{"id":"a","attempt":1}}}`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			e := stranger(t, r)
			for _, text := range texts {
				_ = e.conn.Send([]byte(text))
			}
			var closed *wsconn.CloseError
			require.ErrorAs(t, <-e.ended, &closed)
			require.Equal(t, wsconn.ClosePolicy, closed.Code)
			require.InDelta(t, 1, counter(t, r.reg, "rewardloop_claim_refused_total", "malformed"), 0)
		})
	}
}

func TestTheGatewayEndsConnectionsThatSayNothingOrSendBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *payload.ServerOptions) { o.Config.DialTimeout = 50 * time.Millisecond })
	mute := stranger(t, r)
	require.ErrorIs(t, <-mute.ended, wsconn.ErrPeerClosed)
	sender := stranger(t, r)
	_ = sender.conn.SendBinary(t.Context(), []byte("x"))
	require.ErrorIs(t, <-sender.ended, wsconn.ErrPeerClosed)
	require.Empty(t, r.lost)
}

func TestAnotherProtocolIsRefusedByNameAndLaterFieldsArePassedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *payload.ServerOptions) { o.Version = "1.8" })
	for n, protocol := range []string{"2", "0"} { // a later release's, and an earlier one's
		other := stranger(t, r)
		other.say(t, `{"type":"hello","protocol":`+protocol+`,"session":"s","version":"9.0"}`)
		require.Contains(t, <-other.texts, `"reason":"protocol","message":"the worker (release 9.0) uses protocol `+protocol+
			` of rewardloop.claim.v1, this gateway (release 1.8) uses protocol 1: install the same release on both sides"`)
		require.ErrorIs(t, <-other.ended, wsconn.ErrPeerClosed)
		require.InDelta(t, n+1, counter(t, r.reg, "rewardloop_claim_refused_total", "protocol"), 0)
	}

	same := stranger(t, r)
	same.say(t, `{"type":"hello","protocol":1,"session":"s","version":"1.9","colour":{"r":[1,2]}}`)
	require.Contains(t, <-same.texts, `"type":"welcome"`)
	same.say(t, `{"type":"hurry","n":7}`)
	ticket := r.ticket("sample-1", 10)
	key, err := json.Marshal(ticket.Key())
	require.NoError(t, err)
	same.say(t, `{"type":"claim","n":1,"urgent":true,"attempt":`+string(key)+`,"token":"`+ticket.Token+`","worker":"w"}`)
	require.Contains(t, <-same.texts, `"type":"payload","n":1`)
	require.NoError(t, same.conn.Close(wsconn.CloseNormal, ""))
}

// gateway is a claim address that says whatever a test wants.
func gateway(t *testing.T, welcome string, say func(e *end, ask *wire.ClaimAsk)) wire.Ticket {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Config: wsconn.Config{CloseTimeout: time.Second}, Subprotocols: []string{wire.ClaimProtocol}})
		if err != nil {
			return
		}
		e := newEnd()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for text := range e.texts {
				v, err := wire.DecodeClaim([]byte(text))
				switch m := v.(type) {
				case *wire.ClaimHello:
					_ = conn.Send([]byte(welcome))
				case *wire.ClaimAsk:
					e.conn = conn
					say(e, m)
				default:
					_ = err
				}
			}
		}()
		_ = conn.Run(context.Background(), e)
		close(e.texts)
		<-ended
	}))
	t.Cleanup(srv.Close)
	return wire.Ticket{
		ID: "sample-1", Run: "r", Gateway: gatewayName, Attempt: 1, Bytes: 100, Token: "t", Claim: "ws" + strings.TrimPrefix(srv.URL, "http"),
	}
}

const welcome = `{"type":"welcome","protocol":1,"gateway":"gateway-1","mood":"good"}`

func TestAWorkerMakesNothingOfAGatewaysGarbage(t *testing.T) {
	t.Parallel()
	chunk := func(n uint64, b string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), b...)
	}
	answer := func(e *end, n uint64) {
		b, _ := wire.EncodeClaim(&wire.ClaimPayload{N: n, Frames: []wire.ClaimFrame{{Sum: wire.Checksum{Len: 20}}}})
		_ = e.conn.Send(b)
	}
	for what, say := range map[string]func(e *end, m *wire.ClaimAsk){
		"no JSON":                 func(e *end, _ *wire.ClaimAsk) { _ = e.conn.Send([]byte(`{"type":"payload"`)) },
		"a worker's message":      func(e *end, _ *wire.ClaimAsk) { _ = e.conn.Send([]byte(`{"type":"bye"}`)) },
		"ok in answer to a claim": func(e *end, m *wire.ClaimAsk) { e.sayOK(m.N) },
		"a short chunk":           func(e *end, _ *wire.ClaimAsk) { _ = e.conn.SendBinary(context.Background(), []byte("abc")) },
		"bytes unannounced":       func(e *end, m *wire.ClaimAsk) { _ = e.conn.SendBinary(context.Background(), chunk(m.N, "abc")) },
		"more bytes than said": func(e *end, m *wire.ClaimAsk) {
			answer(e, m.N)
			_ = e.conn.SendBinary(context.Background(), chunk(m.N, strings.Repeat("x", 21)))
		},
		"bytes that are no frame": func(e *end, m *wire.ClaimAsk) {
			answer(e, m.N)
			_ = e.conn.SendBinary(context.Background(), chunk(m.N, strings.Repeat("x", 20)))
		},
		"announced twice":  func(e *end, m *wire.ClaimAsk) { answer(e, m.N); answer(e, m.N) },
		"a second welcome": func(e *end, _ *wire.ClaimAsk) { _ = e.conn.Send([]byte(welcome)) },
		"a group for a sample": func(e *end, m *wire.ClaimAsk) {
			b, _ := wire.EncodeClaim(&wire.ClaimPayload{N: m.N, Group: &wire.Group{UID: "u", Size: 1}})
			_ = e.conn.Send(b)
		},
		"too much": func(e *end, m *wire.ClaimAsk) {
			b, _ := wire.EncodeClaim(&wire.ClaimPayload{N: m.N, Frames: []wire.ClaimFrame{{Sum: wire.Checksum{Len: 1 << 50}}}})
			_ = e.conn.Send(b)
		},
		"too big a message": func(e *end, _ *wire.ClaimAsk) { _ = e.conn.SendBinary(context.Background(), make([]byte, 300<<10)) },
		"silence":           func(*end, *wire.ClaimAsk) {},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ticket := gateway(t, welcome, say)
			w := newWorker(t, func(o *payload.ClientOptions) { o.Config.StallTimeout = 100 * time.Millisecond })
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, _, err := w.Claim(ctx, ticket, "worker-1")
			require.Error(t, err)
			require.NotErrorIs(t, err, wire.ErrGone)
		})
	}
}

func (e *end) sayOK(n uint64) {
	b, _ := wire.EncodeClaim(&wire.ClaimOK{N: n})
	_ = e.conn.Send(b)
}

func TestAGatewayThatSpeaksAnotherProtocolIsNotUnderstood(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"2", "0"} {
		ticket := gateway(t, `{"type":"welcome","protocol":`+protocol+`,"version":"9.0","gateway":"gateway-1"}`, nil)
		w := newWorker(t, func(o *payload.ClientOptions) { o.Version = "1.8" })
		_, _, err := w.Claim(t.Context(), ticket, "worker-1")
		require.ErrorIs(t, err, wire.ErrUnreachable)
		want := "the gateway (release 9.0) uses protocol " + protocol + " of rewardloop.claim.v1, this worker (release 1.8) uses protocol 1: install the same release"
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, w.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1)), want, "a result does not wait for ever")
	}
}

func TestAnotherSubProtocolIsRefusedWithBothReleasesOnBothSides(t *testing.T) {
	t.Parallel()
	var log buffer
	r := newRig(t, func(o *payload.ServerOptions) { o.Version, o.Log = "1.8", slog.New(slog.NewTextHandler(&log, nil)) })
	ticket := r.ticket("sample-1", 10)
	key, err := json.Marshal(ticket.Key())
	require.NoError(t, err)
	_, err = wsconn.Dial(t.Context(), ticket.Claim, wsconn.DialConfig{
		Subprotocol: "rewardloop.claim.v0", Version: "0.9",
		Header: http.Header{"Authorization": {"Bearer " + ticket.Token}, "Rewardloop-Attempt": {base64.RawURLEncoding.EncodeToString(key)}},
	})
	for _, word := range []string{"rewardloop/0.9", "rewardloop.claim.v0", "rewardloop/1.8", "rewardloop.claim.v1", "install the same release on both sides"} {
		require.ErrorContains(t, err, word)
		require.Eventually(t, func() bool { return strings.Contains(log.String(), word) }, 30*time.Second, time.Millisecond, word)
	}
	require.InDelta(t, 1, counter(t, r.reg, "rewardloop_claim_refused_total", "protocol"), 0)

	later := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Subprotocols: []string{"rewardloop.claim.v2"}, Version: "9.0"})
	}))
	t.Cleanup(later.Close)
	ticket.Claim = "ws" + strings.TrimPrefix(later.URL, "http")
	w := newWorker(t, func(o *payload.ClientOptions) { o.Version = "1.8" })
	_, _, err = w.Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, wire.ErrUnreachable, "the ticket returns to the queue")
	err = w.Finish(t.Context(), ticket, scored(ticket, "worker-1", 1))
	for _, word := range []string{"rewardloop/1.8", "rewardloop.claim.v1", "rewardloop/9.0", "rewardloop.claim.v2"} {
		require.ErrorContains(t, err, word, "a result does not wait for ever")
	}
}

// buffer is a log that is written and read at the same time.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestAWorkerPassesOverWhatItDoesNotKnowOrNoLongerWants(t *testing.T) {
	t.Parallel()
	ticket := gateway(t, welcome, func(e *end, m *wire.ClaimAsk) {
		_ = e.conn.Send([]byte(`{"type":"hurry","n":7}`))
		b, _ := wire.EncodeClaim(&wire.ClaimPayload{N: m.N + 1, Frames: []wire.ClaimFrame{{Sum: wire.Checksum{Len: 20}}}})
		_ = e.conn.Send(b)
		e.sayOK(m.N + 1)
		b, _ = wire.EncodeClaim(&wire.ClaimRefused{N: m.N, Reason: wire.RefusedGone})
		_ = e.conn.Send(b)
	})
	_, _, err := newWorker(t).Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, wire.ErrGone)
}

func TestBytesOfAGroupThatIsNoneOrCorruptAreGivenBack(t *testing.T) {
	t.Parallel()
	gw := newStore()
	defer gw.empty(t)
	gw.add(t, "s", 10)
	frame := gw.frames["s"]
	for what, c := range map[string]struct {
		group  *wire.Group
		frames int
		spoil  bool
		want   error
	}{
		"a sample for a group":                          {frames: 1, want: payload.ErrRefused},
		"a group whose first member is corrupt at last": {group: &wire.Group{UID: "u", Size: 3}, frames: 3, spoil: true, want: wire.ErrCorrupt},
	} {
		ticket := gateway(t, welcome, func(e *end, m *wire.ClaimAsk) {
			p := &wire.ClaimPayload{N: m.N, Group: c.group}
			var bytes []byte
			for range c.frames {
				p.Frames = append(p.Frames, wire.ClaimFrame{Sum: frame.Sum()})
				bytes = append(bytes, frame.Bytes()...)
			}
			if c.spoil {
				bytes[len(bytes)/3-1] ^= 1
			}
			b, _ := wire.EncodeClaim(p)
			_ = e.conn.Send(b)
			_ = e.conn.SendBinary(context.Background(), binary.LittleEndian.AppendUint64(nil, m.N), bytes)
		})
		ticket.Bytes = 1 << 20
		_, err := newWorker(t).ClaimGroup(t.Context(), ticket, "worker-1") // which looks for leaks at its end
		require.ErrorIs(t, err, c.want, what)
	}
}

func TestAGatewayThatRefusesTheConnectionSaysWhy(t *testing.T) {
	t.Parallel()
	ticket := gateway(t, `{"type":"refused","reason":"protocol","message":"the worker speaks protocol 1"}`, nil)
	_, _, err := newWorker(t).Claim(t.Context(), ticket, "worker-1")
	require.ErrorIs(t, err, wire.ErrUnreachable)
	require.ErrorContains(t, err, "the worker speaks protocol 1")
}

func TestAClaimAtAnotherGatewayIsGoneAfterTheUpgradeToo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := stranger(t, r)
	e.say(t, `{"type":"hello","protocol":1,"session":"s"}`)
	require.Contains(t, <-e.texts, `"type":"welcome"`)
	e.say(t, `{"type":"claim","n":1,"attempt":{"gateway":"other","id":"a","attempt":1},"token":"v1.","worker":"w"}`)
	require.Contains(t, <-e.texts, `"reason":"gone"`)
}
