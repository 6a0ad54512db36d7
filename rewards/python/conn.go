package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// errBystander is the error of a call whose process was killed for another call.
var errBystander = errors.New("the process was killed for another call")

// errGone is the error of a call that came to a process after its end.
var errGone = errors.New("the process has ended")

// conn is one life of a process, from its ready to its death. Its owner's goroutine
// reads, write's writes; callers leave frames in the outbox.
type conn struct {
	proc      *process
	label     string // of the function
	async     bool
	capacity  int // calls at a time
	startTook time.Duration
	takes     takes
	timeout   time.Duration
	grace     time.Duration
	stall     time.Duration
	release   func(w *waiter, answered bool) // gives a place back to the pool

	filled chan struct{} // capacity 1: the outbox has something
	gone   chan struct{} // closed by die

	mu       sync.Mutex
	seq      uint64            // guarded by mu
	pending  map[uint64]*entry // guarded by mu
	outbox   []*frame          // guarded by mu; at most a call and a cancel for each pending
	writing  *frame            // guarded by mu; nil: none
	closed   bool              // guarded by mu; nothing new
	blamed   *entry            // guarded by mu; the call for which the process was killed
	answered uint64            // guarded by mu; calls that got an answer
	profiles []chan reply      // guarded by mu; those who wait for answers to profiles, in the order of their frames
}

// entry is a call that the process holds. It ends with the process's answer or its
// death, which may be after its caller left.
type entry struct {
	sample    string      // its id; "" of a group
	waiter    *waiter     // whose place it has
	answer    chan answer // capacity 1; the first counts
	timer     *time.Timer
	cancelled bool // guarded by conn.mu; the process has been told, or will be
	left      bool // guarded by conn.mu; nobody waits for the answer
}

type answer struct {
	reply reply
	err   error
}

// give is what the caller gets; only the first counts, and true says that this was it.
func (e *entry) give(a answer) bool {
	select {
	case e.answer <- a:
		return true
	default:
		return false
	}
}

// frame is one that waits to be written, or is being written.
type frame struct {
	id       uint64
	head     []byte
	body     [][]byte // read only until done
	deadline time.Time
	done     chan struct{} // closed when nothing of it is read any more
}

func newConn(proc *process, cfg Config, label string) *conn {
	return &conn{
		proc: proc, label: label, capacity: 1, timeout: cfg.CallTimeout, grace: cfg.CancelGrace, stall: cfg.StallTimeout,
		pending: map[uint64]*entry{}, filled: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

// call sends what is asked of the process and waits for the answer. The body is read
// only until call returns. Whoever called it has a place, which goes back by itself:
// with the answer, with the death of the process, or at once where the frame was not
// begun.
func (c *conn) call(ctx context.Context, w *waiter, what call, body [][]byte, size int) (reply, error) {
	deadline := time.Now().Add(c.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	budget := time.Until(deadline)
	id, e, err := c.register(w, what.Sample)
	if err != nil {
		c.release(w, false)
		return reply{}, err
	}
	what.ID = id
	head, err := encodeFrame(what, size)
	if err != nil {
		c.finish(id, answer{err: err})
		return reply{}, err
	}
	f := &frame{id: id, head: head, body: body, deadline: deadline, done: make(chan struct{})}
	c.send(e, f, budget)
	var a answer
	select {
	case a = <-e.answer:
		c.withdraw(f)
	case <-ctx.Done():
		a = c.leave(ctx, e, f, budget)
	}
	<-f.done
	return a.reply, a.err
}

func (c *conn) overdueError(budget time.Duration) error {
	return rewards.Blamed(rewards.BlameReward, fmt.Errorf("%w: %s did not answer within %v", rewards.Timeout, c.label, budget.Round(time.Millisecond)))
}

func (c *conn) register(w *waiter, s *rewards.Sample) (uint64, *entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, nil, errGone
	}
	c.seq++
	e := &entry{waiter: w, answer: make(chan answer, 1)}
	if s != nil {
		e.sample = s.ID
	}
	c.pending[c.seq] = e
	return c.seq, e, nil
}

// send leaves a call's frame in the outbox and sets the call's deadline: it fails then,
// whether or not its caller waits.
func (c *conn) send(e *entry, f *frame, budget time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[f.id] != e {
		close(f.done) // the process has died
		return
	}
	e.timer = time.AfterFunc(budget, func() {
		e.give(answer{err: c.overdueError(budget)})
		c.overdue(f.id)
	})
	c.put(f)
}

// put leaves a frame in the outbox. The caller holds mu.
func (c *conn) put(f *frame) {
	c.outbox = append(c.outbox, f)
	select {
	case c.filled <- struct{}{}:
	default:
	}
}

// withdraw takes back a frame that has not been begun, and reports whether it could.
// One that is being written has a grace left: cut short, it spoils the process for the
// calls that it holds.
func (c *conn) withdraw(f *frame) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, waiting := range c.outbox {
		if waiting == f {
			c.outbox = append(c.outbox[:i], c.outbox[i+1:]...)
			close(f.done)
			return true
		}
	}
	if c.writing == f {
		_ = c.proc.conn.SetWriteDeadline(time.Now().Add(c.grace))
	}
	return false
}

// leave is the end of a call whose caller does not wait any longer. What the process
// has of it, it keeps until it answers.
func (c *conn) leave(ctx context.Context, e *entry, f *frame, budget time.Duration) answer {
	c.mu.Lock()
	held := c.pending[f.id] == e
	e.left = held
	c.mu.Unlock()
	if !held {
		return <-e.answer // it is on its way
	}
	why := fmt.Errorf("%w: %w", rewards.Cancelled, ctx.Err())
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = c.overdueError(budget)
	}
	if c.withdraw(f) {
		c.finish(f.id, answer{err: why})
	} else if c.async {
		c.cancel(f.id)
	}
	return answer{err: why}
}

