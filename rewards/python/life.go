package python

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// live is the life of a process, from its start to its end. The thread ends with it, and
// a process that was forked by that thread would end then too: it outlives the process.
func (p *processes) live(trial, spare bool) {
	runtime.LockOSThread() // until the goroutine ends
	yield()                // the process inherits it
	c, watched, err := p.start()
	pl := &place{conn: c, trial: trial, spare: spare, idle: time.Now()}
	if err != nil {
		p.startFailed(err)
	} else {
		c.release = p.release
		p.up(pl)
		p.serve(pl, watched)
	}
	p.mu.Lock()
	spare = pl.spare // a trial's may have become one
	p.mu.Unlock()
	if spare {
		p.share.give()
	}
	p.poke()
}

// start makes a process and waits until it is ready.
func (p *processes) start() (*conn, *watch, error) {
	started, ok := p.share.turn(p.stopping)
	if !ok {
		return nil, nil, p.stoppingError()
	}
	defer started()
	began := time.Now()
	limit := p.cfg.memory(p.opts)
	interpreter := p.cfg.interpreter(p.opts)
	proc, err := spawn(interpreter, environment(p.opts.Env, p.cfg.HiddenEnv), newCgroup(limit))
	if err != nil {
		return nil, nil, p.failed(err.Error())
	}
	if !p.enlist(proc) {
		proc.kill()
		proc.wait()
		return nil, nil, p.stoppingError()
	}
	w := watchMemory(proc, limit)
	r, err := p.handshake(proc)
	if err != nil {
		proc.kill()
		end := proc.wait()
		w.stop()
		p.dismiss(proc)
		if refusal := (*refusedError)(nil); errors.As(err, &refusal) {
			return nil, nil, refusal.error
		}
		return nil, nil, p.failed(fmt.Sprintf("starting a process with %s: %v (%s)%s", interpreter, err, p.how(end, w), proc.lastWords()))
	}
	proc.ready(r.PID)
	c := newConn(proc, p.cfg, p.opts.label())
	c.startTook = time.Since(began)
	c.async, c.capacity, c.takes = r.Async, max(1, r.Threads), r.takes
	if c.async {
		c.capacity = cmp.Or(p.opts.Concurrency, p.cfg.Concurrency)
	}
	return c, w, nil
}

// memory is what a process of a function and all below it may have, in bytes.
func (c Config) memory(o Options) int64 { return cmp.Or(o.Memory, c.MemoryBytes) }

// interpreter is the Python that a function runs in.
func (c Config) interpreter(o Options) string { return cmp.Or(o.Interpreter, c.Interpreter) }

// failed is a start that failed for a reason of this machine's, which may pass.
func (p *processes) failed(why string) error {
	return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: %s: %s", rewards.Unavailable, p.opts.label(), why))
}

// refusedError is what a process says of a function that cannot be used, with its blame.
type refusedError struct{ error }

// refusal is the error of a start that the process refused: what is not on this machine is
// this worker's fault, and stays so until it starts again; a function that nobody can
// call is its author's; a module or a constructor that raised may do better.
func (p *processes) refusal(r reply) error {
	err := fmt.Errorf("%w: %s: %s", rewards.Unavailable, p.opts.label(), r.Message)
	switch r.Kind {
	case "missing":
		err = rewards.Permanent(rewards.BlameWorker, err)
	case "refused":
		err = rewards.Permanent(rewards.BlameReward, err)
	default:
		err = rewards.Blamed(rewards.BlameWorker, err)
	}
	return &refusedError{err}
}

// lastWords are those of the process, behind a colon; "" for silence.
func (p *process) lastWords() string {
	if said := p.output.LastWords(); said != "" {
		return "; last output of the process: " + said
	}
	return ""
}

func (p *processes) handshake(proc *process) (reply, error) {
	r, err := question(proc, p.cfg.StartTimeout, load{
		Protocol: protocol, Path: p.opts.Path, Name: p.opts.Name, Pixels: p.opts.Pixels, Kwargs: p.opts.Kwargs,
		Limits: map[string]int64{"FSIZE": p.cfg.FileBytes, "NOFILE": int64(p.cfg.Files)},
		Stall:  p.cfg.StallTimeout.Seconds(), Concurrency: p.opts.Concurrency,
		AgentConcurrency: p.opts.AgentConcurrency, PostProcess: p.takesGroups(),
		Signature: p.opts.Signature, Reference: p.opts.Reference != "", Sources: p.opts.sources(),
	})
	switch {
	case err != nil:
		return reply{}, fmt.Errorf("the process was not ready within %v: %w", p.cfg.StartTimeout, err)
	case r.Op == "refused":
		return reply{}, p.refusal(r)
	case r.Op != "ready":
		return reply{}, fmt.Errorf("%w: %q before ready", errFrame, r.Op)
	}
	return r, nil
}

