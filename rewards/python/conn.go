package python

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// errShared is the error of a call whose host died while it held several: which of
// them is guilty is not known.
var errShared = errors.New("the host died while it held several calls")

// errBystander is the error of a call whose host was killed for another.
var errBystander = errors.New("the host was killed for another call")

// errGone is the error of a call that came to a host after its end.
var errGone = errors.New("the host is gone")

// conn is one life of a host, from its ready to its death. Its owner's goroutine
// reads; callers write, one at a time.
type conn struct {
	proc     *process
	label    string // of the function
	async    bool
	capacity int // calls at a time
	timeout  time.Duration
	grace    time.Duration
	stall    time.Duration
	release  func(*conn) // gives a place back to the pool

	writing sync.Mutex

	mu       sync.Mutex
	seq      uint64            // guarded by mu
	pending  map[uint64]*entry // guarded by mu
	closed   bool              // guarded by mu; nothing new
	blamed   uint64            // guarded by mu; the call for which the host was killed
	answered uint64            // guarded by mu; calls that got an answer
}

// entry is a call that the host holds. It ends with the host's answer or its
// death, which may be after its caller left.
type entry struct {
	answer chan answer // capacity 1; the first counts
	timer  *time.Timer
}

type answer struct {
	reply reply
	err   error
}

// give is what the caller gets; only the first counts.
func (e *entry) give(a answer) {
	select {
	case e.answer <- a:
	default:
	}
}

// call sends what is asked of the host and waits for the answer. The body is read only until call
// returns. Whoever called it has a place, which goes back by itself.
func (c *conn) call(ctx context.Context, what call, body [][]byte, size int) (reply, error) {
	deadline := time.Now().Add(c.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	budget := time.Until(deadline)
	id, e, err := c.register()
	if err != nil {
		c.release(c)
		return reply{}, err
	}
	what.ID = id
	head, err := encodeFrame(what, size)
	if err != nil {
		c.finish(id, answer{err: err})
		return reply{}, err
	}
	c.arm(id, e, budget)
	c.send(ctx, id, head, body, deadline)
	select {
	case a := <-e.answer:
		return a.reply, a.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return reply{}, c.overdueError(budget)
		}
		if c.async {
			c.cancel(id)
		}
		return reply{}, fmt.Errorf("%w: %w", rewards.Cancelled, ctx.Err())
	}
}

func (c *conn) overdueError(budget time.Duration) error {
	return fmt.Errorf("%w: %s did not answer within %v", rewards.Timeout, c.label, budget.Round(time.Millisecond))
}

func (c *conn) register() (uint64, *entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, nil, errGone
	}
	c.seq++
	e := &entry{answer: make(chan answer, 1)}
	c.pending[c.seq] = e
	return c.seq, e, nil
}

// arm sets the deadline of a call: it fails then, whether or not its caller waits.
func (c *conn) arm(id uint64, e *entry, budget time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[id] != e {
		return // the host has died
	}
	e.timer = time.AfterFunc(budget, func() {
		e.give(answer{err: c.overdueError(budget)})
		c.overdue(id)
	})
}

// send writes a frame. One that is cut short, by the deadline or because the
// caller left, spoils the host for the calls it holds.
func (c *conn) send(ctx context.Context, id uint64, head []byte, body [][]byte, deadline time.Time) {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.proc.conn.SetWriteDeadline(deadline)
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.proc.conn.SetWriteDeadline(time.Unix(1, 0))
		close(cut)
	})
	n, err := writeFrame(c.proc.conn, head, body)
	if !stop() {
		<-cut // it must not cut the next one's frame
	}
	switch {
	case err == nil:
	case n == 0 && ctx.Err() != nil:
		c.finish(id, answer{err: ctx.Err()})
	default:
		c.kill(id) // of a host that died by itself nothing is left to kill
	}
}

// overdue ends a call that is past its deadline: its host is killed, an async one
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

// cancel asks an async host to give a call up. Where a frame is just being written
// it asks nothing: the call's deadline will end it.
func (c *conn) cancel(id uint64) {
	if !c.writing.TryLock() {
		return
	}
	defer c.writing.Unlock()
	if head, err := encodeFrame(call{Op: "cancel", ID: id}, 0); err == nil {
		_ = c.proc.conn.SetWriteDeadline(time.Now().Add(c.grace))
		if n, err := writeFrame(c.proc.conn, head, nil); err != nil && n > 0 {
			c.kill(id)
		}
	}
}

// kill ends the host for the sake of one call, unless that has its answer.
func (c *conn) kill(id uint64) {
	c.mu.Lock()
	held := c.pending[id] != nil
	if held && c.blamed == 0 {
		c.blamed = id
	}
	c.mu.Unlock()
	if held {
		c.proc.kill()
	}
}

// stuck ends a host whose event loop a call has blocked for too long.
func (c *conn) stuck(id uint64) {
	c.mu.Lock()
	e := c.pending[id]
	c.mu.Unlock()
	if e != nil {
		e.give(answer{err: fmt.Errorf("%w: %s blocked the event loop of its host for %v; an async function must await, or be a plain one", rewards.Timeout, c.label, c.stall)})
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
	c.answered++
	c.mu.Unlock()
	if e != nil {
		e.give(a)
		c.release(c)
	}
}

// read hands out answers until the host dies or says garbage, and returns why.
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
		c.finish(r.ID, answer{reply: r})
	}
}

// die fails what the host held. how says how it ended. It returns how many calls it
// failed and whether it was killed for one.
func (c *conn) die(how error) (held int, blamed bool) {
	c.mu.Lock()
	c.closed = true
	pending := c.pending
	c.pending = nil
	guilty := c.blamed
	for _, e := range pending {
		if e.timer != nil {
			e.timer.Stop()
		}
	}
	c.mu.Unlock()
	for id, e := range pending {
		switch {
		case id == guilty:
			e.give(answer{err: fmt.Errorf("%w: %s: its host was killed at the deadline", rewards.Timeout, c.label)})
		case len(pending) == 1:
			e.give(answer{err: fmt.Errorf("%w: %s: %w", rewards.Crashed, c.label, how)})
		case guilty != 0:
			e.give(answer{err: fmt.Errorf("%w: %w", errBystander, how)})
		default:
			e.give(answer{err: fmt.Errorf("%w: %w", errShared, how)})
		}
	}
	return len(pending), guilty != 0
}

// used reports whether the host has answered anything.
func (c *conn) used() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered > 0
}
