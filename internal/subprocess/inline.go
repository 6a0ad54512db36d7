package subprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// memoryKeep is what a child's memory may keep between requests. A single huge
// picture must not pin its bytes for the life of the child.
const memoryKeep = 64 << 20

// Inline has the methods of a Pool, but runs the handlers in this process, for debugging and
// measuring. A handler that hangs keeps its slot, and a handler that crashes in C ends the process;
// only a Go panic is recovered. After a fatal error the handler is built again, and its request is
// tried once more.
type Inline struct {
	cfg        Config
	kind       Kind
	quarantine *quarantine
	gate       *fair.Gate       // a turn for each slot
	free       chan *inlineSlot // holds the idle slots; capacity Slots

	mu       sync.Mutex
	running  sync.WaitGroup // the goroutines of the slots
	started  bool
	stopped  bool
	made     int // slots whose goroutine runs
	stopping chan struct{}
	stats    Stats
}

// inlineSlot is owned by whoever took it from the channel, from the moment it
// hands over a task by the slot's goroutine.
type inlineSlot struct {
	tasks   chan inlineTask
	handler Handler // nil: to be built. Only its goroutine uses it.
	buf     []byte  // the request's pixels: a caller that left may reuse its own
}

// inlineTask is one request, or with a nil req the wish to build the handler.
type inlineTask struct {
	req      *Request
	turn     fair.Turn // released when the slot is free again
	deadline time.Time
	done     chan inlineResult // capacity 1
}

type inlineResult struct {
	body []byte
	err  error
}

// NewInline checks the configuration and returns an Inline. NewInline ignores Command, Env,
// PingEvery, Recycle and the backoff.
func NewInline(cfg Config, kind Kind) (*Inline, error) {
	cfg.Kind = kind.Name
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Inline{
		cfg: cfg, kind: kind, quarantine: newQuarantine(), gate: fair.NewGate(cfg.Slots),
		free: make(chan *inlineSlot, cfg.Slots), stopping: make(chan struct{}),
	}, nil
}

// Start builds the handlers one after another, and each must answer the canary. If Start fails, it
// closes the handlers that were built.
func (p *Inline) Start(ctx context.Context) error {
	p.mu.Lock()
	again := p.started || p.stopped
	p.started = true
	p.mu.Unlock()
	if again {
		return fmt.Errorf("%w: started twice or after its end", ErrUnavailable)
	}
	for range p.cfg.Slots {
		s := &inlineSlot{tasks: make(chan inlineTask, 1)}
		p.mu.Lock()
		p.made++
		p.mu.Unlock()
		p.running.Go(func() { p.own(s) })
		t := inlineTask{done: make(chan inlineResult, 1)}
		s.tasks <- t
		var err error
		select {
		case r := <-t.done:
			err = r.err
		case <-ctx.Done():
			err = fmt.Errorf("%w: waiting for the handlers to start: %w", ErrUnavailable, ctx.Err())
		}
		if err != nil {
			over, cancel := context.WithCancel(context.WithoutCancel(ctx))
			if ctx.Err() != nil {
				cancel() // a handler that hangs is left behind
			}
			defer cancel()
			_ = p.Stop(over) // the cause of the end is what matters
			return err
		}
	}
	return nil
}

// Do calls Take and then Do of the Lease.
func (p *Inline) Do(ctx context.Context, req Request) (Response, error) {
	if err := p.quarantine.admit(p.cfg, &req); err != nil {
		return Response{}, err
	}
	l, err := p.Take(ctx, fair.Tenant{})
	if err != nil {
		return Response{}, fmt.Errorf("%q: %w", req.Name, err)
	}
	req.began()
	return l.Do(ctx, req)
}

// Take waits for a slot; tenants take turns.
func (p *Inline) Take(ctx context.Context, t fair.Tenant) (Lease, error) {
	l, err := p.take(ctx, t)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (p *Inline) take(ctx context.Context, t fair.Tenant) (*inlineLease, error) {
	if !p.isStarted() {
		return nil, fmt.Errorf("%w: not started", ErrUnavailable)
	}
	l := &inlineLease{p: p, asked: time.Now(), turn: p.gate.Join(t)}
	granted, free := l.turn.Granted(), (chan *inlineSlot)(nil)
	for {
		select {
		case <-p.stopping:
			l.turn.Release()
			return nil, fmt.Errorf("%w: stopping", ErrUnavailable)
		case <-granted:
			granted, free = nil, p.free
		case l.slot = <-free:
			l.waited = time.Since(l.asked)
			return l, nil
		case <-ctx.Done():
			l.turn.Release()
			return nil, ended(ctx.Err(), "while all slots were busy")
		}
	}
}

// inlineLease is that of an Inline.
type inlineLease struct {
	p      *Inline
	turn   fair.Turn
	slot   *inlineSlot // nil: given back
	asked  time.Time
	waited time.Duration
}

// Release implements Lease.
func (l *inlineLease) Release() {
	if l.slot != nil {
		l.p.free <- l.slot
		l.slot = nil
		l.turn.Release()
	}
}

// Do runs a handler. At the deadline it returns and leaves the handler running.
func (l *inlineLease) Do(ctx context.Context, req Request) (Response, error) {
	p := l.p
	if err := p.quarantine.admit(p.cfg, &req); err != nil {
		l.Release()
		return Response{}, err
	}
	began, s := time.Now(), l.slot
	l.slot = nil
	req = s.keep(req)
	ctx, cancel := context.WithTimeout(ctx, p.cfg.RequestTimeout)
	defer cancel()
	t := inlineTask{req: &req, turn: l.turn, done: make(chan inlineResult, 1)}
	t.deadline, _ = ctx.Deadline()
	p.count(func(st *Stats) { st.Busy++; st.Requests++ })
	s.tasks <- t
	select {
	case r := <-t.done:
		if r.err != nil {
			return Response{}, fmt.Errorf("%q: %w", req.Name, r.err)
		}
		return Response{Body: r.body, Waited: l.waited, Ran: time.Since(began)}, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.count(func(st *Stats) { st.Timeouts++ })
			return Response{}, fmt.Errorf("%w: %q, during its handler: %w", ErrTimeout, req.Name, ctx.Err())
		}
		return Response{}, fmt.Errorf("%q, during its handler: %w", req.Name, ctx.Err())
	}
}

