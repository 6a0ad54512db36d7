package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
)

// listener collects the control messages of a server.
type listener struct{ got chan any }

func (l listener) Text(msg []byte) error {
	v, err := wire.DecodeControl(msg)
	if err == nil {
		l.got <- v
	}
	return err
}

func (l listener) Binary(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }

// next returns the next message of a type.
func next[T any](t *testing.T, l listener) T {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case v := <-l.got:
			if m, ok := v.(T); ok {
				return m
			}
		case <-deadline:
			var zero T
			require.Failf(t, "no message", "%T", zero)
		}
	}
}

func (s *site) dialStream() (*wsconn.Conn, error) {
	return wsconn.Dial(s.t.Context(), "ws"+strings.TrimPrefix(s.url, "http")+"/v1/stream", wsconn.DialConfig{Subprotocol: wire.Protocol})
}

func TestASampleCrossesTheStreamAndTheServersTimeoutsDoNotEndIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Config.HeaderTimeout, o.Config.BodyTimeout, o.Config.IdleTimeout, o.Config.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
		o.Config.MaxStreams = 1
	}})
	conn, err := s.dialStream()
	require.NoError(t, err)
	l := listener{make(chan any, 16)}
	ended := make(chan error, 1)
	go func() { ended <- conn.Run(context.WithoutCancel(t.Context()), l) }()
	hello, err := wire.EncodeControl(&wire.Hello{Run: "exp", Reward: "picky"})
	require.NoError(t, err)
	require.NoError(t, conn.Send(hello))
	next[*wire.Welcome](t, l)

	_, err = s.dialStream() // one beyond the limit
	var refused *wsconn.HandshakeError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, http.StatusServiceUnavailable, refused.Status)
	assert.NotEmpty(t, refused.Header.Get("Retry-After"))

	<-time.After(300 * time.Millisecond) // six times each timeout
	frame := sampleFrame(t, "a", "ok")
	require.NoError(t, conn.SendBinary(t.Context(), frame))
	res := next[*wire.Result](t, l)
	assert.Equal(t, "a", res.ID)
	assert.InDelta(t, 1, *res.RewardScore, 0)

	require.NoError(t, s.Stop(t.Context()))
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(patience):
		require.Fail(t, "the stream outlives the server")
	}
}

func TestAPlainGetOfTheStreamIsToldToUpgrade(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	assert.Equal(t, http.StatusUpgradeRequired, s.get("/v1/stream").StatusCode)
}

func sampleFrame(t *testing.T, id, prompt string) []byte {
	t.Helper()
	m, err := wire.Encode(&rewards.Sample{ID: id, Prompt: prompt}, wire.Options{})
	require.NoError(t, err)
	return m.Bytes()
}

func TestAClientOfAnotherReleaseIsRefusedWithProtocolAndReleaseOfBothSides(t *testing.T) {
	t.Parallel()
	said := new(logs)
	s := newSite(t, siteOptions{server: func(o *server.Options) {
		o.Version, o.Log = "1.8", slog.New(slog.NewTextHandler(said, nil))
	}})
	for offered, words := range map[string]string{
		"rewardloop.v0":                "rewardloop.v0",
		"rewardloop.v2, rewardloop.v3": "rewardloop.v2, rewardloop.v3",
		"":                             "names no protocol",
		strings.Repeat("x", 9000):      strings.Repeat("x", 90),
	} {
		r := s.get("/v1/stream", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13",
			"Sec-Websocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-Websocket-Protocol", offered, "User-Agent", "rewardloop-python/0.9")
		require.Equal(t, http.StatusBadRequest, r.StatusCode)
		assert.Equal(t, "rewardloop.v1", r.Header.Get("Sec-Websocket-Protocol"), "what is spoken here, for programs")
		assert.Less(t, len(r.body), 1<<10, "clients read no more")
		for _, word := range []string{words, "rewardloop-python/0.9", "this server (rewardloop/1.8) uses", "rewardloop.v1", "install the same release on both sides"} {
			assert.Contains(t, string(r.body), word)
			assert.Contains(t, said.String(), word)
		}
	}
	assert.Contains(t, said.String(), `level=WARN msg="a client of another release was refused"`)
	for range 100 {
		s.get("/v1/stream", "Connection", "Upgrade", "Upgrade", "websocket")
	}
	assert.Less(t, strings.Count(said.String(), "of another release"), 60, "not all of them")
}
