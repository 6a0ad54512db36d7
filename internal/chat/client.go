package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

// path is where engines take chats, below their URL.
const path = "/v1/chat/completions"

// Client sends questions to one group of engines. It is safe for concurrent use.
type Client struct {
	config Config
	doer   outbound.Doer

	mu      sync.Mutex
	cache   *cache                // guarded by mu
	flights map[flightKey]*flight // guarded by mu
	closed  bool                  // guarded by mu

	asking sync.WaitGroup // the goroutines of the flights

	requests, failures, refused, unmetered atomic.Uint64
	hits, joined                           atomic.Uint64
	promptTokens, completionTokens         atomic.Int64
}

// spender is an outbound.Doer with a limit of tokens per minute.
type spender interface {
	// Spent says what a call took that was booked with an estimate.
	Spent(tokens, booked int)
}

// New returns a client that sends its requests through doer. It opens no connection. Closing the
// client does not close doer.
func New(cfg Config, doer outbound.Doer) (*Client, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	if doer == nil {
		return nil, errors.New("chat: no endpoint")
	}
	return &Client{
		config: cfg, doer: doer,
		cache: newCache(cfg.CacheEntries, cfg.CacheBytes), flights: make(map[flightKey]*flight),
	}, nil
}

// Close cancels the questions in flight and waits for their end. Afterwards Chat fails with
// Unavailable.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, f := range c.flights {
		f.cancel()
	}
	c.mu.Unlock()
	c.asking.Wait()
	return nil
}

// question is a request ready to be sent. It holds nothing of its caller's.
type question struct {
	body     []byte
	tokens   int
	logprobs bool
	near     string // of Alike
}

// Chat returns the reply to r, from the engine, from the cache, or from the same question of
// another caller in flight. The error wraps a rewards.Class: those of outbound.Doer; Unavailable
// for an invalid answer; InvalidScore for an answer without text; BadInput for a request larger
// than the limit; or the error of Accept.
func (c *Client) Chat(ctx context.Context, r *Request) (*Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, rewards.Ended(ctx, false, rewards.BlameDependency, fmt.Errorf("before asking: %w", err))
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	params, err := r.params(cmp.Or(r.Model, c.config.Model))
	if err != nil {
		return nil, err
	}
	if n := size(params, r.Messages); n > c.config.MaxRequestBytes {
		return nil, fmt.Errorf("%w: question of %d bytes, want at most %d; send fewer or smaller pictures",
			rewards.BadInput, n, c.config.MaxRequestBytes)
	}
	if !r.deterministic() {
		return c.askAlone(ctx, r, params)
	}
	return c.askShared(ctx, r, params)
}

// askAlone asks without a look at what others ask.
func (c *Client) askAlone(ctx context.Context, r *Request, params []byte) (*Reply, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, errClosed()
	}
	reply, err := c.ask(ctx, c.question(ctx, r, params))
	if err != nil {
		return nil, err
	}
	if err := c.accepted(r, reply); err != nil {
		return nil, err
	}
	return reply, nil
}

func (c *Client) askShared(ctx context.Context, r *Request, params []byte) (*Reply, error) {
	k := flightKey{key: digest(params, r.Messages), attempt: r.Attempt}
	known, f, first, err := c.join(ctx, k)
	if err != nil {
		return nil, err
	}
	if known != nil {
		reply := *known
		reply.Cached = true
		if err := c.accepted(r, &reply); err != nil {
			return nil, err
		}
		return &reply, nil
	}
	// Deferred with what is remembered by then, so that an Accept that panics leaves, too.
	var remember *Reply
	defer func() { c.leave(k, f, remember) }()
	if first {
		// Built here and not by the flight, which may outlive this call and the
		// sample whose pictures the request holds.
		c.start(k, f, c.question(ctx, r, params))
	}
	if asked, err := rewards.Await(ctx, f.began, f.done); err != nil {
		return nil, rewards.Ended(ctx, asked, rewards.BlameDependency, fmt.Errorf("waiting for the answer of a judge: %w", err))
	}
	if f.err != nil {
		return nil, f.err
	}
	reply := *f.reply
	reply.Cached = !first
	if err := c.accepted(r, &reply); err != nil {
		return nil, err
	}
	remember = f.reply
	return &reply, nil
}

