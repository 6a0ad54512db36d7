package outbound

import (
	"container/list"
	"context"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

var _ Doer = (*Upstream)(nil)

// Upstream sends calls to equivalent endpoints, within limits that apply to all its users.
// Transport.Upstream creates it. The methods may be called from any goroutine.
type Upstream struct {
	// Immutable.
	cfg      UpstreamConfig
	id       string
	trip     http.RoundTripper
	connect  func(ctx context.Context, to *url.URL) error
	seed     maphash.Seed // Of the hashes that tell requests apart.
	secrets  *secrets
	budget   *budget
	rate     *rate
	underWay *underWay

	member atomic.Pointer[member] // Nil: the process is alone.
	leave  atomic.Pointer[func()] // The fleet.
	users  int                    // Those that Transport.Upstream has returned it to; guarded by Transport.mu.
	key    string                 // Of Transport.keys; guarded by Transport.mu.
	want   want

	closed  atomic.Bool
	calls   atomic.Int64
	queued  atomic.Int64 // Calls that wait for others to end.
	stalled atomic.Int64 // Those that wait for a probe.

	mu        sync.Mutex
	endpoints []*endpoint // The slice is immutable; of each, the fields that say so are mu's.
	// changed is closed, and replaced, when an endpoint's breaker changes its state.
	changed chan struct{}
}

func newUpstream(cfg UpstreamConfig, t *Transport) (*Upstream, error) {
	now := time.Now()
	g := &Upstream{
		cfg: cfg, id: cfg.identity(), trip: t.newTrip(cfg), connect: t.reach, seed: maphash.MakeSeed(),
		budget: newBudget(cfg.Concurrency, now), rate: newRate(cfg.RPM, cfg.TPM, now),
		underWay: newUnderWay(cfg.Concurrency), changed: make(chan struct{}),
	}
	urls := []*url.URL{t.proxy}
	digests := map[string]int{}
	for _, raw := range cfg.URLs {
		u, err := parseURL(raw)
		if err != nil {
			return nil, fmt.Errorf("outbound: upstream %s: %w", cfg.Name, err)
		}
		urls = append(urls, u)
		e := newEndpoint(u, cfg)
		if n := digests[e.digest]; n > 0 { // the same but for the user or the query
			e.digest += "#" + strconv.Itoa(n+1)
		}
		digests[urlDigest(u)]++
		g.endpoints = append(g.endpoints, e)
	}
	var err error
	if g.secrets, err = newSecrets(cfg.KeyFile, urls...); err != nil {
		return nil, fmt.Errorf("outbound: upstream %s: %w", cfg.Name, err)
	}
	return g, nil
}

// try is one call on its way. Only the goroutine of Do touches it.
type try struct {
	g       *Upstream
	call    *Call
	sent    int           // Requests so far.
	tried   []*endpoint   // Where they went.
	started func()        // Ends the context of the component's time; nil: it has not begun.
	rekeyed bool          // One was sent again because the key had changed.
	flight  *list.Element // That of the request that is under way.
}

// Do sends a call until an answer passes its Check, or fails with an error as documented in Doer,
// including rewards.Cancelled if ctx was cancelled before its deadline, and rewards.BadInput for
// status 400, 413 and 422. A ctx without a deadline gets one that is long enough for all attempts.
func (g *Upstream) Do(ctx context.Context, c *Call) (*Answer, error) {
	g.calls.Add(1)
	g.budget.earn()
	ctx, cancel := g.bounded(ctx)
	defer cancel()
	t := &try{g: g, call: c}
	defer t.end()
	var before *failure
	for {
		answer, f := t.attempt(ctx)
		if f == nil {
			answer.Attempts = t.sent
			return answer, nil
		}
		pause, why, ok := t.again(ctx, f)
		if !ok {
			g.surrender(ctx, f)
			return nil, t.finish(f, before, why)
		}
		if sleep(ctx, pause) != nil {
			return nil, t.finish(ended(ctx, true, "the call waited for another attempt"), f, "")
		}
		before = f
	}
}

func (g *Upstream) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	each := g.cfg.Timeout + g.cfg.BackoffMax + g.cfg.RetryAfterMax
	return context.WithTimeout(ctx, time.Duration(g.cfg.Attempts)*each)
}

// attempt waits for its turn, sends the call once and judges the answer.
func (t *try) attempt(ctx context.Context) (answer *Answer, f *failure) {
	g, tokens := t.g, max(t.call.Tokens, 0)
	g.want.begin(tokens)
	if f = g.enter(ctx); f != nil {
		g.want.end(tokens)
		return nil, f
	}
	defer g.underWay.release()
	err := g.rate.take(ctx, tokens)
	g.want.end(tokens)
	if err != nil {
		return nil, ended(ctx, false, "the call waited for the rate limit ("+g.rates()+")")
	}
	ctx = t.start(ctx)
	e, probe, f := g.choose(ctx, t)
	if f != nil {
		g.rate.refund(tokens, false)
		return nil, f
	}
	// Deferred, because Check is the caller's code and may panic.
	defer func() { g.settle(e, probe, t, answer, f) }()
	t.sent++
	t.tried = append(t.tried, e)
	if probe {
		var sure bool
		if sure, f = t.healthy(ctx, e); f != nil {
			f.endpoint = e
			g.rate.refund(tokens, false)
			return nil, f
		}
		probe = !sure
	}
	answer, f = t.send(ctx, e)
	if f != nil {
		f.endpoint = e
		if f.unserved {
			g.rate.refund(tokens, true)
		}
	}
	return answer, f
}

