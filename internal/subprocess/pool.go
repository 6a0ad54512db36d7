package subprocess

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// Pool supervises children of one kind. Its methods are safe for concurrent use.
type Pool struct {
	cfg        Config
	quarantine *quarantine

	gate     *fair.Gate    // a turn for each slot: who has one gets a child as soon as there is one
	offer    chan *child   // unbuffered: an idle child goes from its owner to exactly one Lease
	fork     chan func()   // work for the one thread that starts processes
	stopping chan struct{} // closed by Stop
	killed   chan struct{} // closed when Stop kills what is left
	stopped  chan struct{} // closed when nothing of the pool is left
	owners   sync.WaitGroup
	forker   sync.WaitGroup

	mu       sync.Mutex
	cancel   context.CancelFunc // ends starts, pauses and offers; nil: not started
	stopOnce bool
	killOnce sync.Once
	live     map[*child]bool // every process; true: ready
	failing  []int           // by slot: starts failed in a row
	down     chan struct{}   // closed while every slot fails to start
	renew    chan struct{}   // closed by the next Restart
	downErr  error           // of the last start that failed, or of the quarantine
	record   record          // of the device
	stats    Stats
}

// New checks the configuration and returns a pool without children; call Start.
func New(cfg Config) (*Pool, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(cfg.Command) == 0 {
		command, err := selfCommand(cfg.Kind)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		cfg.Command = command
	}
	if cfg.Env == nil {
		cfg.Env = []string{} // nil would inherit everything
	}
	p := &Pool{
		cfg:        cfg,
		quarantine: newQuarantine(),
		gate:       fair.NewGate(cfg.Slots),
		offer:      make(chan *child),
		fork:       make(chan func()),
		stopping:   make(chan struct{}),
		killed:     make(chan struct{}),
		stopped:    make(chan struct{}),
		live:       make(map[*child]bool),
		failing:    make([]int, cfg.Slots),
		down:       make(chan struct{}),
		renew:      make(chan struct{}),
	}
	if cfg.Device != nil {
		p.record.device = *cfg.Device
	}
	return p, nil
}

// Start starts the children and returns nil when all are ready. If a child fails to start three
// times in a row, or if ctx ends, Start stops all children and returns the reason. ctx limits only
// the start. A pool can be started once.
func (p *Pool) Start(ctx context.Context) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.mu.Lock()
	if p.cancel != nil || p.stopOnce {
		p.mu.Unlock()
		cancel()
		return fmt.Errorf("%w: started twice or after its end", ErrUnavailable)
	}
	p.cancel = cancel
	first := make(chan error, p.cfg.Slots) // one word of each owner
	// The owner of the forking thread. It must not end before the children do: a
	// child's parent-death signal comes when the thread ends that forked it.
	p.forker.Go(func() {
		runtime.LockOSThread()
		for f := range p.fork {
			f()
		}
	})
	for i := range p.cfg.Slots {
		p.owners.Go(func() { p.own(life, i, first) })
	}
	p.mu.Unlock()

	for range p.cfg.Slots {
		var err error
		select {
		case err = <-first:
		case <-ctx.Done():
			err = fmt.Errorf("%w: waiting for the children to start: %w", ErrUnavailable, ctx.Err())
		}
		if err != nil {
			over, cancel := context.WithCancel(context.WithoutCancel(ctx))
			cancel()
			_ = p.Stop(over) // that children had to be killed is no news
			return err
		}
	}
	return nil
}

// Do calls Take with the zero Tenant and then Do of the Lease, for callers that take turns
// themselves.
func (p *Pool) Do(ctx context.Context, req Request) (Response, error) {
	if err := p.quarantine.admit(p.cfg, &req); err != nil {
		return Response{}, err
	}
	l, err := p.take(ctx, fair.Tenant{})
	if err != nil {
		return Response{}, fmt.Errorf("%q: %w", req.Name, err)
	}
	req.began()
	return l.Do(ctx, req)
}

