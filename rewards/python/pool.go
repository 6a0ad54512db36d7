package python

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/rewards"
)

// startTries is how many starts must fail in a row, with no process alive, before
// calls are refused instead of waiting.
const startTries = 3

// deadlyRow is how many different samples in a row must have ended their process before the
// function is held back: it has one process then, after a pause.
const deadlyRow = 8

// processes are those of one function. The calls that wait are served tenant by tenant,
// by the time that these have had places, and each tenant's in the order they came.
type processes struct {
	cfg   Config
	opts  Options
	share *share
	// looksAsync is asked while no process has started.
	looksAsync func() bool

	stopping chan struct{} // closed by stop
	first    chan struct{} // closed when the first start is decided
	wg       sync.WaitGroup

	mu        sync.Mutex
	begun     bool                  // guarded by mu
	grouped   bool                  // guarded by mu; groups will come; does not change once begun
	stopped   bool                  // guarded by mu
	decided   bool                  // guarded by mu; first is closed
	procs     map[*process]struct{} // guarded by mu; for stop to kill
	places    []*place              // guarded by mu; those alive
	queue     *fair.Queue[*waiter]  // guarded by mu; those that wait, and those that have a place
	trials    []*trial              // guarded by mu; the first one runs
	starting  int                   // guarded by mu; 0 or 1
	wanting   bool                  // guarded by mu; the share knows that it wants one more
	known     bool                  // guarded by mu; a process has started
	async     bool                  // guarded by mu; known with the first start
	capacity  int                   // guarded by mu; of a process; likewise
	takes     takes                 // guarded by mu; likewise
	startTook time.Duration         // guarded by mu; of the newest process
	lost      int                   // guarded by mu; processes that died and were not replaced
	failures  int                   // guarded by mu; starts failed in a row
	unused    int                   // guarded by mu; processes in a row that died before they answered anything
	deadly    map[string]bool       // guarded by mu; samples in a row that ended their process, at most deadlyRow
	held      int                   // guarded by mu; how many have since there were deadlyRow of them; 0: it is not held back
	refused   error                 // guarded by mu; permanent: nothing will start
	pause     time.Time             // guarded by mu; no start before it
	wake      *time.Timer           // guarded by mu; starts what waits for pause
	stats     Stats                 // guarded by mu
	profile   *Profile              // guarded by mu; the one that is being made; nil: none is
}

// Stats is a snapshot of a scorer's processes. The counters never decrease.
type Stats struct {
	// Processes is the maximum number of processes. Alive is the number of running processes,
	// Running the number of calls in them, and Waiting the number of calls that wait for a process.
	Processes int  `json:"processes"`
	Alive     int  `json:"alive"`
	Running   int  `json:"running"`
	Waiting   int  `json:"waiting"`
	Async     bool `json:"async"`
	// BackoffUntil is the earliest time of the next start, and Reason explains the delay. Both are
	// zero if there is no delay.
	BackoffUntil time.Time `json:"backoff_until,omitzero"`
	Reason       string    `json:"reason,omitempty"`
	// PIDs are the process IDs of the running processes.
	PIDs     []int  `json:"pids,omitempty"`
	Calls    uint64 `json:"calls"`
	Restarts uint64 `json:"restarts"`
	// Crashes counts processes that ended during a call. Timeouts counts processes that were killed
	// at a deadline.
	Crashes  uint64 `json:"crashes"`
	Timeouts uint64 `json:"timeouts"`
	// LastError describes how the last process ended or failed to start.
	LastError string `json:"last_error,omitempty"`
}

// place is a process that is alive.
type place struct {
	conn    *conn
	number  int // among those alive, from 0
	running int
	idle    time.Time // since when; while nothing runs
	spare   bool      // one of the share's
	trial   bool      // it finds out which call ends its process
	up      time.Time // since when
	leaving bool      // another function gets it when its calls have ended
	retired bool      // it is being ended, for want of work or for another function
}

// waiter is a call that waits for a place, or has one.
type waiter struct {
	tenant fair.Tenant
	call   *fair.Call[*waiter] // nil: it waits in a trial
	got    chan struct{}       // closed when it has its place, or is refused
	place  *place              // set before got is closed
	err    error               // why it was refused; likewise
}

func newPool(cfg Config, opts Options, s *share) *processes {
	p := &processes{
		cfg: cfg, opts: opts, share: s, procs: map[*process]struct{}{},
		queue: fair.NewQueue[*waiter](), stopping: make(chan struct{}), first: make(chan struct{}), deadly: map[string]bool{}, capacity: 1,
		looksAsync: sync.OnceValue(func() bool { return looksAsync(opts.Path, opts.Name) }),
	}
	s.join(p)
	return p
}

