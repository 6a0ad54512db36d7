package fair

import "time"

const (
	// firstEstimate is what a call is taken to cost before any has ended, in seconds.
	firstEstimate = 1e-3
	// fade is the weight of the newest call in the mean that later ones are estimated by.
	fade = 1.0 / 8
)

// Queue contains waiting and running calls. The tenant with the least usage is first, and within a
// tenant the call that came first. T is the owner's data for each call. A Queue is not safe for
// concurrent use.
type Queue[T any] struct {
	book    Book[calls[T]]
	line    *Line[calls[T]]
	waiting int
	mean    float64 // seconds that a call costs
}

// calls are those of a tenant that wait, the oldest first.
type calls[T any] struct {
	place       Place[calls[T]]
	first, last *Call[T]
}

// Call is a waiting or running call.
type Call[T any] struct {
	Value T

	account    *Account[calls[T]]
	use        Use
	state      state
	prev, next *Call[T]
}

type state uint8

const (
	waiting state = iota
	chosen        // taken out of the queue
	running
	over
)

// NewQueue returns an empty queue.
func NewQueue[T any]() *Queue[T] {
	q := &Queue[T]{mean: firstEstimate}
	q.line = NewLine(&q.book)
	return q
}

// Len returns the number of waiting calls.
func (q *Queue[T]) Len() int { return q.waiting }

// Weight returns the sum of the weights of the tenants with calls.
func (q *Queue[T]) Weight() float64 { return q.book.weights }

// Tenants returns the number of tenants in the queue: those with calls, and those that have used
// more than the others.
func (q *Queue[T]) Tenants() int {
	if q.book.held == 0 {
		return 0
	}
	return len(q.book.accounts)
}

// Push adds a waiting call.
func (q *Queue[T]) Push(t Tenant, v T, now time.Time) *Call[T] {
	c := &Call[T]{Value: v, account: q.book.Hold(t, now)}
	d := &c.account.Data
	if c.prev = d.last; c.prev == nil {
		d.first = c
		q.line.Add(&d.place, c.account, now)
	} else {
		c.prev.next = c
	}
	d.last = c
	q.waiting++
	return c
}

// First returns the call whose turn it is at one of that number of executors, or 0 if the calls
// wait for something else. First returns nil if no call waits.
func (q *Queue[T]) First(executors int, now time.Time) *Call[T] {
	if a := q.line.First(executors, now); a != nil {
		return a.Data.first
	}
	return nil
}

// Take removes a waiting call from the queue because it is its turn. Begin or Charge, and End must
// follow.
func (q *Queue[T]) Take(c *Call[T], now time.Time) {
	q.book.Turn(c.account, now)
	q.unlink(c)
	c.state = chosen
}

// Remove removes a waiting call. It does nothing and returns false if the call is no longer
// waiting.
func (q *Queue[T]) Remove(c *Call[T]) bool {
	if c.state != waiting {
		return false
	}
	q.unlink(c)
	c.state = over
	q.book.Drop(c.account)
	return true
}

func (q *Queue[T]) unlink(c *Call[T]) {
	d := &c.account.Data
	if c.prev == nil {
		d.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		d.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	if d.first == nil {
		q.line.Remove(&d.place)
	}
	q.waiting--
}

// Start is Push, Take and Begin for a call that need not wait.
func (q *Queue[T]) Start(t Tenant, v T, now time.Time) *Call[T] {
	c := &Call[T]{Value: v, account: q.book.Hold(t, now), state: chosen}
	q.book.Turn(c.account, now)
	q.Begin(c, now)
	return c
}

// Begin charges a call that was taken with the mean cost of calls.
func (q *Queue[T]) Begin(c *Call[T], now time.Time) {
	c.use = q.book.Begin(c.account, 1, q.mean, now)
	c.state = running
}

// Charge charges a call with a cost, in any unit.
func (q *Queue[T]) Charge(c *Call[T], cost float64, now time.Time) {
	q.book.Charge(c.account, cost, now)
}

// End ends a call that was taken. If Begin was called, the call costs the time since then. A second
// End does nothing.
func (q *Queue[T]) End(c *Call[T], now time.Time) {
	switch c.state {
	case running:
		took := q.book.seconds(now) - c.use.began
		q.mean += fade * (took - q.mean)
		q.book.End(c.account, c.use, took, now)
	case chosen:
	default:
		return
	}
	c.state = over
	q.book.Drop(c.account)
}