// accepted asks the caller whether a reply is right.
func (c *Client) accepted(r *Request, reply *Reply) error {
	if r.Accept == nil {
		return nil
	}
	err := r.Accept(*reply)
	if err != nil {
		c.refused.Add(1)
	}
	return err
}

func (c *Client) question(ctx context.Context, r *Request, params []byte) *question {
	near, _ := ctx.Value(alikeKey{}).(string)
	return &question{near: near, body: body(params, r.Messages), tokens: r.tokens(c.config.ImageTokens), logprobs: r.Logprobs}
}

// ask sends a question and reads the answer.
func (c *Client) ask(ctx context.Context, q *question) (*Reply, error) {
	var reply *Reply
	call := &outbound.Call{
		Path:     path,
		Header:   http.Header{"Content-Type": {"application/json"}},
		Body:     q.body,
		Tokens:   q.tokens,
		Near:     q.near,
		MaxBytes: c.config.MaxAnswerBytes,
		Check: func(a *outbound.Answer) (err error) {
			reply, err = decode(a.Body, q.logprobs)
			return err
		},
	}
	c.requests.Add(1)
	_, err := c.doer.Do(ctx, call)
	if err == nil && reply == nil {
		err = fmt.Errorf("%w: the answer was not checked", rewards.Internal)
	}
	if err != nil {
		c.failures.Add(1)
		return nil, err // it names endpoint, status and class
	}
	c.count(q, reply.Usage)
	return reply, nil
}

func (c *Client) count(q *question, u Usage) {
	if u == (Usage{}) {
		c.unmetered.Add(1)
		return
	}
	c.promptTokens.Add(u.PromptTokens)
	c.completionTokens.Add(u.CompletionTokens)
	if s, ok := c.doer.(spender); ok {
		s.Spent(int(u.PromptTokens+u.CompletionTokens), q.tokens)
	}
}

// Stats are the statistics of a client.
type Stats struct {
	// Requests is the number of questions sent (the attempts of a question count once), Failures
	// the number of those without a reply.
	Requests, Failures uint64
	// Hits is the number of questions that were answered from the cache, Joined the number of those
	// that were answered by the same question of another caller.
	Hits, Joined uint64
	// Refused is the number of replies that Accept refused.
	Refused uint64
	// Unmetered is the number of answers in which the engine did not report the number of tokens.
	Unmetered uint64
	// PromptTokens and CompletionTokens are the numbers of tokens that engines reported.
	PromptTokens, CompletionTokens int64
	// Cost is the cost of those tokens at the configured prices.
	Cost float64
	// Entries and Bytes are the current size of the cache.
	Entries int
	Bytes   int64
}

// Stats returns the statistics.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	entries, bytes := len(c.cache.entries), c.cache.bytes
	c.mu.Unlock()
	s := Stats{
		Requests: c.requests.Load(), Failures: c.failures.Load(), Refused: c.refused.Load(), Unmetered: c.unmetered.Load(),
		Hits: c.hits.Load(), Joined: c.joined.Load(),
		PromptTokens: c.promptTokens.Load(), CompletionTokens: c.completionTokens.Load(),
		Entries: entries, Bytes: bytes,
	}
	s.Cost = (float64(s.PromptTokens)*c.config.PromptPrice + float64(s.CompletionTokens)*c.config.CompletionPrice) / 1e6
	return s
}

// Concurrency returns the maximum number of questions of this process that the engine gets at the
// same time.
func (c *Client) Concurrency() int { return rewards.ConcurrencyOf(c.doer) }

// Dependency returns the engine as a dependency.
func (c *Client) Dependency() rewards.Dependency { return rewards.DependencyOf(c.doer) }

// ConcurrencyReason returns the reason for Concurrency.
func (c *Client) ConcurrencyReason() string { return rewards.ConcurrencyReason(c.doer) }