// begin starts the first process. A second call does nothing.
func (p *processes) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.begun {
		p.begun = true
		p.grow()
	}
}

// expectGroups says, before anything has begun, that groups will come.
func (p *processes) expectGroups() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun && !p.grouped {
		return errors.New("python: call PostProcess before Warm and the first Score")
	}
	p.grouped = true
	return nil
}

func (p *processes) takesGroups() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grouped
}

// warm waits until the first process has started, and says why it has not.
func (p *processes) warm(ctx context.Context) error {
	p.begin()
	select {
	case <-p.first:
	case <-p.stopping:
		return p.stoppingError()
	case <-ctx.Done():
		return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: %s: still starting: %w", rewards.Unavailable, p.opts.label(), ctx.Err()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures > 0 && len(p.places) == 0 {
		return p.startError()
	}
	return nil
}

func (p *processes) stoppingError() error {
	return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: %s: stopping", rewards.Unavailable, p.opts.label()))
}

// startError is why no process starts. The caller holds mu.
func (p *processes) startError() error {
	if p.refused != nil {
		return p.refused
	}
	return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: %s: no process starts: %s", rewards.Unavailable, p.opts.label(), p.stats.LastError))
}

// acquire waits for a place in a process, or with a trial for one in the trial's.
func (p *processes) acquire(ctx context.Context, t *trial) (*waiter, error) {
	w := &waiter{tenant: fair.Tenant(rewards.TenantOf(ctx)), got: make(chan struct{})}
	p.mu.Lock()
	if err := p.useless(); err != nil {
		p.mu.Unlock()
		return nil, err
	}
	if t != nil {
		t.waiting = append(t.waiting, w)
	} else {
		w.call = p.queue.Push(w.tenant, w, time.Now())
	}
	p.match()
	p.mu.Unlock()
	select {
	case <-w.got:
		return w.placed()
	case <-ctx.Done():
	}
	p.mu.Lock()
	if t != nil {
		t.waiting = slices.DeleteFunc(t.waiting, func(o *waiter) bool { return o == w })
	} else {
		p.queue.Remove(w.call)
	}
	p.mu.Unlock()
	select {
	case <-w.got: // in the same moment
		if w.err == nil {
			p.release(w, false)
		}
	default:
	}
	return nil, p.waitedError(ctx)
}

// placed is what a wait came to, once got is closed.
func (w *waiter) placed() (*waiter, error) {
	if w.err != nil {
		return nil, w.err
	}
	return w, nil
}

// waitedError is of a call whose time passed, or whose caller left, while it waited.
func (p *processes) waitedError(ctx context.Context) error {
	class := rewards.Cancelled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		class = rewards.Timeout
	}
	p.mu.Lock()
	why := p.reason()
	p.mu.Unlock()
	if why != "" {
		why = " (" + why + ")"
	}
	return rewards.Blamed(rewards.BlameNobody, fmt.Errorf("%w: %s: the call waited for a process%s: %w", class, p.opts.label(), why, ctx.Err()))
}

// useless says why waiting makes no sense; nil: it does. The caller holds mu.
func (p *processes) useless() error {
	switch {
	case p.stopped:
		return p.stoppingError()
	case p.refused != nil || len(p.places) == 0 && p.failures >= startTries:
		return p.startError()
	}
	return nil
}

// refuse sends all waiters away. The caller holds mu.
func (p *processes) refuse(err error) {
	var all []*waiter
	for now := time.Now(); p.queue.Len() > 0; {
		w := p.queue.First(0, now).Value
		p.queue.Remove(w.call)
		all = append(all, w)
	}
	for _, t := range p.trials {
		all, t.waiting = append(all, t.waiting...), nil
	}
	for _, w := range all {
		w.err = err
		close(w.got)
	}
}

// match gives places to the waiters whose turn it is, and starts a process for those for
// whom there is none. The caller holds mu.
func (p *processes) match() {
	p.matchTrial()
	executors := 0
	for _, pl := range p.places {
		executors += pl.conn.capacity
	}
	for p.queue.Len() > 0 {
		pl := p.emptiest()
		if pl == nil {
			break
		}
		now := time.Now()
		c := p.queue.First(executors, now)
		p.queue.Take(c, now)
		p.queue.Begin(c, now)
		p.hand(pl, c.Value)
	}
	p.grow()
}

