package python

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// startTries is how many starts must fail in a row, with no host alive, before
// calls are refused instead of waiting.
const startTries = 3

// pool keeps the hosts of one function. Calls wait in the order they came.
type pool struct {
	cfg  Config
	opts Options

	stopping chan struct{} // closed by stop
	first    chan struct{} // closed when the first start is decided
	full     chan struct{} // closed when the first start of every host is decided
	wg       sync.WaitGroup

	mu       sync.Mutex
	begun    bool                  // guarded by mu
	grouped  bool                  // guarded by mu; groups will come; does not change once begun
	stopped  bool                  // guarded by mu
	procs    map[*process]struct{} // guarded by mu; for stop to kill
	hosts    []*place              // guarded by mu; those alive
	waiters  []*waiter             // guarded by mu; oldest first
	target   int                   // guarded by mu; hosts wanted, 0 until known
	decided  int                   // guarded by mu; owners whose first start is decided
	failures int                   // guarded by mu; starts failed in a row
	async    bool                  // guarded by mu
	stats    Stats                 // guarded by mu
}

// Stats is a snapshot of a scorer's hosts. The counters only grow.
type Stats struct {
	// Hosts is how many are wanted, Alive how many can work, Running the calls they hold.
	Hosts   int  `json:"hosts"`
	Alive   int  `json:"alive"`
	Running int  `json:"running"`
	Async   bool `json:"async"`
	// PIDs are the processes of the hosts that can work.
	PIDs     []int  `json:"pids,omitempty"`
	Calls    uint64 `json:"calls"`
	Restarts uint64 `json:"restarts"`
	// Crashes counts hosts that died holding a call, Timeouts those killed at a deadline.
	Crashes  uint64 `json:"crashes"`
	Timeouts uint64 `json:"timeouts"`
	// LastError is how the last host died or failed to start.
	LastError string `json:"last_error,omitempty"`
}

// place is a host that is alive.
type place struct {
	conn    *conn
	running int
	alone   bool // its one call shares it with nobody
}

// waiter is a call that waits for a place.
type waiter struct {
	alone bool
	got   chan *conn // capacity 1; closed: refused
}

func newPool(cfg Config, opts Options) *pool {
	return &pool{
		cfg: cfg, opts: opts, procs: map[*process]struct{}{},
		stopping: make(chan struct{}), first: make(chan struct{}), full: make(chan struct{}),
	}
}

// begin starts the first host; the others follow when it is ready and has said
// what the function is. A second call does nothing.
func (p *pool) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun || p.stopped {
		return
	}
	p.begun = true
	p.wg.Go(func() { p.own(true) })
}

// expectGroups says, before anything has begun, that groups will come.
func (p *pool) expectGroups() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun && !p.grouped {
		return errors.New("python: PostProcess comes before Warm and the first Score")
	}
	p.grouped = true
	return nil
}

func (p *pool) takesGroups() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grouped
}

// warm waits until every host has started once, and says why the first did not.
func (p *pool) warm(ctx context.Context) error {
	p.begin()
	for _, c := range []chan struct{}{p.first, p.full} {
		select {
		case <-c:
		case <-p.stopping:
			return fmt.Errorf("%w: stopping", rewards.Unavailable)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: still starting: %w", rewards.Unavailable, p.opts.label(), ctx.Err())
		}
		if err := p.startError(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pool) startError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures > 0 && len(p.hosts) == 0 {
		return fmt.Errorf("%w: %s: %s", rewards.Unavailable, p.opts.label(), p.stats.LastError)
	}
	return nil
}

// own is the life of a host's owner. Its thread ends with it, and a process forked
// by that thread would end then too; it outlives every process it starts.
func (p *pool) own(leader bool) {
	runtime.LockOSThread()
	decided := false
	for failed := 0; ; {
		c, err := p.start()
		if err != nil {
			failed++
			p.startFailed(err)
		} else {
			p.up(c, leader)
		}
		if !decided {
			decided = true
			p.decide(leader)
		}
		if err == nil {
			p.serve(c)
			if failed++; c.used() {
				failed = 0
			}
		}
		if !p.sleep(p.backoff(failed)) {
			return
		}
		p.count(func(s *Stats) { s.Restarts++ })
	}
}

// decide tells those who wait in warm that a first start is over.
func (p *pool) decide(leader bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.decided++; leader {
		close(p.first)
	}
	if p.target > 0 && p.decided == p.target {
		close(p.full)
	}
}

func (p *pool) backoff(failed int) time.Duration {
	if failed == 0 {
		return 0
	}
	d := p.cfg.BackoffMin
	for ; failed > 1 && d < p.cfg.BackoffMax; failed-- {
		d *= 2
	}
	return min(d, p.cfg.BackoffMax)
}

// sleep reports whether it slept to the end and the pool goes on.
func (p *pool) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.stopping:
		return false
	default:
	}
	select {
	case <-t.C:
		return true
	case <-p.stopping:
		return false
	}
}

