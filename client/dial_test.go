package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// answering is the websocket address of a server that does what it is told to.
func answering(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return "ws" + strings.TrimPrefix(srv.URL, "http")
}

func TestARefusedHandshakeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusUnauthorized: "set TokenFile to the file with the server's token",
		http.StatusForbidden:    "set TokenFile to the file with the server's token",
		http.StatusNotFound:     "check that this is the address of a rewardloop server",
		http.StatusBadGateway:   "502",
	} {
		url := answering(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		_, err := client.Dial(t.Context(), client.Config{URL: url, Run: "r"})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, url)
	}
}

func TestAServerOfAnotherReleaseIsRefusedWithProtocolAndReleaseOfBothSides(t *testing.T) {
	t.Parallel()
	for _, spoken := range []string{"rewardloop.v0", "rewardloop.v2"} {
		url := answering(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Subprotocols: []string{spoken}, Version: "9.0"})
			assert.ErrorIs(t, err, wsconn.ErrProtocol)
		})
		_, err := client.Dial(t.Context(), client.Config{URL: url, Run: "r"})
		for _, word := range []string{url, spoken, "rewardloop/9.0", wire.Protocol, "this side (rewardloop/", "install the same release on both sides"} {
			require.ErrorContains(t, err, word)
		}
	}
	url := answering(t, func(w http.ResponseWriter, r *http.Request) { // one that agrees to what it does not speak
		conn, err := wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Subprotocols: []string{wire.Protocol}})
		if err == nil {
			_ = conn.Run(r.Context(), &other{conn: conn})
		}
	})
	_, err := client.Dial(t.Context(), client.Config{URL: url, Run: "r"})
	require.ErrorContains(t, err, `the server uses the protocol "rewardloop.v2", this client (rewardloop/`)
	require.ErrorContains(t, err, `"rewardloop.v1": install the same release on both sides`)
}

// other welcomes in another protocol.
type other struct {
	rawClient

	conn *wsconn.Conn
}

func (o *other) Text([]byte) error {
	b, err := wire.EncodeControl(&wire.Welcome{Session: "s", Epoch: 1, Protocol: "rewardloop.v2", Rewards: []wire.RewardInfo{{}}})
	if err == nil {
		err = o.conn.Send(b)
	}
	return err
}

func TestTheTokenIsShownAsItStandsInItsFile(t *testing.T) {
	t.Parallel()
	g := newFakeGateway(t, nil)
	shown := make(chan string, 8)
	g.guard = func(r *http.Request) { shown <- r.Header.Get("Authorization") }
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for want, cfg := range map[string]client.Config{
		"":               {},
		"Bearer s3cret":  {TokenFile: file(" s3cret\n")},
		"Bearer t0ken-2": {Token: "t0ken-2"},
	} {
		cfg.URL, cfg.Run = g.url, "r"
		c, err := client.Dial(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.Equal(t, want, within(t, shown))
	}
	for want, cfg := range map[string]client.Config{
		"no such file":            {TokenFile: filepath.Join(t.TempDir(), "gone")},
		"for the token is empty":  {TokenFile: file("\n")},
		"TokenFile and Token are": {TokenFile: file("a"), Token: "b"},
	} {
		cfg.URL, cfg.Run = g.url, "r"
		_, err := client.Dial(t.Context(), cfg)
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, shown, "nobody was asked")
}

func TestAHelloThatIsRefusedFailsTheDialWithTheServersReason(t *testing.T) {
	t.Parallel()
	n := garbageNode(t)
	_, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "_edge"})
	require.ErrorIs(t, err, rewards.Malformed)
	require.ErrorContains(t, err, "reserved for the server")
	_, err = client.Dial(t.Context(), client.Config{URL: n.url, Run: "r", OnSampleFailure: "mean"})
	require.ErrorContains(t, err, "on_sample_failure", "what no server would take is refused here")
}

func TestAServerThatDoesNotWelcomeIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	serve := func(handle func(*wsconn.Conn, *http.Request)) string {
		return answering(t, func(w http.ResponseWriter, r *http.Request) {
			conn, err := wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Subprotocols: []string{wire.Protocol}})
			if err == nil {
				handle(conn, r)
			}
		})
	}
	silent := serve(func(conn *wsconn.Conn, r *http.Request) { _ = conn.Run(r.Context(), &mute{}) })
	_, err := client.Dial(t.Context(), client.Config{URL: silent, Run: "r", DialTimeout: 300 * time.Millisecond})
	require.ErrorContains(t, err, "no welcome within 300ms")
	curt := serve(func(conn *wsconn.Conn, r *http.Request) { _ = conn.Run(r.Context(), &rude{}) })
	_, err = client.Dial(t.Context(), client.Config{URL: curt, Run: "r"})
	require.ErrorContains(t, err, "closed the connection without a welcome")
}

// Whatever a server says that is no message of the protocol ends the connection, not the
// client: what has no result is sent again over the next.
func TestAServerThatBreaksTheProtocolIsLeftAndDialledAgain(t *testing.T) {
	t.Parallel()
	text := func(s string) func(*fakeConn) {
		return func(c *fakeConn) { _ = c.conn.Send([]byte(s)) }
	}
	for name, say := range map[string]func(*fakeConn){
		"a binary message":     func(c *fakeConn) { _ = c.conn.SendBinary(context.Background(), []byte("pixels")) },
		"a type nobody knows":  text(`{"type":"dance"}`),
		"no JSON":              text(`scored!`),
		"a second welcome":     func(c *fakeConn) { c.say(&wire.Welcome{Session: "t", Rewards: []wire.RewardInfo{{}}}) },
		"rewards for nobody":   text(`{"type":"rewards","req":"seven"}`),
		"a result without one": text(`{"type":"result","id":"x","seq":1,"outcome":"scored","reward_score":null,"attempts":1}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newFakeGateway(t, nil)
			g.scores((*fakeConn).pending)
			c := dialFake(t, g)
			f := submitOne(t, c, "x")
			require.Equal(t, "x", within(t, g.got))
			g.scores(nil)
			say(within(t, g.met).fakeConn)
			requireScored(t, f)
			again := within(t, g.met)
			require.NotNil(t, again.hello.Resume)
		})
	}
}

func TestTheEpochOfARunLetsOthersJoinIt(t *testing.T) {
	t.Parallel()
	n := garbageNode(t)
	dial := func(run, name string) *client.Client {
		c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: run, Client: name})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	one, two := dial("r", "one"), dial("r", "two")
	require.NotZero(t, one.Epoch())
	require.Equal(t, one.Epoch(), two.Epoch())
	for epoch, joins := range map[uint64]bool{one.Epoch(): true, one.Epoch() + 1: false} {
		raw := dialRaw(t, n.url)
		hello, err := wire.EncodeControl(&wire.Hello{Run: "r", Client: "three", Epoch: epoch})
		require.NoError(t, err)
		require.NoError(t, raw.conn.Send(hello))
		if joins {
			require.Equal(t, epoch, raw.next(t).(*wire.Welcome).Epoch)
		} else {
			require.Equal(t, rewards.Malformed, raw.next(t).(*wire.Error).Code)
		}
	}
}

func TestASampleThatNoServerTakesIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	n := garbageNode(t)
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	_, err = c.Submit(t.Context(), &rewards.Sample{}, 0)
	require.ErrorIs(t, err, wire.ErrMissing)
	_, err = c.Submit(t.Context(), rig.Sample("x", 120_000), 0)
	require.ErrorIs(t, err, rewards.TooLarge, "beyond the message_bytes that the server has told")
	requireScored(t, submitOne(t, c, "x"))
	require.NoError(t, c.Close())
}

// mute hears everything and says nothing.
type mute struct{ rawClient }

// Text implements wsconn.Handler.
func (*mute) Text([]byte) error { return nil }

// rude hangs up at the first word.
type rude struct{ rawClient }

// Text implements wsconn.Handler.
func (*rude) Text([]byte) error { return &wsconn.CloseError{Code: wsconn.CloseGoingAway} }