// hand gives a place to a waiter. The caller holds mu.
func (p *processes) hand(pl *place, w *waiter) {
	if w.call == nil { // a trial has its own order; the time counts all the same
		w.call = p.queue.Start(w.tenant, w, time.Now())
	}
	pl.running++
	p.stats.Calls++
	w.place = pl
	close(w.got)
}

// emptiest is the process with the fewest calls that can take one more.
func (p *processes) emptiest() *place {
	var best *place
	for _, pl := range p.places {
		if !pl.trial && !pl.leaving && !pl.retired && pl.running < pl.conn.capacity && (best == nil || pl.running < best.running) {
			best = pl
		}
	}
	return best
}

// release takes a place back, with an answer or without. A process that died has none.
func (p *processes) release(w *waiter, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.End(w.call, time.Now())
	pl := w.place
	if pl.running--; pl.running == 0 {
		pl.idle = time.Now()
		if pl.leaving {
			p.retire(pl)
		}
	}
	if answered {
		clear(p.deadly)
		p.held, p.unused = 0, 0
	}
	p.match()
}

// poke starts what may start now.
func (p *processes) poke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grow()
}

// grow starts the process that is wanted most, one at a time: for a trial, the
// function's own, or a spare one for those that wait. The caller holds mu.
func (p *processes) grow() {
	if !p.begun || p.stopped || p.refused != nil || p.starting > 0 {
		return
	}
	wants := false
	defer func() {
		if p.wanting && !wants {
			p.share.content(p)
		}
		p.wanting = wants
	}()
	ordinary, own := p.ordinary()
	trying := p.trying() != nil
	var trial, spare bool
	switch {
	case p.held > 0 && len(p.places) > 0:
		return
	case len(p.trials) > 0 && !trying:
		trial = true
	case ordinary == 0 && (p.queue.Len() > 0 || !trying):
	case p.queue.Len() > 0 && own == 0:
	case p.queue.Len() > 0:
		spare = true
	default:
		return
	}
	if wait := time.Until(p.pause); wait > 0 {
		if p.wake == nil {
			p.wake = time.AfterFunc(wait, p.awake)
		}
		return
	}
	if spare && !p.share.take(p, p.capacity > 1, ordinary, p.queue.Weight()) {
		wants = true
		return
	}
	p.starting++
	p.wg.Go(func() { p.live(trial, spare) })
}

// ordinary are how many processes work for all calls, and how many of them are the function's
// own. The caller holds mu.
func (p *processes) ordinary() (all, own int) {
	for _, pl := range p.places {
		if !pl.trial && !pl.leaving && !pl.retired {
			all++
			if !pl.spare {
				own++
			}
		}
	}
	return all, own
}

// awake is the end of a pause.
func (p *processes) awake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake = nil
	p.grow()
}

// rest lets no process start for a while, which doubles with the length of a row of
// failures. The caller holds mu.
func (p *processes) rest(row int) {
	d := p.cfg.BackoffMin
	for ; row > 1 && d < p.cfg.BackoffMax; row-- {
		d *= 2
	}
	p.pause = time.Now().Add(min(d, p.cfg.BackoffMax))
}

// reason says why calls wait for longer than a start takes; "": they do not. The caller
// holds mu.
func (p *processes) reason() string {
	switch {
	case p.held > 0:
		return fmt.Sprintf("%d samples in a row crashed their process; the function has one process, which starts after a pause", deadlyRow)
	case p.failures > 0:
		return fmt.Sprintf("%d starts in a row failed: %s", p.failures, p.stats.LastError)
	case p.unused > 0:
		return fmt.Sprintf("%d processes in a row ended before they answered a call: %s", p.unused, p.stats.LastError)
	}
	return ""
}

// stop kills the processes and waits until no goroutine of the pool is left. A second
// call waits as well.
func (p *processes) stop() {
	p.mu.Lock()
	if !p.stopped {
		p.stopped = true
		close(p.stopping)
		for proc := range p.procs {
			proc.kill()
		}
		p.refuse(p.stoppingError())
		if p.wake != nil {
			p.wake.Stop()
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
	p.share.leave(p)
}

func (p *processes) snapshot() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Processes, s.Alive, s.Async, s.Waiting = 1, len(p.places), p.async, p.queue.Len()
	if p.capacity == 1 || p.share.explicit {
		s.Processes += p.share.spare
	}
	for _, t := range p.trials {
		s.Waiting += len(t.waiting)
	}
	for _, pl := range p.places {
		s.Running += pl.running
		s.PIDs = append(s.PIDs, pl.conn.proc.pid())
	}
	if s.Reason = p.reason(); s.Reason != "" {
		s.BackoffUntil = p.pause
	}
	return s
}
