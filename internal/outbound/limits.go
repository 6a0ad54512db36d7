package outbound

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"
)

// slack forgives what rounding loses: a wait of whole nanoseconds refills a bucket to
// within a millionth.
const slack = 1e-6

// bucket refills all the time. It has no lock; rate guards it.
type bucket struct {
	limit  float64 // Of all processes that share it; 0: there is none.
	minute float64 // What flows into this process's part within a minute.
	size   float64
	level  float64
}

// newBucket is full. It holds a minute's worth, and at least one.
func newBucket(limit float64) bucket {
	size := max(limit, 1)
	return bucket{limit: limit, minute: limit, size: size, level: size}
}

// share changes the part. The level stays; see refill.
func (b *bucket) share(minute float64) {
	if b.limit > 0 {
		b.minute, b.size = minute, max(minute, 1)
	}
}

// refill lets d pass. What a part holds beyond its size, because it was larger, leaks as
// fast as the other parts fill, so that all together never hold more than a minute's worth.
func (b *bucket) refill(d time.Duration) {
	if b.level > b.size {
		b.level = max(b.level-(b.limit-b.minute)*d.Minutes(), b.size)
		return
	}
	b.level = min(b.level+b.minute*d.Minutes(), b.size)
}

// cost is what n counts for: at most a minute's worth of the whole limit, because more
// never comes. A part may be smaller; then it is left with a debt.
func (b *bucket) cost(n float64) float64 { return min(n, max(b.limit, 1)) }

// wait is the time until n can be taken: until it is there, or the bucket is full.
func (b *bucket) wait(n float64) time.Duration {
	missing := min(n, b.size) - b.level
	if b.limit == 0 || missing <= slack {
		return 0
	}
	ns := missing / b.minute * float64(time.Minute)
	if ns >= math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	return time.Duration(math.Ceil(ns))
}

// add puts n in, or takes it out where it is negative. A debt is at most a minute's
// worth of the limit: a minute is all that the other side remembers too.
func (b *bucket) add(n float64) {
	b.level = min(max(b.level+n, -max(b.limit, 1)), max(b.level, b.size))
}

// rate holds the requests and the tokens per minute. Who comes first is served first,
// so that a large call is not starved by small ones.
type rate struct {
	mu       sync.Mutex
	requests bucket
	tokens   bucket
	at       time.Time  // Up to when the buckets are filled.
	queue    *list.List // Of *waiter; the first one watches the clock.
	booked   int64      // Tokens, corrected and less what was given back.
	// shares are this process's parts now; nil: it has the whole limits.
	shares func(time.Time) (rpm, tpm float64)
}

// waiter waits in a rate's queue.
type waiter struct {
	// look is written to when it became the first, or the first should look again.
	look chan struct{}
}

func newRate(rpm, tpm float64, now time.Time) *rate {
	return &rate{requests: newBucket(rpm), tokens: newBucket(tpm), at: now, queue: list.New()}
}

// take waits until one request of so many tokens is allowed, and takes both. It
// returns ctx's error if that ends first.
func (r *rate) take(ctx context.Context, tokens int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue.Len() == 0 && r.wait(tokens) == 0 {
		r.pay(tokens)
		return nil
	}
	w := &waiter{look: make(chan struct{}, 1)}
	e := r.queue.PushBack(w)
	defer func() {
		r.queue.Remove(e)
		r.wake()
	}()
	for {
		first := r.queue.Front() == e
		d := r.wait(tokens)
		if first && d == 0 {
			r.pay(tokens)
			return nil
		}
		r.mu.Unlock()
		err := w.sleep(ctx, first, d)
		r.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// sleep returns when there is reason to look again: for the first one also when d has
// passed.
func (w *waiter) sleep(ctx context.Context, first bool, d time.Duration) error {
	var passed <-chan time.Time
	if first {
		t := time.NewTimer(d)
		defer t.Stop()
		passed = t.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.look:
	case <-passed:
	}
	return nil
}

// wait fills the buckets up to now and returns how long a request must wait. The
// caller holds mu.
func (r *rate) wait(tokens int) time.Duration {
	now := time.Now()
	if d := now.Sub(r.at); d > 0 {
		if r.shares != nil { // A process that was stopped meanwhile had no share.
			d = min(d, shareHold)
		}
		r.requests.refill(d)
		r.tokens.refill(d)
		r.at = now
	}
	if r.shares != nil {
		rpm, tpm := r.shares(now)
		r.requests.share(rpm)
		r.tokens.share(tpm)
	}
	return max(r.requests.wait(1), r.tokens.wait(float64(tokens)))
}

func (r *rate) pay(tokens int) {
	r.requests.add(-1)
	r.tokens.add(-r.tokens.cost(float64(tokens)))
	r.booked += int64(tokens)
}

// wake makes the first of the queue look again. The caller holds mu.
func (r *rate) wake() {
	if e := r.queue.Front(); e != nil {
		select {
		case e.Value.(*waiter).look <- struct{}{}: // only take fills the queue
		default:
		}
	}
}

// share makes shares the parts from now on. What was saved up is cut to them, because
// the others have theirs.
func (r *rate) share(shares func(time.Time) (rpm, tpm float64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait(0)
	r.shares = shares
	r.wait(0)
	r.requests.level = min(r.requests.level, r.requests.size)
	r.tokens.level = min(r.tokens.level, r.tokens.size)
	r.wake()
}

// look makes the first of the queue look again, because a share may have changed.
func (r *rate) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait(0)
	r.wake()
}

// refund gives back what take took for a request that was not served: its tokens, and
// the request itself if it was not even sent.
func (r *rate) refund(tokens int, sent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait(0)
	if !sent {
		r.requests.add(1)
	}
	r.tokens.add(r.tokens.cost(float64(tokens)))
	r.booked -= int64(tokens)
	r.wake()
}

// correct replaces what a call was booked with by what it used.
func (r *rate) correct(used, booked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait(0)
	r.tokens.add(r.tokens.cost(float64(booked)) - r.tokens.cost(float64(used)))
	r.booked += int64(used) - int64(booked)
	r.wake()
}

// parts are the requests and tokens a minute of this process.
func (r *rate) parts() (rpm, tpm float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait(0)
	return r.requests.minute, r.tokens.minute
}

// figures are the tokens booked so far and the requests that wait.
func (r *rate) figures() (tokens int64, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.booked, r.queue.Len()
}
