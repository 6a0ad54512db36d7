package client_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// fakeGateway greets, notes what it is told, and answers questions as the test says.
type fakeGateway struct {
	url  string
	took chan *wire.Fetch // questions, in order
	told chan *wire.Step  // declarations, in order
	met  chan greeting    // connections, in order
	got  chan string      // samples, in order
	back chan []string    // ids that were taken back, by message; each is answered as cancelled
	flow chan any         // what is said of credit

	// Hooks that may be nil: the request before it is upgraded, the connection right behind
	// its welcome, a confirmation.
	guard     func(*http.Request)
	greeted   func(*fakeConn)
	confirmed func(seq uint64)

	mu     sync.Mutex
	forget bool                             // it knows no session; guarded by mu
	drains bool                             // it says so with each welcome; guarded by mu
	answer func(c *fakeConn, t *wire.Fetch) // nil: nothing; guarded by mu
	score  func(c *fakeConn, id string)     // nil: scored at once; guarded by mu
	conns  map[*fakeConn]bool               // guarded by mu
}

// fakeConn is one connection to it.
type fakeConn struct {
	g    *fakeGateway
	conn *wsconn.Conn
	seq  atomic.Uint64
}

// greeting is a connection that said hello and was welcomed.
type greeting struct {
	*fakeConn
	hello *wire.Hello
}

func newFakeGateway(t *testing.T, answer func(*fakeConn, *wire.Fetch)) *fakeGateway {
	t.Helper()
	g := &fakeGateway{
		took: make(chan *wire.Fetch, 4096), told: make(chan *wire.Step, 4096), met: make(chan greeting, 4096), got: make(chan string, 8192),
		back: make(chan []string, 4096), flow: make(chan any, 8192),
		answer: answer, conns: map[*fakeConn]bool{},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if g.guard != nil {
			g.guard(req)
		}
		conn, err := wsconn.Upgrade(w, req, wsconn.UpgradeConfig{Subprotocols: []string{wire.Protocol}})
		if err != nil {
			return
		}
		c := &fakeConn{g: g, conn: conn}
		g.mu.Lock()
		g.conns[c] = true
		g.mu.Unlock()
		_ = conn.Run(req.Context(), c) // ends with the client, or is cut
		g.mu.Lock()
		delete(g.conns, c)
		g.mu.Unlock()
	}))
	g.url = "ws" + strings.TrimPrefix(srv.URL, "http")
	t.Cleanup(func() {
		g.cut(false)
		srv.Close()
	})
	return g
}

// cut ends every connection; forget is what a gateway does that was started anew.
func (g *fakeGateway) cut(forget bool) {
	g.mu.Lock()
	g.forget = forget
	conns := g.conns
	g.conns = map[*fakeConn]bool{}
	g.mu.Unlock()
	for c := range conns {
		_ = c.conn.Close(wsconn.CloseGoingAway, "")
	}
}

// answers says how questions are answered from now on.
func (g *fakeGateway) answers(answer func(*fakeConn, *wire.Fetch)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

// scores says what is done with samples from now on.
func (g *fakeGateway) scores(score func(*fakeConn, string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.score = score
}

// Text implements wsconn.Handler.
func (c *fakeConn) Text(b []byte) error {
	v, err := wire.DecodeControl(b)
	if err != nil {
		return err
	}
	c.g.mu.Lock()
	answer, forget, drains := c.g.answer, c.g.forget, c.g.drains
	c.g.mu.Unlock()
	switch m := v.(type) {
	case *wire.Hello:
		c.say(&wire.Welcome{
			Session: "s", Epoch: 1, Resumed: m.Resume != nil && !forget, Protocol: wire.Protocol,
			Credit: wire.CreditTotals{Samples: 100, Bytes: 1 << 20}, Rewards: []wire.RewardInfo{{}},
		})
		if drains {
			c.say(&wire.Draining{})
		}
		if c.g.greeted != nil {
			c.g.greeted(c)
		}
		c.g.met <- greeting{c, m}
	case *wire.Step:
		c.g.told <- m
	case *wire.Confirm:
		if c.g.confirmed != nil {
			c.g.confirmed(m.Seq)
		}
	case *wire.Want, *wire.Yield:
		c.g.flow <- m
	case *wire.Cancel:
		c.g.back <- m.IDs
		for _, id := range m.IDs {
			c.say(&wire.Result{Type: "result", ID: id, Seq: c.seq.Add(1), Outcome: rewards.OutcomeCancelled})
		}
	case *wire.Fetch:
		c.g.took <- m
		if answer != nil {
			answer(c, m)
		}
	}
	return nil
}

// Binary implements wsconn.Handler.
func (c *fakeConn) Binary(b io.Reader) error {
	h, err := wire.ReadHeader(b, wire.Limits{})
	if err != nil {
		return err
	}
	c.g.mu.Lock()
	score := c.g.score
	c.g.mu.Unlock()
	if score == nil {
		score = (*fakeConn).scored
	}
	score(c, h.Sample.ID)
	c.g.got <- h.Sample.ID
	return nil
}

// pending leaves a sample without an answer.
func (c *fakeConn) pending(string) {}

// scored answers a sample with a score.
func (c *fakeConn) scored(id string) {
	c.say(&wire.Result{Type: "result", ID: id, Seq: c.seq.Add(1), Outcome: rewards.Scored, RewardScore: new(1.0)})
}

// refused answers a sample as a draining gateway does.
func (c *fakeConn) refused(id string) {
	c.say(&wire.Result{
		Type: "result", ID: id, Outcome: rewards.Rejected, Errors: []rewards.ComponentError{{Class: rewards.Draining, Message: "the gateway accepts no new samples"}},
	})
}

// say sends a message; a connection that has ended does not hear it.
func (c *fakeConn) say(v any) {
	if b, err := wire.EncodeControl(v); err == nil {
		_ = c.conn.Send(b)
	}
}

// rows is an answer with n rows, each a group of its own.
func rows(t *wire.Fetch, n int, done bool) *wire.Rewards {
	r := &wire.Rewards{
		Req: t.Req, Split: rewards.Train, Step: t.Step, State: wire.StepOpen, Chunk: t.Chunk, Ready: true, Done: done, Groups: int64(n), Expected: 100,
	}
	for i := range int64(n) {
		at := t.Chunk*int64(n) + i
		r.IDs = append(r.IDs, string(rune('a'+at)))
		r.Indices, r.UIDs = append(r.Indices, &at), append(r.UIDs, "")
		r.Scores, r.Valid = append(r.Scores, new(float64(at))), append(r.Valid, true)
		r.Outcomes = append(r.Outcomes, rewards.Scored)
	}
	return r
}

func dialFake(t *testing.T, g *fakeGateway) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: g.url, Run: "r"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// within takes the next of a channel.
func within[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		require.Fail(t, "nothing came for 20 s")
		panic("unreachable")
	}
}

// overCredit refuses a sample as a gateway does that has no room for it.
func (c *fakeConn) overCredit(id string) {
	c.say(&wire.Result{
		Type: "result", ID: id, Outcome: rewards.Rejected, Errors: []rewards.ComponentError{{Class: rewards.OverCredit, Message: "no room"}},
	})
}
