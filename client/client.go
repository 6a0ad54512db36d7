package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Config is the configuration of a Client. URL and Run are required.
type Config struct {
	// URL is ws://host:port or wss://host:port; the path /v1/stream is added if there is none.
	// Several URLs, separated by commas, are those of interchangeable gateways. The client is
	// connected to one of them, at first to the first that accepts it. When that gateway is gone,
	// silent or draining, the client sends every sample without a result to the next gateway.
	URL string
	// Run is the name of the training run.
	Run string
	// Client is the name of this sender within the run; Lane is the number of its connection.
	Client string
	Lane   int
	// Reward is the profile for samples without a profile. Empty: the server's default.
	Reward string
	// OnSampleFailure overrides the profile's failure policy: none, group_mean, zero or value:<x>.
	OnSampleFailure string
	// TokenFile is the file with the bearer token; Token is the token itself. At most one may be
	// set.
	TokenFile, Token string
	// TLS is the TLS configuration for wss URLs. Nil: the system's root certificates.
	TLS *tls.Config
	// DialTimeout limits the time to the first connection, including the wait for the successor of
	// a server that is being stopped. The default is 10 s.
	DialTimeout time.Duration
	// ReconnectFor is how long the client dials again after a lost connection, or while all servers
	// are draining, before every sample without a result fails. The default is 5 min.
	ReconnectFor time.Duration
	// Silence is how long a gateway may send nothing, not even the answer to a ping, before the
	// connection counts as lost. The default is 45 s, and 3 s with several URLs. Set a larger value
	// for a link on which a ping waits longer behind samples.
	Silence time.Duration
}

// WithDefaults returns a copy of c in which fields that are zero have their defaults.
func (c Config) WithDefaults() Config {
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.ReconnectFor = cmp.Or(c.ReconnectFor, 5*time.Minute)
	if c.Silence == 0 {
		c.Silence = 45 * time.Second
		if strings.Contains(c.URL, ",") {
			c.Silence = 3 * time.Second
		}
	}
	return c
}

// Validate returns an error that joins everything that is wrong with c.
func (c Config) Validate() error {
	var errs rewards.Faults
	errs.Add(slices.Contains(gateways(c.URL), ""), "URL %q: want ws://host:port, or several of them with commas between", c.URL)
	errs.Add(c.Run == "", "a run is needed: the name of the training run")
	errs.Add(c.TokenFile != "" && c.Token != "", "TokenFile and Token are both given: want one of them, or none")
	for name, d := range map[string]time.Duration{"DialTimeout": c.DialTimeout, "ReconnectFor": c.ReconnectFor, "Silence": c.Silence} {
		errs.Add(d < 0, "%s is %v, want more than 0", name, d)
	}
	return errors.Join(errs...)
}

var (
	// ErrClosed is the error of Futures without a result at the call of Close.
	ErrClosed = errors.New("client is closed")
	// ErrLost is the error of Futures whose connection was lost and could not be restored.
	ErrLost = errors.New("connection lost and not restored")
	// ErrInFlight is the error of Submit for an id that is already in flight.
	ErrInFlight = errors.New("sample id is in flight")
)

// Client is one connection of a run. A Client is safe for concurrent use.
type Client struct {
	cfg    Config
	urls   []string // of the gateways
	at     int      // the gateway that is dialled first; Dial's, then run's
	token  string
	ctx    context.Context //nolint:containedctx // ends with Close; everything the client does hangs on it
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	wake   chan struct{} // capacity 1: something to send, or credit to send it

	mu       sync.Mutex
	link     *link                 // the live connection; guarded by mu
	welcome  wire.Welcome          // of the latest connection; guarded by mu
	home     string                // the URL that it came from; guarded by mu
	calls    map[string]*Future    // without a result; guarded by mu
	queue    []*Future             // to be sent, in order; guarded by mu
	sending  *Future               // on its way over the live link; guarded by mu
	results  chan *wire.Result     // nil until Results is asked for; guarded by mu
	seq      uint64                // of the latest result; guarded by mu
	pending  int                   // results since the last confirmation; guarded by mu
	problems []error               // the latest messages of type error; guarded by mu
	grace    time.Duration         // answerGrace, but in tests; guarded by mu
	steps    map[stepKey]*stepNote // the latest of them; guarded by mu
	stepLog  []stepKey             // the keys of steps, oldest first; guarded by mu
	fetches  map[uint64]*fetch     // questions without an answer, by number; guarded by mu
	req      uint64                // of the latest question or phase; guarded by mu
	latest   *phase                // the latest that was told; nil: none was; guarded by mu
	err      error                 // why everything failed; guarded by mu
}

// Future is the result of one sample, which may not have arrived yet.
type Future struct {
	// ID is the id of the sample.
	ID string

	step  stepKey
	msg   *wire.Message
	sent  bool // over one connection or another, perhaps in part; guarded by Client.mu
	taken bool // back, by Cancel, after it was sent; guarded by Client.mu
	done  chan struct{}
	res   *wire.Result // set before done is closed
	err   error        // likewise
}

// Done returns a channel that is closed when the result has arrived or the sample has failed.
func (f *Future) Done() <-chan struct{} { return f.done }

