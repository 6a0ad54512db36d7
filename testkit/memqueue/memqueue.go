// Package memqueue is a queue in memory for tests under testing/synctest, where a NATS server
// cannot run, because fake time does not advance while goroutines wait for the network. The queue
// fulfils the contract of package queue (no prefetch, uniform choice among free places, leases that
// expire). Its choices follow a seed, so that a history can be repeated, and it can produce faults.
// Package queuetest tests both queues.
package memqueue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Queue delivers tickets to the open calls of Take.
type Queue struct {
	lease time.Duration

	mu      sync.Mutex
	rng     *rand.Rand
	queue   []*item
	leased  map[*Lease]bool
	takers  []*taker
	info    map[string]wire.WorkerInfo
	revs    uint64 // changes of info that were more than counters
	revoked map[wire.AttemptKey]bool
	refuse  error
	closed  bool
}

// item is a ticket in the queue; it may be taken from visible on.
type item struct {
	ticket  wire.Ticket
	visible time.Time
}

// taker is one open Take.
type taker struct {
	source *Source
	queue  string
	left   int
	got    []workers.Lease
	ready  chan struct{} // closed when it has something or the queue is closed
}

// New returns a queue whose leases last for lease and whose choices follow seed.
func New(seed uint64, lease time.Duration) *Queue {
	return &Queue{
		lease: lease, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)), //nolint:gosec // a repeatable history needs a seed
		leased: map[*Lease]bool{}, info: map[string]wire.WorkerInfo{}, revoked: map[wire.AttemptKey]bool{},
	}
}

// Publish implements loop.Queue.
func (e *Queue) Publish(_ context.Context, t wire.Ticket) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse != nil {
		return e.refuse
	}
	if e.closed {
		return errors.New("queue is closed")
	}
	key := t.Key()
	for _, it := range e.queue {
		if it.ticket.Key() == key {
			return nil // the same ticket once more
		}
	}
	for l := range e.leased {
		if l.ticket.Key() == key {
			return nil
		}
	}
	e.queue = append(e.queue, &item{ticket: t})
	e.match()
	return nil
}

// Revoke implements loop.Queue.
func (e *Queue) Revoke(_ context.Context, key wire.AttemptKey) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revoked[key] = true
	e.queue = slices.DeleteFunc(e.queue, func(it *item) bool { return it.ticket.Key() == key })
	for l := range e.leased {
		if l.ticket.Key() == key {
			l.cancel()
		}
	}
	return nil
}

// Workers implements loop.Presence.
func (e *Queue) Workers() []wire.WorkerInfo {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]wire.WorkerInfo, 0, len(e.info))
	for _, w := range e.info {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b wire.WorkerInfo) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return list
}

// RefusePublish makes every Publish fail with err. nil ends this.
func (e *Queue) RefusePublish(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = err
}

// Lose drops all tickets and all leases, as if the broker had crashed and restarted empty.
func (e *Queue) Lose() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queue = nil
	clear(e.leased)
}

// Kill removes a worker: it is no longer announced, its leases expire at their time, and its later
// messages about them are ignored.
func (e *Queue) Kill(worker string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.info, worker)
	for _, t := range e.takers { // its requests end with its connection
		if t.source.worker == worker {
			t.left = 0
		}
	}
}

// Depth returns the number of tickets without a lease.
func (e *Queue) Depth() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.queue)
}

// match gives visible tickets, in order, to places drawn uniformly among the free
// ones. The caller holds mu.
func (e *Queue) match() {
	now := time.Now()
	for i := 0; i < len(e.queue); {
		it := e.queue[i]
		free, open := 0, 0
		for _, t := range e.takers {
			open += t.left
			if t.queue == it.ticket.Queue {
				free += t.left
			}
		}
		if open == 0 {
			return
		}
		if free == 0 || it.visible.After(now) {
			i++
			continue
		}
		e.queue = slices.Delete(e.queue, i, i+1)
		e.give(it, e.rng.IntN(free))
	}
}