// enter waits until fewer calls than the bound are under way.
func (g *Upstream) enter(ctx context.Context) *failure {
	switch {
	case g.closed.Load():
		return &failure{class: rewards.Unavailable, blame: rewards.BlameWorker, text: "the transport is closed"}
	case ctx.Err() != nil:
		return ended(ctx, false, "no request was sent yet")
	case g.underWay.try():
		return nil
	}
	if g.queued.Add(1) > int64(g.cfg.MaxWaiting) {
		g.queued.Add(-1)
		return &failure{class: rewards.Unavailable, blame: rewards.BlameNobody, text: fmt.Sprintf(
			"%d calls wait already while %d are under way: raise concurrency, or send fewer calls at a time", g.cfg.MaxWaiting, g.underWay.bound())}
	}
	err := g.underWay.acquire(ctx)
	g.queued.Add(-1)
	if err != nil {
		what := fmt.Sprintf("the call waited while %d other calls were under way", g.underWay.bound())
		last := g.down()
		if last != "" {
			what += ", and all endpoints were out of service: " + last
		}
		return ended(ctx, last != "", what)
	}
	return nil
}

// start begins the time of the component that the call is part of, and returns the
// context that is left of it: who waits for a place or the rate has not begun; who waits
// for a probe has, because a dead endpoint is the answer to a call.
func (t *try) start(ctx context.Context) context.Context {
	t.end()
	ctx, t.started = rewards.Start(ctx)
	return ctx
}

func (t *try) end() {
	if t.started != nil {
		t.started()
	}
}

// rates says the rate limits there are.
func (g *Upstream) rates() string {
	all := g.cfg.rates()
	if m := g.member.Load(); m != nil {
		processes, _ := m.figures(time.Now())
		all += fmt.Sprintf(", shared by %d processes", max(processes, 1))
	}
	return all
}

// Spent corrects the tokens of a call that was booked with that number of tokens and used another
// number. The difference is returned to the tokens per minute or taken from them.
func (g *Upstream) Spent(tokens, booked int) {
	g.rate.correct(max(tokens, 0), max(booked, 0))
}

func (g *Upstream) close() {
	g.closed.Store(true)
	if leave := g.leave.Swap(nil); leave != nil {
		(*leave)()
	}
	if idle, ok := g.trip.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

// Call is one request to an upstream.
type Call struct {
	// Method is the HTTP method; empty: "POST".
	Method string
	// Path is appended to the endpoint's URL, such as "/v1/chat/completions"; empty: the URL is
	// used unchanged.
	Path string
	// Header is sent unchanged, except for headers of the connection and Authorization, which the
	// upstream sets. All values except those of harmless headers are removed from errors.
	Header http.Header
	// Authorized sends the Authorization of Header if the upstream has neither a key nor a user.
	Authorized bool
	// Body is sent with every attempt. It must not change until Do returns.
	Body []byte
	// Near is a key for calls that should go to the same endpoint, because the endpoint caches
	// their common beginning, such as the calls of one prompt group; "": no preference.
	Near string
	// Tokens is the estimated number of tokens of the call, which is booked in the upstream's
	// tokens per minute; Spent corrects it. 0: the upstream has no such limit, or the number is
	// unknown.
	Tokens int
	// MaxBytes is the maximum size of the answer's body; 0: 8 MiB.
	MaxBytes int64
	// Check returns an error for an invalid answer of status 2xx. An error that blames the
	// dependency, not permanently, causes another attempt, like the status 503. nil: every answer
	// of status 2xx is valid.
	Check func(*Answer) error
	// Statuses reports which statuses other than 2xx are answers for the caller and not failures,
	// for a router that forwards a 400. nil: none.
	Statuses func(status int) bool
}

// Answer is the answer of an endpoint.
type Answer struct {
	Status int
	Header http.Header
	// Body is the complete body, at most Call.MaxBytes bytes.
	Body []byte
	// Endpoint is the URL of the endpoint that answered, without secrets.
	Endpoint string
	// Attempts is the number of requests that were sent for the answer, including the last one.
	Attempts int
}

// Doer sends calls. Upstream implements it. Scorers that only send calls should use it as the type
// of their parameter.
//
// Do returns an answer that passed Check, or an error that wraps a rewards.Class: Unavailable for a
// transient failure (no connection, 408, 429, 5xx, a broken body), Timeout if ctx or the attempt's
// time ended, Cancelled if ctx was cancelled, BadInput for 400, 413 and 422, InvalidScore or
// another class from Check, and Internal for a failure that another attempt would only repeat
// (other 4xx, a redirect, a body above its limit, an address that is not allowed, a path or header
// that cannot be sent). The text contains the endpoint, the status and the beginning of the answer,
// and never a secret. rewards.BlameOf returns the party to blame. Do calls rewards.Start when the
// call has a place.
type Doer interface {
	Do(ctx context.Context, c *Call) (*Answer, error)
}