// Wait returns the result, whose outcome is scored, failed, rejected, expired, cancelled or lost.
// Wait returns an error that wraps ErrClosed or ErrLost if no result will arrive. When ctx ends,
// Wait returns its error, and the sample stays in flight.
func (f *Future) Wait(ctx context.Context) (*wire.Result, error) {
	select {
	case <-f.done:
		return f.res, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Dial connects to a server, within DialTimeout. Dial fails immediately if no URL has a server that
// accepts clients and no server is being stopped.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	token, err := readToken(cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, urls: gateways(cfg.URL), token: token, wake: make(chan struct{}, 1), calls: map[string]*Future{},
		steps: map[stepKey]*stepNote{}, fetches: map[uint64]*fetch{}, grace: answerGrace,
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l, err := c.first(ctx)
	if err != nil {
		c.cancel(err)
		c.wg.Wait()
		return nil, fmt.Errorf("client: %w", err)
	}
	c.wg.Go(func() { c.run(l) })
	return c, nil
}

func readToken(cfg Config) (string, error) {
	if cfg.TokenFile == "" {
		return cfg.Token, nil
	}
	b, err := os.ReadFile(cfg.TokenFile)
	if err != nil {
		return "", fmt.Errorf("client: token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("client: the file %s for the token is empty", cfg.TokenFile)
	}
	return token, nil
}

// Submit queues a sample and returns. The client sends the sample when it has credit from the
// server. While 1,024 samples are queued, Submit blocks until one of them is sent or ctx ends. The
// deadline is the time from the arrival of the sample at the gateway to its result; 0: the
// gateway's default. The error is ErrInFlight, a *wire.FrameError for a sample that a server would
// refuse, or the reason why the client has ended.
func (c *Client) Submit(ctx context.Context, s *rewards.Sample, deadline time.Duration) (*Future, error) {
	msg, err := wire.Encode(s, wire.Options{Deadline: deadline, Limits: c.limits()})
	if err != nil {
		return nil, err
	}
	f := &Future{ID: s.ID, step: keyOf(s.Split, s.Step), msg: msg, done: make(chan struct{})}
	for {
		c.mu.Lock()
		if c.err != nil {
			defer c.mu.Unlock()
			return nil, c.err
		}
		if c.calls[s.ID] != nil {
			c.mu.Unlock()
			return nil, fmt.Errorf("%w: %q", ErrInFlight, s.ID)
		}
		if len(c.queue) < maxQueue {
			c.calls[s.ID] = f
			c.touch(f.step)
			c.queue = append(c.queue, f)
			c.mu.Unlock()
			c.stir()
			return f, nil
		}
		first := c.queue[0]
		c.mu.Unlock()
		select { // room comes when the queue's first is sent or answered
		case <-first.done:
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// maxQueue is how many samples may wait for credit before Submit itself waits.
const maxQueue = 1024

func (c *Client) limits() wire.Limits {
	c.mu.Lock()
	defer c.mu.Unlock()
	return wire.Limits{MessageBytes: c.welcome.Limits.MessageBytes, HeaderBytes: c.welcome.Limits.HeaderBytes}
}

// Step announces how many samples of a step this client will send, so that the server can detect
// the last one. Declare has more options.
func (c *Client) Step(split rewards.Split, step, expected int64) error {
	return c.Declare(wire.Step{Split: split, Step: step, Expected: expected})
}

// EndOfStep announces that this client sends no more samples of a step. EndOfStep returns an error
// if the client is not connected.
func (c *Client) EndOfStep(split rewards.Split, step int64) error {
	c.mu.Lock()
	l := c.linkFor(cmp.Or(c.steps[keyOf(split, step)], &stepNote{}))
	c.mu.Unlock()
	return c.control(l, &wire.EndOfStep{Split: split, Step: step})
}

// control sends a message over a live connection, if there is one.
func (c *Client) control(l *link, v any) error {
	b, err := wire.EncodeControl(v)
	if err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("client: not connected to %s; the client is reconnecting", c.cfg.URL)
	}
	return l.conn.Send(b)
}

// maxResults is how many results may wait for the reader of Results.
const maxResults = 4096

// Results yields the results that arrive after the call of Results. The iteration ends with Close
// or ctx, after the results that have already arrived. While 4,096 results are unread, further
// results are available only from their Futures. Results may be called once.
func (c *Client) Results(ctx context.Context) iter.Seq[*wire.Result] {
	ch := make(chan *wire.Result, maxResults)
	c.mu.Lock()
	c.results = ch
	c.mu.Unlock()
	return func(yield func(*wire.Result) bool) {
		for ended := false; ; {
			if ended && len(ch) == 0 {
				return
			}
			select {
			case r := <-ch:
				if !yield(r) {
					return
				}
				continue
			case <-ctx.Done():
			case <-c.ctx.Done():
			}
			ended = true
		}
	}
}

// Epoch returns the run's epoch. Another client needs the number to join the same epoch
// (wire.Hello).
func (c *Client) Epoch() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.welcome.Epoch
}

// Problems returns the latest errors of the server that belong to no sample, at most 16.
func (c *Client) Problems() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]error(nil), c.problems...)
}

// Close closes the connection. Samples without a result fail with ErrClosed.
func (c *Client) Close() error {
	c.mu.Lock()
	l := c.link
	c.confirm()
	c.mu.Unlock()
	c.cancel(ErrClosed)
	var err error
	if l != nil {
		err = l.conn.Close(wsconn.CloseNormal, "")
	}
	c.wg.Wait()
	c.fail(ErrClosed)
	return err
}

// fail resolves everything that has no result.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	for id, f := range c.calls {
		delete(c.calls, id)
		f.err = fmt.Errorf("sample %q: %w", id, err)
		close(f.done)
	}
	for _, q := range c.fetches {
		c.answer(q, nil, err)
	}
	c.queue = nil
}

func (c *Client) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