// startFailed keeps why, and decides whether waiting makes sense.
func (p *processes) startFailed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	p.failures++
	p.stats.LastError = err.Error()
	if _, permanent := rewards.BlameOf(err); permanent {
		p.refused = err
	}
	p.decide()
	if p.stopped {
		return
	}
	p.rest(p.failures)
	p.cfg.Log.Warn("a process of a Python function did not start", "function", p.opts.label(), "in_a_row", p.failures,
		"waiting", p.queue.Len(), "permanent", p.refused != nil, "error", err)
	if useless := p.useless(); useless != nil {
		p.refuse(useless)
	}
}

// decide tells those who wait in warm that the first start is over. The caller holds mu.
func (p *processes) decide() {
	if !p.decided {
		p.decided = true
		close(p.first)
	}
}

// up offers a process that is ready.
func (p *processes) up(pl *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	p.failures = 0
	p.known, p.async, p.capacity, p.startTook, p.takes = true, pl.conn.async, pl.conn.capacity, pl.conn.startTook, pl.conn.takes
	pl.up = time.Now()
	for slices.ContainsFunc(p.places, func(o *place) bool { return o.number == pl.number }) {
		pl.number++
	}
	p.places = append(p.places, pl)
	p.profileLate(pl)
	if p.lost > 0 {
		p.lost--
		p.stats.Restarts++
	}
	p.decide()
	if !pl.trial {
		p.keep(pl)
	}
	p.match()
}

// serve reads a process's answers to its end, and decides what becomes of what it held.
func (p *processes) serve(pl *place, w *watch) {
	c := pl.conn
	var writer sync.WaitGroup
	writer.Go(c.write)
	w.idle.Store(&idler{p, pl})
	ended := make(chan error, 1)
	// It ends with the process; the next line waits for it. This goroutine's own thread
	// yields to others, and is slow to wake.
	go func() { ended <- c.read() }()
	err := <-ended
	if errors.Is(err, errFrame) {
		c.proc.kill()
	} else {
		err = nil
	}
	end := c.proc.wait()
	w.stop()
	how := fmt.Errorf("the process ended (%s)%s", p.how(end, w), c.proc.lastWords())
	if err != nil {
		how = fmt.Errorf("the process was killed: %w%s", err, c.proc.lastWords())
	}
	p.dismiss(c.proc)
	p.down(pl, end.killed && !end.ours && !end.overLimit && w.over.Load() == 0, how)
	writer.Wait()
}

// how says how a process ended, and what to do where it was its memory.
func (p *processes) how(end ending, w *watch) string {
	used := ""
	if over := w.over.Load(); over > 0 {
		used = fmt.Sprintf("the process and its child processes used %d MiB of memory", over>>20)
	} else if end.overLimit {
		used = "the process and its child processes reached the memory limit of the cgroup"
	}
	if used == "" {
		return end.how
	}
	return fmt.Sprintf("%s; the limit is %d MiB: raise memory in the entry, or pool.python.memory", used, p.cfg.memory(p.opts)>>20)
}

func (p *processes) enlist(proc *process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	p.procs[proc] = struct{}{}
	return true
}

func (p *processes) dismiss(proc *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.procs, proc)
}

// down takes a dead process away and answers the calls that it held. Foreign says that
// somebody else killed it.
func (p *processes) down(pl *place, foreign bool, how error) {
	held, blamed, lost := pl.conn.die()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.charge(lost, blamed)
	p.places = slices.DeleteFunc(p.places, func(o *place) bool { return o == pl })
	if pl.retired {
		return
	}
	p.lost++
	p.stats.LastError = how.Error()
	switch {
	case blamed != nil:
		p.stats.Timeouts++
	case len(held) > 0:
		p.stats.Crashes++
	case !pl.conn.used():
		p.unused++
		p.rest(p.unused)
	}
	p.judge(pl, held, blamed, foreign, how)
	p.match()
}

