package stream_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// peer is a client's connection in memory: everything sent arrives at once.
type peer struct {
	busy   bool                       // its writer does not come to what is to be made later
	script func(wsconn.Handler) error // what the client sends

	mu      sync.Mutex
	inbox   []any
	waiting []func() []byte
	reason  string // of its closing
}

// Send implements stream.Conn.
func (p *peer) Send(b []byte) error {
	v, err := wire.DecodeControl(b)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inbox = append(p.inbox, v)
	return nil
}

// SendLater implements stream.Conn.
func (p *peer) SendLater(later func() []byte) error {
	if p.busy {
		p.waiting = append(p.waiting, later)
		return nil
	}
	if b := later(); b != nil {
		return p.Send(b)
	}
	return nil
}

// Close implements stream.Conn.
func (p *peer) Close(_ int, reason string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = reason
	return nil
}

// Run implements stream.Socket.
func (p *peer) Run(_ context.Context, h wsconn.Handler) error { return p.script(h) }

// got returns the messages of one type, in order.
func got[T any](p *peer) []T {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []T
	for _, v := range p.inbox {
		if m, ok := v.(T); ok {
			list = append(list, m)
		}
	}
	return list
}

// session is one of run "run".
func session(client string) *stream.Session {
	return stream.NewSession("run", stream.ID{Client: client}, 1, "token of "+client, slog.New(slog.DiscardHandler))
}

// flow is one with room for everything.
func flow() *stream.Flow {
	return newFlow(1<<20, 1<<20, wire.CreditTotals{Samples: 8, Bytes: 1 << 10})
}

// greeting is what a client is told first.
func greeting(resumed bool) stream.Greeting {
	return stream.Greeting{Welcome: wire.Welcome{
		Resumed: resumed, Rewards: []wire.RewardInfo{{}}, Limits: wire.LimitsInfo{MessageBytes: 1 << 20, HeaderBytes: 1 << 10, ControlBytes: 1 << 10, InFlight: 8},
	}}
}

// answer is that of a sample.
func answer(id string) *stream.Answer {
	return &stream.Answer{Result: &wire.Result{Type: "result", ID: id, Outcome: rewards.Scored, RewardScore: new(1.0), ExtraInfo: map[string]any{}}}
}

// text is a message as a client sends it.
func text(t *testing.T, v any) []byte {
	t.Helper()
	b, err := wire.EncodeControl(v)
	require.NoError(t, err)
	return b
}

// gateway is one that does what the test says.
type gateway struct {
	session  *stream.Session
	hello    error
	receive  func(r io.Reader) error
	declared error
	rewards  func(ctx context.Context, t *wire.Fetch) (*wire.Rewards, error)

	left     int
	phases   []string
	said     []any           // messages, but for declarations
	messages []rewards.Class // refused
	samples  []rewards.Class // likewise
}

func (g *gateway) Hello(_ wire.Hello, c stream.Conn) (*stream.Session, error) {
	if g.hello != nil {
		return nil, g.hello
	}
	flow().Attach(g.session, c, greeting(false))
	return g.session, nil
}

func (g *gateway) Left(*stream.Session, stream.Conn)            { g.left++ }
func (g *gateway) Receive(_ *stream.Session, r io.Reader) error { return g.receive(r) }

func (g *gateway) Message(_ *stream.Session, msg any) error {
	if _, ok := msg.(*wire.Step); ok {
		return g.declared
	}
	g.said = append(g.said, msg)
	return nil
}

func (g *gateway) Rewards(ctx context.Context, _ *stream.Session, t *wire.Fetch) (*wire.Rewards, error) {
	return g.rewards(ctx, t)
}

func (g *gateway) Phase(_ context.Context, s *stream.Session, name string) error {
	g.phases = append(g.phases, s.ID().Client+" "+name)
	if name == wire.PhaseReward {
		return nil
	}
	return fmt.Errorf("%w: an engine holds memory", rewards.Unavailable)
}

func (g *gateway) Refused(class rewards.Class, sample bool) {
	if sample {
		g.samples = append(g.samples, class)
		return
	}
	g.messages = append(g.messages, class)
}
