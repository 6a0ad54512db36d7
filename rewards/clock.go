package rewards

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Queuer is implemented by scorers whose calls wait for an executor: a session, a child process, or
// a place at a service. The timeout of such a component starts when the scorer calls Start. Before
// that only the sample's own deadline applies, because a call that has not begun gives no
// information about the reward. The timeout of any other scorer starts with its call.
type Queuer interface {
	// Queues does nothing; it marks that Score or ScoreGroup calls Start.
	Queues()
}

// clock is the timeout of one component of one sample.
type clock struct {
	timeout time.Duration // 0: none
	told    func()        // called once, when it starts

	began atomic.Pointer[time.Time] // nil: nothing executes it
	bound atomic.Pointer[bound]     // what to end at the timeout; nil: nothing
}

type clockKey struct{}

func withClock(ctx context.Context, c *clock) context.Context {
	return context.WithValue(ctx, clockKey{}, c)
}

// Start reports that an executor begins the work of the component, and returns the context for that
// work. The context ends at the component's timeout, counted from the first Start of this
// component. Later calls, for a second picture or another attempt, keep that deadline. Without a
// component, as in a test, the context is a cancellable child of ctx.
func Start(ctx context.Context) (context.Context, context.CancelFunc) {
	c, _ := ctx.Value(clockKey{}).(*clock)
	if c == nil {
		return context.WithCancel(ctx)
	}
	now := time.Now()
	if c.began.CompareAndSwap(nil, &now) {
		if b := c.bound.Load(); b != nil {
			b.arm(c.timeout)
		}
		if c.told != nil {
			c.told()
		}
	}
	over, bounded := c.over()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, over)
}

// Overdue reports whether the timeout of ctx's component has passed. If a wait ended although
// Overdue is false, the sample's deadline passed, which gives no information about the reward.
func Overdue(ctx context.Context) bool {
	c, _ := ctx.Value(clockKey{}).(*clock)
	if c == nil {
		return false
	}
	over, bounded := c.over()
	return bounded && !time.Now().Before(over)
}

// Ended returns err, the error with which the context of a component ended, with a blame. The blame
// is b, which is that of the executor, if the executor was executing the component or the
// component's timeout has passed. The blame is BlameNobody if the caller left, or if the sample's
// deadline passed while the component waited.
func Ended(ctx context.Context, executing bool, b Blame, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) || !executing && !Overdue(ctx) {
		b = BlameNobody
	}
	return Blamed(b, err)
}

// Joined returns a context for work that several components wait for. The context has the values of
// ctx, but neither its end nor the timeout of its component. began is closed when the work calls
// Start. Each component waits for the work with Await.
func Joined(ctx context.Context) (work context.Context, began <-chan struct{}) {
	c := make(chan struct{})
	return withClock(context.WithoutCancel(ctx), &clock{told: func() { close(c) }}), c
}

// Await waits until done is closed; if ctx ends first, Await returns the error of ctx. The timeout
// of ctx's component starts when began is closed. executing reports whether the work had begun when
// the wait ended.
func Await(ctx context.Context, began, done <-chan struct{}) (executing bool, err error) {
	select {
	case <-done:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-began:
	}
	_, cancel := Start(ctx) // with which ctx ends
	cancel()
	select {
	case <-done:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

// bound is the context of a component whose calls wait. Beside its parent's end it has
// that of the component's time, from the first Start on: a component that is executed
// already waits for its second picture no longer than that.
type bound struct {
	context.Context //nolint:containedctx // it is one

	clock *clock
	done  chan struct{}

	mu    sync.Mutex
	err   error // once done is closed
	timer *time.Timer
}

// bind makes the one bound of the clock; cancel must be called.
func (c *clock) bind(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	b := &bound{Context: parent, clock: c, done: make(chan struct{})}
	stop := context.AfterFunc(parent, func() { b.end(parent.Err()) })
	c.bound.Store(b)
	return b, func() {
		stop()
		b.end(context.Canceled)
	}
}

// arm ends the context when the time of the component is over.
func (b *bound) arm(timeout time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.timer = time.AfterFunc(timeout, func() { b.end(context.DeadlineExceeded) })
	}
}

func (b *bound) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return
	}
	b.err = err
	if b.timer != nil {
		b.timer.Stop()
	}
	close(b.done)
}

// Done is closed at the end.
func (b *bound) Done() <-chan struct{} { return b.done }

// Err is nil before the end.
func (b *bound) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Deadline is the parent's, or that of the component where that comes first.
func (b *bound) Deadline() (time.Time, bool) {
	end, has := b.Context.Deadline()
	if over, begun := b.clock.over(); begun && (!has || over.Before(end)) {
		return over, true
	}
	return end, has
}

// over returns when the component's time is over; false: it has not begun, or has no end.
func (c *clock) over() (time.Time, bool) {
	began := c.began.Load()
	if began == nil || c.timeout == 0 {
		return time.Time{}, false
	}
	return began.Add(c.timeout), true
}

// clocked returns the context to call a component's scorer with: a Queuer starts its
// time itself, that of any other starts here.
func clocked(ctx context.Context, c *clock, scorer any) (context.Context, context.CancelFunc) {
	ctx = withClock(ctx, c)
	if _, queues := scorer.(Queuer); queues {
		return c.bind(ctx)
	}
	return Start(ctx)
}

// sleep waits for d, or until the context is over; it then returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