// give hands a ticket to the place of that number among those that take from its queue. The
// caller holds mu.
func (e *Queue) give(it *item, place int) {
	for _, t := range e.takers {
		if t.queue != it.ticket.Queue {
			continue
		}
		if place -= t.left; place >= 0 {
			continue
		}
		l := &Lease{e: e, ticket: it.ticket}
		l.ctx, l.cancel = context.WithCancel(context.Background()) //nolint:fatcontext // each lease has its own
		l.arm()
		e.leased[l] = true
		t.left--
		t.got = append(t.got, l)
		if len(t.got) == 1 {
			close(t.ready)
		}
		return
	}
}

// requeue puts a lease's ticket back. The caller holds mu.
func (e *Queue) requeue(l *Lease, after time.Duration) {
	if !e.leased[l] {
		return
	}
	delete(e.leased, l)
	if e.revoked[l.ticket.Key()] || e.closed {
		return
	}
	it := &item{ticket: l.ticket, visible: time.Now().Add(after)}
	e.queue = append(e.queue, it)
	if after > 0 {
		time.AfterFunc(after, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.match()
		})
	}
	e.match()
}

// Close ends the queue: all leases end, and open calls of Take return.
func (e *Queue) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for l := range e.leased {
		l.timer.Stop()
		l.cancel()
	}
	e.queue = nil
}

// Source is the queue's interface for one worker.
type Source struct {
	e      *Queue
	worker string
	closed bool // guarded by e.mu
}

// NewSource connects a worker.
func (e *Queue) NewSource(worker string) *Source { return &Source{e: e, worker: worker} }

// Take implements workers.Source.
func (s *Source) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	e := s.e
	e.mu.Lock()
	if s.closed || e.closed {
		e.mu.Unlock()
		return nil, nil
	}
	t := &taker{source: s, queue: queue, left: n, ready: make(chan struct{})}
	e.takers = append(e.takers, t)
	e.match()
	// Longer than queue's 10–100 ms: the choice is random all the same, and each round
	// costs a simulation as much as a sample.
	life := 100*time.Millisecond + time.Duration(e.rng.IntN(900))*time.Millisecond
	e.mu.Unlock()
	timer := time.NewTimer(life)
	defer timer.Stop()
	select {
	case <-t.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.takers = slices.DeleteFunc(e.takers, func(x *taker) bool { return x == t })
	return t.got, nil
}

// Announce implements workers.Source.
func (s *Source) Announce(info wire.WorkerInfo) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	info.Seen = time.Now()
	before := s.e.info[info.ID]
	if info.Rev = before.Rev; !info.Resembles(&before) {
		s.e.revs++
		info.Rev = s.e.revs
	}
	s.e.info[info.ID] = info
}

// Move implements workers.Source.
func (s *Source) Move(string, string) error { return nil }

// Close implements workers.Source.
func (s *Source) Close() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.closed = true
}

// Lease is the lease of one delivered ticket.
type Lease struct {
	e      *Queue
	ticket wire.Ticket
	ctx    context.Context //nolint:containedctx // the lease is the lifetime
	cancel context.CancelFunc
	timer  *time.Timer // guarded by e.mu
}

// arm starts the lease's time. A lapsed lease's context goes on: its worker cannot
// know. The caller holds e.mu.
func (l *Lease) arm() {
	l.timer = time.AfterFunc(l.e.lease, func() {
		l.e.mu.Lock()
		defer l.e.mu.Unlock()
		l.e.requeue(l, 0)
	})
}

// Ticket implements workers.Lease.
func (l *Lease) Ticket() wire.Ticket { return l.ticket }

// Context implements workers.Lease.
func (l *Lease) Context() context.Context { return l.ctx }

// Extend implements workers.Lease.
func (l *Lease) Extend(context.Context) error {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if !l.e.leased[l] {
		return errors.New("the lease has lapsed")
	}
	l.timer.Reset(l.e.lease)
	return nil
}

// Done implements workers.Lease.
func (l *Lease) Done() {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	l.timer.Stop()
	l.cancel()
	delete(l.e.leased, l)
}

// Return implements workers.Lease.
func (l *Lease) Return(after time.Duration) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	l.timer.Stop()
	l.cancel()
	l.e.requeue(l, after)
}

var (
	_ workers.Source = (*Source)(nil)
	_ workers.Lease  = (*Lease)(nil)
)
