package subprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// killWait bounds how long a killed process may take to be reaped.
const killWait = 5 * time.Second

// child is the parent's view of one process. Whoever holds it (its owner, or one
// Do between offer and back) may use it; nobody else may.
type child struct {
	*process
	id        int           // process id, for messages
	frames    chan frame    // what the reader goroutine received; closed when it ends
	back      chan verdict  // from the Do that holds the child to its owner
	exited    chan struct{} // closed when the process has been reaped
	quit      chan struct{} // closed by reap: the reader need not deliver any more
	killed    atomic.Bool   // the pool killed it
	over      atomic.Int64  // bytes, when it was killed for its memory
	limit     int64         // of its memory in bytes; 0: none
	goroutine sync.WaitGroup

	mu      sync.Mutex
	working bool // guarded by mu; its holder has it do something
	revoked bool // guarded by mu; its holder may not begin any more

	// Of the holder.
	seq      uint64
	answered int
	recycle  int           // replace it after so many answers
	renew    chan struct{} // closed when it is to be replaced at once

	// Written before their channel closes, read after.
	readErr error
	how     string
	sigkill bool
}

// fate is what becomes of a child after a request.
type fate int

const (
	free      fate = iota // idle again
	lingering             // its caller left; it still works on the request
	doubtful              // to answer the canary before anything else
	dead                  // it died while nobody used it
	broken                // to be replaced
)

type verdict struct {
	fate  fate
	until time.Time // of lingering: its deadline
	fault error     // of broken: how it failed; nil: not by itself
	// turn, of lingering, doubtful and broken, is to be released when the child, or the one that replaces
	// it, can have another request.
	turn fair.Turn
	// next, of broken, is told how the start of the replacement went; capacity 1. It is
	// closed without a word if there is none, because the pool stops. Nil: nobody asks.
	next chan<- error
}

// errBroken marks errors after which a child cannot be used.
var errBroken = errors.New("broken")

// errSpoilt marks the errors of a child that answered with a fatal one.
var errSpoilt = errors.New("unusable after a fatal error")

// failure is the error that a frame carries.
func (f frame) failure() *Error { return &Error{Class: f.Class, Message: f.Message} }

// watchEvery is how often the memory of a child is looked at.
const watchEvery = 250 * time.Millisecond

// newChild starts the goroutines that belong to a started process: one reads its
// answers, one reaps it, and one looks at its memory where that is bounded. All end when the
// process has.
func newChild(p *process, cfg Config, recycle int) *child {
	c := &child{
		process: p,
		id:      p.pid(),
		frames:  make(chan frame, 1),
		back:    make(chan verdict, 1),
		exited:  make(chan struct{}),
		quit:    make(chan struct{}),
		recycle: recycle,
		limit:   cfg.Memory,
	}
	if cfg.Memory > 0 {
		c.goroutine.Go(func() { c.watch(cfg.Resident) })
	}
	c.goroutine.Go(func() {
		defer close(c.exited)
		c.how, c.sigkill = p.wait()
	})
	c.goroutine.Go(func() {
		defer close(c.frames)
		for {
			f, err := readFrame(p.conn, MaxAnswer)
			if err != nil {
				c.readErr = err
				return
			}
			select {
			case c.frames <- f:
			case <-c.quit:
				return
			}
		}
	})
	return c
}

// exchange sends a frame and waits for its answer until ctx ends. An error that
// wraps errBroken means that the child must be replaced; ctx's error that it
// still works; ErrHandler that it answered with an error; any other that nothing
// was sent.
func (c *child) exchange(ctx context.Context, op string, req Request) ([]byte, error) {
	length, err := c.memory.fill(req.Pixels)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	c.seq++
	h := header{Op: op, Seq: c.seq, Capacity: c.memory.capacity(), Length: length}
	if deadline, ok := ctx.Deadline(); ok {
		h.BudgetMS = max(time.Until(deadline).Milliseconds(), 1)
	}
	if err := c.send(ctx, h, req.Meta); err != nil {
		return nil, fmt.Errorf("%w: sending: %w", errBroken, err)
	}
	return c.await(ctx)
}