// cancel has an async process told, once, to give a call up. It does not wait for the
// frames before it.
func (c *conn) cancel(id uint64) {
	head, err := encodeFrame(call{Op: "cancel", ID: id}, 0)
	if err != nil {
		return // unreachable: there is nothing in it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.pending[id]; e != nil && !e.cancelled {
		e.cancelled = true
		c.put(&frame{id: id, head: head, deadline: time.Now().Add(c.stall), done: make(chan struct{})})
	}
}

// write is the only writer: it empties the outbox until the process is dead.
func (c *conn) write() {
	for {
		f := c.next()
		if f == nil {
			select {
			case <-c.filled:
				continue
			case <-c.gone:
				return
			}
		}
		n, err := writeFrame(c.proc.conn, f.head, f.body)
		c.mu.Lock()
		c.writing = nil
		c.mu.Unlock()
		close(f.done)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			continue // written, or the process has died, which read sees
		}
		c.kill(f.id)
		if n > 0 {
			c.proc.kill() // nothing can follow half a frame
		}
	}
}

// next takes a frame from the outbox; nil: it is empty.
func (c *conn) next() *frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.outbox) == 0 {
		return nil
	}
	f := c.outbox[0]
	c.outbox = append(c.outbox[:0], c.outbox[1:]...)
	c.writing = f
	_ = c.proc.conn.SetWriteDeadline(f.deadline)
	return f
}

// overdue ends a call that is past its deadline: its process is killed, an async one
// only if the call does not end by being cancelled.
func (c *conn) overdue(id uint64) {
	if !c.async {
		c.kill(id)
		return
	}
	c.mu.Lock()
	if e := c.pending[id]; e != nil {
		e.timer = time.AfterFunc(c.grace, func() { c.kill(id) })
	}
	c.mu.Unlock()
	c.cancel(id)
}

// kill ends the process for the sake of one call, unless that has its answer.
func (c *conn) kill(id uint64) {
	c.mu.Lock()
	e := c.pending[id]
	if e != nil && c.blamed == nil {
		c.blamed = e
	}
	c.mu.Unlock()
	if e != nil {
		c.proc.kill()
	}
}

// stuck ends a process whose event loop a call has blocked for too long.
func (c *conn) stuck(id uint64) {
	c.mu.Lock()
	e := c.pending[id]
	c.mu.Unlock()
	if e != nil {
		e.give(answer{err: rewards.Blamed(rewards.BlameReward, fmt.Errorf(
			"%w: %s blocked the event loop of its process for %v; an async function must await, or be a plain one", rewards.Timeout, c.label, c.stall))})
	}
	c.kill(id)
}

// finish ends a call. An answer that nobody waits for is dropped.
func (c *conn) finish(id uint64, a answer) {
	c.mu.Lock()
	e := c.pending[id]
	delete(c.pending, id)
	if e != nil && e.timer != nil {
		e.timer.Stop()
	}
	if a.err == nil {
		c.answered++
	}
	c.mu.Unlock()
	if e != nil {
		e.give(a)
		c.release(e.waiter, a.err == nil)
	}
}

// read hands out answers until the process dies or says garbage, and returns why.
func (c *conn) read() error {
	for {
		r, err := readReply(c.proc.conn)
		if err != nil {
			return err
		}
		if r.Op == "stuck" {
			c.stuck(r.ID)
			continue
		}
		if r.Op == "profiled" {
			c.profiled(r)
			continue
		}
		c.finish(r.ID, answer{reply: r})
	}
}

// die closes the conn and returns the calls that the process held and whose callers
// wait, and the one for which it was killed. Each of them is still to be answered. Lost are
// the places of all that it held.
func (c *conn) die() (held []*entry, blamed *entry, lost []*waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, e := range c.pending {
		if e.timer != nil {
			e.timer.Stop()
		}
		if !e.left {
			held = append(held, e)
		}
		lost = append(lost, e.waiter)
	}
	c.pending = nil
	for _, f := range c.outbox {
		close(f.done)
	}
	c.outbox = nil
	close(c.gone)
	return held, c.blamed, lost
}

// used reports whether the process has answered anything.
func (c *conn) used() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered > 0
}
