package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// shared is work that is done once, at first use, for everybody who asks: the
// opening of a device, the load of a model. It belongs to the pool, so that the
// first caller's end does not end it. A failure is answered from memory for a
// while that doubles with each in a row, and then the work is tried again.
type shared[T any] struct {
	what     string // what is done, for errors
	do       func(context.Context) (T, error)
	start    func(func(context.Context)) (context.Context, bool) // Pool.start
	min, max time.Duration                                       // how long a failure is remembered
	look     func() string                                       // what it depends on; a change makes a failure void
	after    func()                                              // called when the work was done; nil: nothing

	mu       sync.Mutex // guards what follows, is held for no work
	value    T
	ready    bool
	attempt  *attempt // under way; nil: none
	err      error    // of the newest attempt
	tries    uint64
	failures uint64
	inRow    int
	until    time.Time // err is answered before
	seen     string    // what look said when it failed
}

// attempt is one try. err is set before done is closed.
type attempt struct {
	done chan struct{}
	err  error
	over <-chan struct{} // its time is up, or the pool closes,
	why  func() error    // and which of the two
}

// get waits for the work to have been done, and begins it if need be.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	var none T
	a, err := s.begin()
	if err != nil {
		return none, err
	}
	if a != nil {
		select {
		case <-a.done:
		case <-ctx.Done():
			return none, infer.Marked(infer.ErrWaiting, gaveUp(ctx))
		case <-a.over:
			select {
			case <-a.done: // just in time, or because of it
			default:
				return none, s.overdue(a.why())
			}
		}
		if a.err != nil {
			return none, a.err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, nil
}

// poll begins the work if need be, and waits for nothing: it returns the attempt that is under
// way, or why the work cannot be had now; neither if it is done.
func (s *shared[T]) poll() (*attempt, error) {
	a, err := s.begin()
	if a == nil {
		return nil, err
	}
	select {
	case <-a.over: // its context ends with it, too
	default:
		return a, nil
	}
	select {
	case <-a.done:
		return nil, a.err
	default:
		return nil, s.overdue(a.why())
	}
}

// forget makes the work undone.
func (s *shared[T]) forget() {
	var none T
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.ready = none, false
}

// begin returns the attempt to wait for, nil if the work is done already.
func (s *shared[T]) begin() (*attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready || s.attempt != nil {
		return s.attempt, nil
	}
	seen := s.look()
	if s.err != nil && time.Now().Before(s.until) && seen == s.seen {
		return nil, s.err
	}
	a := &attempt{done: make(chan struct{})}
	ctx, ok := s.start(func(ctx context.Context) { s.run(ctx, a, seen) })
	if !ok {
		return nil, errClosed
	}
	a.over, a.why = ctx.Done(), func() error { return context.Cause(ctx) }
	s.attempt = a
	s.tries++
	return a, nil
}

// run is the goroutine of an attempt.
func (s *shared[T]) run(ctx context.Context, a *attempt, seen string) {
	value, err := s.try(ctx)
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), errClosed), ctx.Err() != nil && !classed(err):
		err = s.overdue(context.Cause(ctx))
	case !classed(err):
		err = fmt.Errorf("%w: %s: %w", infer.ErrUnavailable, s.what, err)
	default:
		err = fmt.Errorf("%s: %w", s.what, err)
	}
	s.over(a, value, infer.Marked(infer.ErrLoad, err), seen)
	if err == nil && s.after != nil {
		s.after()
	}
}

// over takes in what an attempt came to.
func (s *shared[T]) over(a *attempt, value T, err error, seen string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = nil
	s.err, a.err = err, err
	if err == nil {
		s.value, s.ready = value, true
	} else {
		s.failures++
		s.inRow++
		s.seen = seen
		s.until = time.Now().Add(pause(s.min, s.max, s.inRow))
	}
	close(a.done)
}

// overdue is the error of an attempt that was ended, for the reason why.
func (s *shared[T]) overdue(why error) error {
	if errors.Is(why, errClosed) {
		return errClosed
	}
	return infer.Marked(infer.ErrLoad, fmt.Errorf("%w: %s did not end in time", infer.ErrTimeout, s.what))
}

func (s *shared[T]) try(ctx context.Context) (value T, err error) {
	defer caught(&err)
	return s.do(ctx)
}

// pause is how long the nth failure in a row is remembered: twice as long as the one before.
func pause(shortest, longest time.Duration, n int) time.Duration {
	d := shortest
	for ; n > 1 && d < longest; n-- {
		d *= 2
	}
	return min(d, longest)
}

// snapshot is for Stats.
func (s *shared[T]) snapshot() (ready bool, tries, failures uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready, s.tries, s.failures
}