// send writes a frame. A small one goes into the socket at once, whatever the child does;
// a large one waits for a child that reads, and no longer than its caller does: what is
// then left of it is of no use, nor is the child.
func (c *child) send(ctx context.Context, h header, body []byte) error {
	deadline, _ := ctx.Deadline()         // zero: none
	_ = c.conn.SetWriteDeadline(deadline) // a failure shows in the write
	if len(body) <= joinBelow {
		return writeFrame(c.conn, h, body, maxBody)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.conn.SetWriteDeadline(time.Unix(1, 0))
		close(ended)
	})
	err := writeFrame(c.conn, h, body, maxBody)
	if !stop() {
		<-ended // the next frame's deadline comes after it
	}
	return err
}

// await waits for the answer to the last request.
func (c *child) await(ctx context.Context) ([]byte, error) {
	select {
	case f, ok := <-c.frames:
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: reading: %w", errBroken, c.readErr)
		case f.Seq != c.seq:
			return nil, fmt.Errorf("%w: answer %d to request %d", errBroken, f.Seq, c.seq)
		case f.Op == opError:
			return nil, fmt.Errorf("%w: %w", ErrHandler, f.failure())
		case f.Op == opFatal:
			return nil, fmt.Errorf("%w: %w: %w", errBroken, errSpoilt, f.failure())
		case f.Op != opOK:
			return nil, fmt.Errorf("%w: answer of kind %q", errBroken, f.Op)
		}
		return f.body, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin says that the holder begins to use the child; false: it may not any more.
func (c *child) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.working = !c.revoked
	return c.working
}

// revoke takes the child from a holder that has not begun; false: it has.
func (c *child) revoke() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revoked = !c.working
	return c.revoked
}

// gone reports whether the process has ended.
func (c *child) gone() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// watch kills the process when it has more memory than it may.
func (c *child) watch(resident func(int, int64) int64) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case <-c.exited:
			return
		case <-t.C:
		}
		if used := resident(c.id, c.limit); used > c.limit {
			c.over.Store(used)
			c.destroy()
			return
		}
	}
}

// destroy kills the process.
func (c *child) destroy() {
	c.killed.Store(true)
	c.kill()
}

// autopsy says how a broken child died: cause is what was noticed on the socket.
// A child that died by itself is given a moment to be reaped, so that the signal
// and not our kill is reported. outside is true for a SIGKILL that was not ours:
// the kernel's out-of-memory killer, or a person.
func (c *child) autopsy(cause error) (report error, outside bool) {
	if !hungUp(cause) || !c.within(time.Second) {
		c.destroy()
		c.within(killWait)
	}
	if !c.gone() {
		return fmt.Errorf("child %d cannot be killed (%w)", c.id, cause), false
	}
	report = fmt.Errorf("child %d ended with %q (%w)", c.id, c.how, cause)
	if over := c.over.Load(); over > 0 {
		report = fmt.Errorf("child %d was killed: the child and its own child processes used %d MiB of memory, but the limit is %d MiB (%w)", c.id, over>>20, c.limit>>20, cause)
	} else if c.killed.Load() {
		report = fmt.Errorf("child %d was killed (%w)", c.id, cause)
	}
	if said := c.stderr.String(); said != "" {
		report = fmt.Errorf("%w; its output: %s", report, said)
	}
	return report, c.sigkill && !c.killed.Load()
}

// hungUp tells a child that ends by itself from one that talks nonsense.
func hungUp(err error) bool {
	return errors.Is(err, errSpoilt) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// within waits for the process to end.
func (c *child) within(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.exited:
		return true
	case <-t.C:
		return false
	}
}

// reap ends the child and waits for its process and its goroutines. A healthy
// child ends by itself when its socket closes.
func (c *child) reap() {
	_ = c.conn.Close()
	close(c.quit)
	if !c.within(time.Second) {
		c.destroy()
		if !c.within(killWait) {
			return // in the kernel for good; its goroutine stays with it
		}
	}
	c.goroutine.Wait()
	c.close()
}