// start makes a process and waits until it is ready.
func (p *pool) start() (*conn, error) {
	proc, err := spawn(p.cfg.Interpreter)
	if err != nil {
		return nil, err
	}
	if !p.enlist(proc) {
		return nil, errors.New("stopping: " + proc.wait())
	}
	r, err := p.handshake(proc)
	if err != nil {
		how := proc.wait()
		p.dismiss(proc)
		if refused := (*refusedError)(nil); errors.As(err, &refused) {
			return nil, err
		}
		return nil, fmt.Errorf("starting a host with %s: %w (%s)%s", p.cfg.Interpreter, err, how, proc.lastWords())
	}
	c := &conn{
		proc: proc, label: p.opts.label(), async: r.Async, capacity: 1,
		timeout: p.cfg.CallTimeout, grace: p.cfg.CancelGrace, stall: p.cfg.StallTimeout, release: p.release, pending: map[uint64]*entry{},
	}
	if r.Async {
		c.capacity = p.cfg.Concurrency
	}
	return c, nil
}

// refusedError is what a host says of a function that cannot be used.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

// lastWords are those of the host, behind a colon; "" for silence.
func (p *process) lastWords() string {
	if said := p.output.LastWords(); said != "" {
		return "; its last words: " + said
	}
	return ""
}

func (p *pool) handshake(proc *process) (reply, error) {
	limits := map[string]int64{"FSIZE": p.cfg.FileBytes, "NOFILE": int64(p.cfg.Files)}
	if p.cfg.MemoryBytes > 0 {
		limits["AS"] = p.cfg.MemoryBytes
	}
	head, err := encodeFrame(load{
		Protocol: protocol, Path: p.opts.Path, Name: p.opts.Name, Pixels: p.opts.Pixels, Kwargs: p.opts.Kwargs, Limits: limits,
		Stall: p.cfg.StallTimeout.Seconds(), PostProcess: p.takesGroups(),
	}, 0)
	if err != nil {
		return reply{}, err
	}
	_ = proc.conn.SetDeadline(time.Now().Add(p.cfg.StartTimeout))
	if _, err := writeFrame(proc.conn, head, nil); err != nil {
		return reply{}, err
	}
	r, err := readReply(proc.conn)
	switch {
	case err != nil:
		return reply{}, fmt.Errorf("it was not ready within %v: %w", p.cfg.StartTimeout, err)
	case r.Op == "refused":
		return reply{}, &refusedError{r.Message}
	case r.Op != "ready":
		return reply{}, fmt.Errorf("%w: %q before ready", errFrame, r.Op)
	}
	return r, proc.conn.SetDeadline(time.Time{})
}

// serve reads a host's answers to its end and fails what it held.
func (p *pool) serve(c *conn) {
	err := c.read()
	if errors.Is(err, errFrame) {
		c.proc.kill()
	} else {
		err = nil
	}
	how := fmt.Errorf("the host ended (%s)%s", c.proc.wait(), c.proc.lastWords())
	if err != nil {
		how = fmt.Errorf("the host was killed: %w%s", err, c.proc.lastWords())
	}
	p.dismiss(c.proc)
	p.down(c)
	held, blamed := c.die(how)
	p.count(func(s *Stats) {
		s.LastError = how.Error()
		if blamed {
			s.Timeouts++
		} else if held > 0 {
			s.Crashes++
		}
	})
}

