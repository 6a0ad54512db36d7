package rewards

import (
	"context"
	"sync/atomic"
	"time"
)

// Queuer is implemented by scorers whose calls wait for something to execute them: a
// session, a child process, a place at a service. The timeout of their component starts
// when they call Start; until then only the sample's own deadline counts, because a call
// that has not begun says nothing about the reward. The timeout of any other scorer
// starts with its call.
type Queuer interface {
	// Queues does nothing; it says that Score, or ScoreGroup, calls Start.
	Queues()
}

// clock is the timeout of one component of one sample.
type clock struct {
	timeout time.Duration
	began   atomic.Pointer[time.Time] // nil: nothing executes it
	told    func()                    // called once, when it starts
}

type clockKey struct{}

func withClock(ctx context.Context, c *clock) context.Context {
	return context.WithValue(ctx, clockKey{}, c)
}

// Start says that what executes the component begins now, and returns the context to
// execute it with: it ends at the component's timeout, counted from the first Start of
// this component. Later calls, of a second picture or another try, keep that deadline.
// Without a component, as in a test, the context is ctx with a cancel of its own.
func Start(ctx context.Context) (context.Context, context.CancelFunc) {
	c, _ := ctx.Value(clockKey{}).(*clock)
	if c == nil {
		return context.WithCancel(ctx)
	}
	now := time.Now()
	if c.began.CompareAndSwap(nil, &now) && c.told != nil {
		c.told()
	}
	return context.WithDeadline(ctx, c.began.Load().Add(c.timeout))
}

// over returns when the component's time is over; false: it has not begun.
func (c *clock) over() (time.Time, bool) {
	began := c.began.Load()
	if began == nil {
		return time.Time{}, false
	}
	return began.Add(c.timeout), true
}

// sleep waits for d, or until the context or the time of its component is over; it then
// returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	if c, _ := ctx.Value(clockKey{}).(*clock); c != nil {
		if over, begun := c.over(); begun {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, over)
			defer cancel()
		}
	}
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
