package slot

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Inline has the methods of a Pool and no processes: handlers run in this one.
// It is for debugging and measuring. A handler that hangs keeps its slot, one
// that crashes in C takes the process down; only a Go panic is caught.
type Inline struct {
	cfg  Config
	kind Kind
	free chan *inlineSlot // holds the idle slots; capacity Slots

	mu       sync.Mutex
	running  sync.WaitGroup // the goroutines that run a handler
	started  bool
	stopped  bool
	made     int // slots whose handler was built
	stopping chan struct{}
	stats    Stats
}

// inlineSlot is owned by whoever took it from the channel.
type inlineSlot struct {
	handler Handler
	buf     []byte // the request's pixels: a caller that left may reuse its own
}

// NewInline checks the configuration; Command, Env, PingEvery, Recycle and the
// backoff mean nothing to it.
func NewInline(cfg Config, kind Kind) (*Inline, error) {
	cfg.Kind = kind.Name
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Inline{cfg: cfg, kind: kind, free: make(chan *inlineSlot, cfg.Slots), stopping: make(chan struct{})}, nil
}

// Start builds the handlers one after the other and has each answer the canary.
func (p *Inline) Start(ctx context.Context) error {
	p.mu.Lock()
	again := p.started || p.stopped
	p.started = true
	p.mu.Unlock()
	if again {
		return fmt.Errorf("%w: started twice or after its end", ErrUnavailable)
	}
	for range p.cfg.Slots {
		h, err := p.kind.New(p.cfg.Init)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrUnavailable, p.kind.Name, err)
		}
		p.mu.Lock()
		p.made++
		p.mu.Unlock()
		p.free <- &inlineSlot{handler: h}
		if p.cfg.Canary == nil {
			continue
		}
		resp, err := p.Do(ctx, p.cfg.Canary.Request)
		if err == nil {
			err = p.cfg.Canary.Check(resp.Body)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: canary: %w", ErrUnavailable, p.kind.Name, err)
		}
	}
	return nil
}

// Do runs a handler. At the deadline it returns and leaves the handler running.
func (p *Inline) Do(ctx context.Context, req Request) (Response, error) {
	if err := p.cfg.admit(req); err != nil {
		return Response{}, err
	}
	req.Name = clip(req.Name, 256)
	began := time.Now()
	var s *inlineSlot
	select {
	case <-p.stopping:
		return Response{}, fmt.Errorf("%w: stopping", ErrUnavailable)
	case s = <-p.free:
	case <-ctx.Done():
		return Response{}, fmt.Errorf("%q: %w", req.Name, ended(ctx.Err(), "while all slots were busy"))
	}
	waited := time.Since(began)
	s.buf = s.buf[:0]
	for _, part := range req.Pixels {
		s.buf = append(s.buf, part...)
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
	defer cancel()
	type result struct {
		body []byte
		err  error
	}
	done := make(chan result, 1)
	p.count(func(st *Stats) { st.Busy++; st.Requests++ })
	p.running.Go(func() {
		body, err := protect(s.handler, Call{Meta: req.Meta, Pixels: s.buf})
		p.count(func(st *Stats) {
			st.Busy--
			if errors.Is(err, ErrCrashed) {
				st.Crashes++
			}
		})
		p.free <- s
		done <- result{body, err}
	})
	select {
	case r := <-done:
		if r.err != nil {
			return Response{}, fmt.Errorf("%q: %w", req.Name, r.err)
		}
		return Response{Body: r.body, Waited: waited, Ran: time.Since(began) - waited}, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.count(func(st *Stats) { st.Timeouts++ })
		}
		return Response{}, fmt.Errorf("%q: %w", req.Name, ended(ctx.Err(), "while its handler ran"))
	}
}

func protect(h Handler, c Call) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, fmt.Errorf("%w: panic: %v\n%s", ErrCrashed, r, clip(string(debug.Stack()), tailBytes))
		}
	}()
	if body, err = h.Handle(c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHandler, err)
	}
	return body, nil
}

// Stop refuses new requests and waits for running handlers until ctx ends. A
// second call returns at once.
func (p *Inline) Stop(ctx context.Context) error {
	p.mu.Lock()
	again := p.stopped
	if !again {
		p.stopped = true
		close(p.stopping)
	}
	made := p.made
	p.mu.Unlock()
	if again {
		return nil
	}
	for range made {
		select {
		case <-p.free:
		case <-ctx.Done():
			return fmt.Errorf("%w: a handler still runs: %w", ErrTimeout, ctx.Err())
		}
	}
	p.running.Wait()
	return nil
}

// Stats returns a snapshot.
func (p *Inline) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Slots = p.cfg.Slots
	s.Alive = p.made
	return s
}

func (p *Inline) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}