func (p *pool) enlist(proc *process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.procs[proc] = struct{}{}
	return true
}

func (p *pool) dismiss(proc *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.procs, proc)
}

// up offers a host that is ready. The leader's first says what the function is, and
// with that how many hosts there shall be.
func (p *pool) up(c *conn, leader bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = 0
	p.hosts = append(p.hosts, &place{conn: c})
	if leader && p.target == 0 {
		p.async = c.async
		p.target = max(1, p.cfg.Hosts)
		if p.cfg.Hosts == 0 && !c.async {
			p.target = runtime.NumCPU()
		}
		for range p.target - 1 {
			p.wg.Go(func() { p.own(false) })
		}
	}
	p.match()
}

func (p *pool) down(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosts = slices.DeleteFunc(p.hosts, func(h *place) bool { return h.conn == c })
}

func (p *pool) startFailed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures++
	p.stats.LastError = err.Error()
	if p.hopeless() {
		p.refuse()
	}
}

// hopeless reports whether waiting makes no sense. The caller holds mu.
func (p *pool) hopeless() bool {
	return p.stopped || len(p.hosts) == 0 && p.failures >= startTries
}

// refuse sends all waiters away. The caller holds mu.
func (p *pool) refuse() {
	for _, w := range p.waiters {
		close(w.got)
	}
	p.waiters = nil
}

// acquire waits for a place in a host, or for a host of its own.
func (p *pool) acquire(ctx context.Context, alone bool) (*conn, error) {
	w := &waiter{alone: alone, got: make(chan *conn, 1)}
	p.mu.Lock()
	if p.hopeless() {
		p.mu.Unlock()
		return nil, p.unavailable()
	}
	p.waiters = append(p.waiters, w)
	p.match()
	p.mu.Unlock()
	select {
	case c, ok := <-w.got:
		if !ok {
			return nil, p.unavailable()
		}
		return c, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.waiters = slices.DeleteFunc(p.waiters, func(o *waiter) bool { return o == w })
	p.match() // those behind it need no longer wait for it
	p.mu.Unlock()
	select {
	case c, ok := <-w.got:
		if ok {
			p.release(c)
		}
	default:
	}
	return nil, fmt.Errorf("%s: waiting for a host: %w", p.opts.label(), ctx.Err())
}

func (p *pool) unavailable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := p.stats.LastError
	if p.stopped {
		why = "stopping"
	}
	return fmt.Errorf("%w: %s: no host starts: %s", rewards.Unavailable, p.opts.label(), why)
}

// match gives places to the waiters in their order, up to the first for whom there
// is none: one that needs a host of its own would else wait for ever. The caller
// holds mu.
func (p *pool) match() {
	n := 0
	for ; n < len(p.waiters); n++ {
		w := p.waiters[n]
		h := p.emptiest()
		if h == nil || w.alone && h.running > 0 {
			break
		}
		h.running++
		h.alone = w.alone
		p.stats.Calls++
		w.got <- h.conn
	}
	p.waiters = slices.Delete(p.waiters, 0, n)
}

// emptiest is the host with the fewest calls that can take one more.
func (p *pool) emptiest() *place {
	var best *place
	for _, h := range p.hosts {
		if !h.alone && h.running < h.conn.capacity && (best == nil || h.running < best.running) {
			best = h
		}
	}
	return best
}

// release takes a place back. A host that died has none.
func (p *pool) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.hosts {
		if h.conn == c {
			h.running--
			h.alone = false
		}
	}
	p.match()
}

// stop kills the hosts and waits until no goroutine of the pool is left. A second
// call waits as well.
func (p *pool) stop() {
	p.mu.Lock()
	if !p.stopped {
		p.stopped = true
		close(p.stopping)
		for proc := range p.procs {
			proc.kill()
		}
		p.refuse()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *pool) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

func (p *pool) snapshot() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Hosts, s.Alive, s.Async = p.target, len(p.hosts), p.async
	for _, h := range p.hosts {
		s.Running += h.running
		s.PIDs = append(s.PIDs, h.conn.proc.pid())
	}
	return s
}