// charge ends the use of a process that died. What its replacement takes to start is charged
// to the tenant whose call it was killed for, else to those of all that it held: a tenant whose
// calls end their processes has no more of them than its share. The caller holds mu.
func (p *processes) charge(lost []*waiter, blamed *entry) {
	if blamed != nil {
		p.queue.Charge(blamed.waiter.call, p.startTook.Seconds(), time.Now())
	}
	for _, w := range lost {
		if blamed == nil {
			p.queue.Charge(w.call, p.startTook.Seconds()/float64(len(lost)), time.Now())
		}
		p.queue.End(w.call, time.Now())
	}
}

// judge answers the calls that a process held when it died. The caller holds mu.
func (p *processes) judge(pl *place, held []*entry, blamed *entry, foreign bool, how error) {
	label := p.opts.label()
	if blamed != nil {
		blamed.give(answer{err: rewards.Blamed(rewards.BlameReward, fmt.Errorf("%w: %s: the process was killed at the deadline", rewards.Timeout, label))})
		held = slices.DeleteFunc(held, func(e *entry) bool { return e == blamed })
	}
	all := func(err error) {
		for _, e := range held {
			e.give(answer{err: err})
		}
	}
	switch {
	case p.stopped:
		all(p.stoppingError())
	case blamed != nil:
		all(fmt.Errorf("%w: %w", errBystander, how))
	case foreign:
		all(rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: %s: the process got a SIGKILL that the server did not send, below the memory limit: "+
			"the machine ran out of memory, or another program killed the process", rewards.Crashed, label)))
	case pl.trial && len(held) == 1:
		all(rewards.Blamed(rewards.BlameReward, fmt.Errorf("%w: %s: %w", rewards.Crashed, label, how)))
		if len(p.deadly) < deadlyRow {
			p.deadly[held[0].sample] = true
		}
		if len(p.deadly) == deadlyRow {
			p.held++
			p.rest(p.held)
			p.cfg.Log.Warn("a Python function is limited to one process, because several samples in a row crashed its process",
				"function", label, "reason", p.reason(), "waiting", p.queue.Len(), "until", p.pause)
		}
	default:
		p.suspect(held, how)
	}
}

// idler ends a spare process that has had nothing to do for long, or that is another's turn.
type idler struct {
	pool  *processes
	place *place
}

func (i *idler) check() {
	i.pool.mu.Lock()
	defer i.pool.mu.Unlock()
	pl := i.place
	if !pl.spare || pl.trial || pl.leaving {
		return
	}
	if pl.running == 0 && time.Since(pl.idle) >= i.pool.cfg.IdleTimeout || i.pool.cedes(pl) {
		pl.leaving = true
		if pl.running == 0 {
			i.pool.retire(pl)
		}
	}
}

// worthwhile is how many times as long as it took to start a process works for a function before
// another may have it.
const worthwhile = 10

// cedes reports whether a spare process is to go to a function that has fewer for its weight.
// The caller holds mu.
func (p *processes) cedes(pl *place) bool {
	if pl.running > 0 && time.Since(pl.up) < worthwhile*p.startTook {
		return false
	}
	all, _ := p.ordinary()
	return p.share.cede(p, all, p.queue.Weight())
}

// retire ends a process that is not needed. The caller holds mu.
func (p *processes) retire(pl *place) {
	if !pl.retired {
		pl.retired = true
		pl.conn.proc.kill()
	}
}

// watch looks after a process: its memory, and whether it is idle. One goroutine has it.
type watch struct {
	over atomic.Int64 // bytes, when that was more than the limit
	idle atomic.Pointer[idler]
	end  chan struct{}
	done sync.WaitGroup
}

// The memory of a process is looked at every watchEvery; that of all below it, which
// costs a file for each thread, every watchAll-th time.
const (
	watchEvery = 100 * time.Millisecond
	watchAll   = 5
)

// watchMemory begins a watch; stop ends it.
func watchMemory(proc *process, limit int64) *watch {
	w := &watch{end: make(chan struct{})}
	w.done.Go(func() {
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		for n := 0; ; n++ {
			select {
			case <-w.end:
				return
			case <-t.C:
			}
			idle := w.idle.Load()
			if idle != nil {
				idle.check()
			}
			if proc.group != nil || n%watchAll != 0 && (idle == nil || statm(proc.pid()) <= limit) {
				continue
			}
			if used := resident(proc.root(), limit); used > limit {
				w.over.Store(used)
				proc.kill()
				return
			}
		}
	})
	return w
}

func (w *watch) stop() {
	close(w.end)
	w.done.Wait()
}