// Take waits for a child. Tenants take turns, by the time for which they have used children. ctx
// limits only the wait. The errors are those of Do.
func (p *Pool) Take(ctx context.Context, t fair.Tenant) (Lease, error) {
	l, err := p.take(ctx, t)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (p *Pool) take(ctx context.Context, t fair.Tenant) (*lease, error) {
	l := &lease{p: p, asked: time.Now(), turn: p.gate.Join(t)}
	var err error
	if l.child, err = p.idle(ctx, l.turn.Granted()); err != nil {
		l.turn.Release()
		return nil, err
	}
	l.waited = time.Since(l.asked)
	return l, nil
}

// guilty is the error of a request that cost its children, and remembers the input that is
// to blame. Who was shot from outside was unlucky, and may be sent again; so may one
// after which no child answers the canary any more.
func (p *Pool) guilty(ctx context.Context, req Request, why error, ownFault bool, next <-chan error) error {
	err := fmt.Errorf("%w: %q was tried %d times: %w", ErrCrashed, req.Name, req.attempts(), why)
	if !ownFault {
		return fmt.Errorf("%w; %w: a child was killed from outside", err, ErrHost)
	}
	select {
	case broken, replaced := <-next:
		if !replaced {
			return fmt.Errorf("%w; %w: the pool stops", err, ErrHost)
		}
		if broken != nil {
			return fmt.Errorf("%w; %w: %w", err, ErrHost, broken)
		}
	case <-ctx.Done(): // both children had answered the canary
	}
	if !req.Once { // a part of it is to blame
		p.quarantine.add(req, why)
	}
	p.count(func(*Stats) { p.record.excuse(req.attempts()) })
	return err
}

// idle waits until granted is closed, and then for an idle child.
func (p *Pool) idle(ctx context.Context, granted <-chan struct{}) (*child, error) {
	offer := p.offer
	if granted != nil {
		offer = nil
	}
	for {
		p.mu.Lock()
		down, started := p.down, p.cancel != nil
		p.mu.Unlock()
		if !started {
			return nil, fmt.Errorf("%w: not started", ErrUnavailable)
		}
		if err := ctx.Err(); err != nil {
			return nil, ended(err, "before a child was free")
		}
		select {
		case <-granted:
			granted, offer = nil, p.offer
		case c := <-offer:
			if !c.gone() {
				p.count(func(s *Stats) { s.Busy++; s.Requests++ })
				return c, nil
			}
			c.back <- verdict{fate: dead} // no fault of this request
		case <-p.stopping:
			return nil, fmt.Errorf("%w: stopping", ErrUnavailable)
		case <-down:
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, p.whyDown())
		case <-ctx.Done():
			return nil, ended(ctx.Err(), fmt.Sprintf("while all %d children were busy", p.cfg.Slots))
		}
	}
}

func (p *Pool) whyDown() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.downErr
}

// ended turns the end of a context during a wait for a child into an error of this package.
func ended(err error, when string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w %s: %w: %w", ErrTimeout, when, ErrWaiting, err)
	}
	return fmt.Errorf("%s: %w", when, err)
}

// run has c do one attempt and says what becomes of c.
func (p *Pool) run(ctx context.Context, c *child, req Request) ([]byte, verdict, error) {
	defer p.count(func(s *Stats) { s.Busy-- })
	until := time.Now().Add(p.cfg.RequestTimeout)
	attempt, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	body, err := c.exchange(attempt, opDo, req)
	if err == nil && req.Check != nil {
		if wrong := req.Check(body); wrong != nil {
			err = fmt.Errorf("%w: a wrong answer: %w", errBroken, wrong)
		}
	}
	switch {
	case err == nil:
		c.answered++
		p.count(func(*Stats) { p.record.worked() })
		return body, verdict{fate: free}, nil
	case errors.Is(err, ErrHandler):
		c.answered++
		v := verdict{fate: free}
		if p.suspects(err) {
			v.fate = doubtful
		}
		return nil, v, fmt.Errorf("%q: %w", req.Name, err)
	case errors.Is(err, ErrUnavailable):
		return nil, verdict{fate: free}, fmt.Errorf("%q: %w", req.Name, err)
	case errors.Is(err, context.Canceled):
		return nil, verdict{fate: lingering, until: until}, fmt.Errorf("%q: %w", req.Name, err)
	case attempt.Err() != nil && !errors.Is(attempt.Err(), context.Canceled):
		c.destroy()
		p.count(func(s *Stats) { s.Timeouts++ })
		err = fmt.Errorf("%w: %q, child %d was killed: %w", ErrTimeout, req.Name, c.id, attempt.Err())
		return nil, verdict{fate: broken, fault: err}, err
	}
	return nil, verdict{fate: broken}, err
}

// Stop refuses new requests, lets running requests end until ctx ends, kills the remaining
// children, and returns when no process and no goroutine remains. Stop may be called more than
// once; every call waits.
func (p *Pool) Stop(ctx context.Context) error {
	p.mu.Lock()
	begin := !p.stopOnce
	p.stopOnce = true
	cancel := p.cancel
	p.mu.Unlock()
	if begin {
		close(p.stopping)
		if cancel == nil {
			close(p.stopped)
			return nil
		}
		cancel()
		// Ends when the last owner has; whoever calls Stop waits for it.
		go func() {
			p.owners.Wait()
			close(p.fork)
			p.forker.Wait()
			close(p.stopped)
		}()
	}
	select {
	case <-p.stopped:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	n := len(p.live) // before the owners hear of it, who remove those that they destroy
	p.killOnce.Do(func() { close(p.killed) })
	for c := range p.live {
		c.destroy()
	}
	p.mu.Unlock()
	<-p.stopped
	if n > 0 {
		return fmt.Errorf("%w: %d children were killed at the end of the drain", ErrUnavailable, n)
	}
	return nil
}

// Stats returns a snapshot of the statistics.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Slots = p.cfg.Slots
	s.Quarantined = p.quarantine.size()
	if q := p.record.now; q != nil {
		now := *q
		s.Quarantine = &now
	}
	for c, ready := range p.live {
		if ready {
			s.Alive++
			s.PIDs = append(s.PIDs, c.id)
		}
	}
	return s
}

// count changes the counters.
func (p *Pool) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// died notes how a child ended that should not have.
func (p *Pool) died(why error) {
	p.count(func(s *Stats) { s.Crashes++; s.LastError = why.Error() })
}
