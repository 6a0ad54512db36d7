package payload

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

var _ workers.Gateway = (*Client)(nil)

var (
	// errClosed is what a client that was closed answers.
	errClosed = errors.New("claim client is closed")
	// errRefused is a claim or a result that was refused for a reason that may pass, or because
	// the two sides do not understand each other.
	errRefused = errors.New("refused by the gateway")
	// errStalled is a claim for which nothing came within Config.StallTimeout.
	errStalled = errors.New("claim stalled")

	// errLost: the connection ended before the answer; the question is asked again.
	errLost = errors.New("connection ended before the answer")
)

// corruptTries is how often a payload that arrives corrupt is asked for.
const corruptTries = 3

// ClientOptions configure a Client.
type ClientOptions struct {
	Config Config
	// TLS is the TLS configuration for wss addresses; nil: the system's root certificates.
	TLS *tls.Config
	// Secure refuses addresses without TLS. Otherwise anyone who can write tickets could make a
	// worker send its tokens in clear text.
	Secure bool
	// Buffers provides the memory of frames; nil: each frame has its own. Limits limits the size of
	// frames.
	Buffers *wire.Buffers
	Limits  wire.Limits
	// Alive reports whether a gateway has announced itself recently. A gateway that has not, and
	// that cannot be reached, no longer exists. nil: every gateway may come back.
	Alive func(gateway string) bool
	// Version is the version of this program, which is sent to gateways.
	Version string
	// Log gets problems; nil: no log. Metrics registers the metrics; nil: the metrics are not
	// exported.
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Client gives the workers of this process access to the gateways of other processes. It implements
// workers.Gateway and is safe for concurrent use.
type Client struct {
	cfg     Config
	opt     ClientOptions
	log     *slog.Logger
	seldom  seldom
	metrics *clientMetrics
	session string
	results *semaphore.Weighted // bytes of results on their way
	ctx     context.Context     //nolint:containedctx // the client's life
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // connections

	mu     sync.Mutex
	closed bool              // guarded by mu
	serial uint64            // numbers claims and results; guarded by mu
	gates  map[gateKey]*gate // guarded by mu
	// wanted has the numbers of claims that are open or asked for; guarded by mu.
	wanted map[uint64]struct{}
}

// NewClient returns a client without connections. The error lists all invalid options.
func NewClient(opt ClientOptions) (*Client, error) {
	cfg := opt.Config.WithDefaults()
	opt.Limits = opt.Limits.WithDefaults()
	if err := errors.Join(cfg.Validate(), opt.Limits.Validate()); err != nil {
		return nil, fmt.Errorf("claim client: %w", err)
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{
		cfg: cfg, opt: opt, log: opt.Log, seldom: seldom{log: opt.Log}, metrics: newClientMetrics(opt.Metrics),
		session: rand.Text(), results: semaphore.NewWeighted(resultBytes), gates: map[gateKey]*gate{},
		wanted: map[uint64]struct{}{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close ends all connections. Pending claims and results fail. Frames that workers have stay valid.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	for _, g := range c.gates {
		for _, l := range g.connections {
			if l == nil {
				continue
			}
			if l.link != nil {
				l.link.bye()
			}
			l.announce()
		}
	}
	c.mu.Unlock()
	c.cancel()
	c.tasks.Wait()
}

// Claim implements workers.Gateway. The error wraps wire.ErrGone, wire.ErrUnreachable,
// wire.ErrCorrupt, or the cause of ctx; there are also errors for a refused or stalled claim and
// for a closed client, which wrap no exported error.
func (c *Client) Claim(ctx context.Context, t wire.Ticket, worker string) (f *wire.Frame, kept []rewards.ComponentResult, err error) {
	frames, p, err := c.claim(ctx, t, worker)
	if err != nil {
		return nil, nil, err
	}
	if p.Group != nil {
		release(frames)
		return nil, nil, fmt.Errorf("%w: a group in answer to the claim of sample %q", errRefused, t.ID)
	}
	return frames[0], p.Frames[0].Partial, nil
}

// ClaimGroup implements workers.Gateway. Its errors are those of Claim.
func (c *Client) ClaimGroup(ctx context.Context, t wire.Ticket, worker string) (*wire.Group, error) {
	t.Group = true
	frames, p, err := c.claim(ctx, t, worker)
	if err != nil {
		return nil, err
	}
	g := p.Group
	if g == nil {
		release(frames)
		return nil, fmt.Errorf("%w: a sample in answer to the claim of group %q", errRefused, t.ID)
	}
	for i, f := range frames {
		g.Members = append(g.Members, wire.GroupMember{Frame: f, Partial: p.Frames[i].Partial})
	}
	return g, nil
}

func release(frames []*wire.Frame) {
	for _, f := range frames {
		f.Release()
	}
}

// claim fetches a payload and counts how that ended.
func (c *Client) claim(ctx context.Context, t wire.Ticket, worker string) ([]*wire.Frame, *wire.ClaimPayload, error) {
	frames, p, err := c.fetch(ctx, t, worker)
	outcome := "ok"
	switch {
	case err == nil:
	case errors.Is(err, wire.ErrGone):
		outcome = "gone"
	case errors.Is(err, wire.ErrUnreachable):
		outcome = "unreachable"
	default:
		outcome = "failed"
	}
	c.metrics.claims.WithLabelValues(outcome).Inc()
	if err != nil {
		return nil, nil, fmt.Errorf("claim of sample %q at gateway %s: %w", t.ID, t.Gateway, err)
	}
	return frames, p, nil
}

// fetch asks for the payload until it is here. A question keeps its number over the
// connections: the gateway knows it again.
func (c *Client) fetch(ctx context.Context, t wire.Ticket, worker string) ([]*wire.Frame, *wire.ClaimPayload, error) {
	ask := wire.ClaimAsk{Attempt: t.Key(), Token: t.Token, Worker: worker, Group: t.Group}
	limit := min(t.Bytes, c.opt.Limits.MessageBytes)
	if t.Group {
		limit = min(t.Bytes, groupBytes)
	}
	connection := smallConnection
	if t.Bytes > c.cfg.BulkBytes {
		connection = bulkConnection
	}
	ask.N = c.want(0)
	for corrupt := 0; ; {
		l, err := c.link(ctx, t, connection, c.cfg.DialPatience)
		if err != nil {
			c.unwant(t, ask.N)
			return nil, nil, err
		}
		call, err := l.claim(ctx, ask, limit)
		if err == nil {
			var frames []*wire.Frame
			if frames, err = c.frames(call); err == nil {
				c.keep(l, t, worker, ask.N, frames)
				return frames, call.payload, nil
			}
		}
		if errors.Is(err, wire.ErrCorrupt) {
			c.metrics.corrupt.Inc()
			corrupt++
		}
		switch {
		case errors.Is(err, errLost):
			l.await(ctx)
		case errors.Is(err, wire.ErrCorrupt) && corrupt < corruptTries:
			c.seldom.warn("corrupt", "payload is corrupt and asked for again", "sample_id", t.ID, "gateway", t.Gateway, "error", err)
			ask.N = c.want(ask.N) // what is still on its way has the old number
		default:
			c.unwant(t, ask.N)
			return nil, nil, err
		}
		c.metrics.again.WithLabelValues("claim").Inc()
	}
}

// want numbers a claim, in place of its old number if that is not 0.
func (c *Client) want(old uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	delete(c.wanted, old)
	c.wanted[c.serial] = struct{}{}
	return c.serial
}

// unwant ends the interest in a claim. Where the gateway cannot be told it learns of it with
// the next hello, or when it has not seen this process for a while.
func (c *Client) unwant(t wire.Ticket, n uint64) {
	c.mu.Lock()
	delete(c.wanted, n)
	var l *link
	if g := c.gates[gateKey{t.Gateway, t.Claim}]; g != nil {
		l = g.anyLink()
	}
	c.mu.Unlock()
	if l != nil {
		l.drop(n)
	}
}

// frames checks what has arrived and makes frames of it.
func (c *Client) frames(call *call) ([]*wire.Frame, error) {
	frames := make([]*wire.Frame, 0, len(call.drafts))
	var first error
	for i, d := range call.drafts {
		f, err := d.Frame(call.payload.Frames[i].Sum, c.opt.Limits)
		if err != nil {
			first = err
			for _, d := range call.drafts[i+1:] {
				d.Release()
			}
			break
		}
		frames = append(frames, f)
	}
	if first != nil {
		release(frames)
		return nil, first
	}
	return frames, nil
}

// Finish implements workers.Gateway. It sends the result, over one connection after another, until
// the gateway has accepted it or ctx ends. wire.ErrGone means that there is no gateway to accept
// the result.
func (c *Client) Finish(ctx context.Context, t wire.Ticket, res *wire.Result) error {
	if res.Attempt != t.Key() {
		return fmt.Errorf("result of %+v with the ticket of %+v", res.Attempt, t.Key())
	}
	c.mu.Lock()
	c.serial++
	n := c.serial
	c.mu.Unlock()
	b, err := wire.EncodeClaimResult(n, t.Token, res)
	if err != nil {
		return fmt.Errorf("result of sample %q: %w", t.ID, err)
	}
	if err := c.results.Acquire(ctx, int64(len(b))); err != nil {
		return fmt.Errorf("result of sample %q waits until the gateway takes other results: %w", t.ID, err)
	}
	defer c.results.Release(int64(len(b)))
	for {
		l, err := c.link(ctx, t, smallConnection, forEver)
		if err == nil {
			if err = l.finish(ctx, n, b); errors.Is(err, errLost) {
				c.metrics.again.WithLabelValues("result").Inc()
				l.await(ctx)
				continue
			}
		}
		if err == nil || errors.Is(err, wire.ErrGone) {
			c.finished(t, res.Worker)
		}
		if err != nil {
			return fmt.Errorf("result of sample %q for gateway %s: %w", t.ID, t.Gateway, err)
		}
		return nil
	}
}

// refusal turns a gateway's answer into an error.
func refusal(m *wire.ClaimRefused) error {
	switch m.Reason {
	case wire.RefusedGone:
		return wire.ErrGone
	case wire.RefusedToken:
		return fmt.Errorf("%w: %w: %s", wire.ErrGone, ErrToken, m.Message)
	case wire.RefusedExpired:
		return fmt.Errorf("%w: expired claim: %w: %s", wire.ErrGone, errTokenExpired, m.Message)
	}
	return fmt.Errorf("%w: %s: %s", errRefused, m.Reason, m.Message)
}