func (p *Inline) isStarted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// keep copies the pixels into the slot, which then outlive their caller.
func (s *inlineSlot) keep(req Request) Request {
	n := 0
	for _, part := range req.Pixels {
		n += len(part)
	}
	if cap(s.buf) < n || cap(s.buf) > max(memoryKeep, n) {
		s.buf = aligned(n)
	}
	s.buf = s.buf[:0]
	for _, part := range req.Pixels {
		s.buf = append(s.buf, part...)
	}
	req.Pixels = [][]byte{s.buf}
	return req
}

// own is the life of a slot: its goroutine builds the handler, calls it and
// closes it, all on one thread.
func (p *Inline) own(s *inlineSlot) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer s.drop()
	for t := range s.tasks {
		r := inlineResult{}
		if t.req == nil {
			s.drop()
			r.err = p.build(s)
		} else {
			r.body, r.err = p.attempt(s, t)
			p.count(func(st *Stats) { st.Busy-- })
		}
		p.free <- s // before the answer: who has it may ask again at once
		t.turn.Release()
		t.done <- r
	}
}

// build makes the slot's handler and has it answer the canary.
func (p *Inline) build(s *inlineSlot) error {
	h, err := p.kind.New(p.cfg.Init)
	if err != nil {
		e, _ := crossing(err)
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, p.kind.Name, e)
	}
	s.handler = h
	if p.cfg.Canary == nil {
		return nil
	}
	body, err := call(h, (&inlineSlot{}).keep(p.cfg.Canary.Request), time.Time{})
	if err == nil {
		err = p.cfg.Canary.Check(body)
	}
	if err != nil {
		s.drop()
		return fmt.Errorf("%w: %s: canary: %w", ErrUnavailable, p.kind.Name, err)
	}
	return nil
}

// attempt calls the handler, and once more with a new one if the first is spoilt.
func (p *Inline) attempt(s *inlineSlot, t inlineTask) ([]byte, error) {
	var deaths []error
	for range attempts {
		if s.handler == nil {
			if err := p.build(s); err != nil {
				return nil, errors.Join(err, errors.Join(deaths...))
			}
		}
		body, err := call(s.handler, *t.req, t.deadline)
		if err == nil && t.req.Check != nil {
			if wrong := t.req.Check(body); wrong != nil {
				err = fmt.Errorf("%w: a wrong answer: %w", errSpoilt, wrong)
			}
		}
		if errors.Is(err, ErrCrashed) {
			p.count(func(st *Stats) { st.Crashes++; st.LastError = err.Error() })
		}
		if !errors.Is(err, errSpoilt) {
			return body, err
		}
		s.drop()
		p.count(func(st *Stats) { st.Crashes++; st.Restarts++; st.LastError = err.Error() })
		deaths = append(deaths, err)
	}
	why := errors.Join(deaths...)
	err := fmt.Errorf("%w: tried %d times: %w", ErrCrashed, attempts, why)
	if broken := p.build(s); broken != nil {
		return nil, fmt.Errorf("%w; %w: %w", err, ErrHost, broken)
	}
	p.quarantine.add(*t.req, why)
	return nil, err
}

// drop gives the handler up.
func (s *inlineSlot) drop() {
	if c, ok := s.handler.(io.Closer); ok {
		_ = c.Close() // nobody is left who could do anything about it
	}
	s.handler = nil
}

// call makes of what a handler does what a Pool makes of a child's answer.
func call(h Handler, req Request, deadline time.Time) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, fmt.Errorf("%w: panic: %v\n%s", ErrCrashed, r, clip(string(debug.Stack()), endBytes))
		}
	}()
	c := Call{Meta: req.Meta, Deadline: deadline}
	if len(req.Pixels) > 0 {
		c.Pixels = req.Pixels[0]
	}
	if body, err = h.Handle(c); err == nil && len(body) > MaxAnswer {
		err = errTooLong(len(body))
	}
	if err == nil {
		return body, nil
	}
	e, fatal := crossing(err)
	if fatal {
		return nil, fmt.Errorf("%w: %w", errSpoilt, e)
	}
	return nil, fmt.Errorf("%w: %w", ErrHandler, e)
}

// Stop refuses new requests, waits for running handlers until ctx ends, and ends the idle handlers.
// A handler that is still running ends when it returns. A second call returns at once.
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
	for left := made; left > 0; left-- {
		select {
		case s := <-p.free:
			close(s.tasks)
			continue
		default:
		}
		select {
		case s := <-p.free:
			close(s.tasks)
		case <-ctx.Done():
			go p.collect(left) // ends with the last of the handlers
			return fmt.Errorf("%w: a handler still runs: %w", ErrTimeout, ctx.Err())
		}
	}
	p.running.Wait()
	return nil
}

// collect ends so many slots as they become idle.
func (p *Inline) collect(slots int) {
	for range slots {
		close((<-p.free).tasks)
	}
}

// Stats returns a snapshot of the statistics.
func (p *Inline) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Slots = p.cfg.Slots
	s.Alive = p.made
	s.Quarantined = p.quarantine.size()
	return s
}

func (p *Inline) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}
