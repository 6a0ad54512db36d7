package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/workers"
)

// hub asks for the tickets of one queue for all workers of this process that take from it:
// in one request for as many places as they want together, however many workers these are
// (pull.go). A ticket that comes goes to one of the places at random (deliver.go).
type hub struct {
	bus   *bus
	queue string
	wakes *nats.Subscription
	work  chan struct{}      // capacity 1: somebody wants more, or a pull ended
	end   context.CancelFunc // ends run
	ended chan struct{}

	mu      sync.Mutex
	takers  map[*taker]bool // guarded by mu
	wanted  int             // places of all open Takes; guarded by mu
	asked   int             // tickets that open fast pulls may still bring; guarded by mu
	until   time.Time       // when the last of these is over, whatever the server says; guarded by mu
	slow    time.Time       // until when a slow pull is open; guarded by mu
	extra   bool            // it brings a ticket more than there are places; guarded by mu
	lively  time.Time       // the queue counts as idle from then on; guarded by mu
	crowd   int             // workers that take from the queue, as a gateway said last; guarded by mu
	rest    time.Time       // it asks for nothing until then; guarded by mu
	refused int             // pulls in a row that the server refused; guarded by mu
	ready   []*lease        // came when nobody wanted any; guarded by mu
	stale   *time.Timer     // hands them on; guarded by mu
}

// enlist gives a taker its hub, making it for the first.
func (b *bus) enlist(t *taker, queue string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hubs[queue]
	if h == nil {
		h = &hub{bus: b, queue: queue, work: make(chan struct{}, 1), ended: make(chan struct{}), takers: map[*taker]bool{}}
		var err error
		if h.wakes, err = b.nc.ChanSubscribe(wakeSubject+queue, b.mail); err != nil {
			return fmt.Errorf("queue: wakes of the queue %s: %w", queue, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		h.end = cancel
		go h.run(ctx) // ends with its last taker, which waits for it
		b.hubs[queue] = h
	}
	t.hub = h
	h.mu.Lock()
	h.takers[t] = true
	h.mu.Unlock()
	return nil
}

// dismiss forgets a taker, and its hub with the last one.
func (b *bus) dismiss(t *taker) {
	h := t.hub
	b.mu.Lock()
	h.mu.Lock()
	here := h.takers[t]
	delete(h.takers, t)
	for _, l := range b.attempts.of(t) {
		l.cancel()
	}
	last := here && len(h.takers) == 0
	if last {
		h.handOn()
	}
	h.mu.Unlock()
	if last {
		delete(b.hubs, h.queue) // what still comes for it goes back at once
	}
	b.mu.Unlock()
	if last {
		_ = h.wakes.Unsubscribe() // an error: the connection has ended
		h.end()
		<-h.ended
	}
}

// ask opens a Take for n tickets, or answers it with what is here.
func (h *hub) ask(t *taker, n int) []workers.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.closed {
		return nil
	}
	select {
	case <-t.signal: // of an earlier Take
	default:
	}
	for len(h.ready) > 0 && len(t.got) < n {
		l := h.ready[0]
		h.ready = h.ready[1:]
		if l.revoked {
			l.give(0)
			continue
		}
		t.take(l)
	}
	if len(t.got) > 0 {
		return t.hand()
	}
	h.wants(t, n)
	h.wake()
	return nil
}

// collect closes a Take.
func (h *hub) collect(t *taker) []workers.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wants(t, 0)
	return t.hand()
}

// wants sets how many tickets a worker's open Take lacks. The caller holds mu.
func (h *hub) wants(t *taker, n int) {
	h.wanted += n - t.want
	t.want = n
}

// close ends a worker's asking, and hands back what came and was not taken.
func (h *hub) close(t *taker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.closed = true
	h.wants(t, 0)
	for _, l := range t.got {
		l.give(0)
	}
	t.got = nil
	if !h.attended() {
		h.handOn()
	}
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// reopen has a worker ask again that had ended its asking.
func (h *hub) reopen(t *taker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.closed = false
}

// left reports whether a worker has ended its asking.
func (h *hub) left(t *taker) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return t.closed
}

// attended reports whether any worker may ask again. The caller holds mu.
func (h *hub) attended() bool {
	for t := range h.takers {
		if !t.closed {
			return true
		}
	}
	return false
}

// handOn gives back what nobody has asked for in time, so that it does not wait for its
// lease to lapse. The caller holds mu.
func (h *hub) handOn() {
	for _, l := range h.ready {
		l.give(0)
	}
	h.ready = nil
}

func (h *hub) wake() {
	select {
	case h.work <- struct{}{}:
	default:
	}
}

const (
	// livelyFor is how long a queue counts as lively after a ticket of it came, or after a
	// gateway said that one comes.
	livelyFor = time.Second
	// spread is how long after a queue has become lively a process asks at the latest. The
	// word of it reaches the processes in the same order each time, and whoever asks first is
	// served first.
	spread = 5 * time.Millisecond
)

// stir notes that the queue has tickets. The caller holds mu.
func (h *hub) stir(now time.Time) {
	idle := !now.Before(h.lively)
	h.lively = now.Add(livelyFor)
	if !idle {
		return
	}
	if h.processes() > 1 {
		h.rest = now.Add(rand.N(spread)) //nolint:gosec // order needs no secret randomness
	}
	h.wake()
}

// rouse is a gateway's word that tickets come, and for how many workers.
func (h *hub) rouse(crowd int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused > 0 { // what was missing is there now
		h.refused, h.rest = 0, time.Time{}
		h.wake()
	}
	if h.crowd != crowd {
		h.crowd = crowd
		h.wake()
	}
	h.stir(time.Now())
}

// restored is told that the connection was lost and is back: no pull is open.
func (h *hub) restored() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked, h.slow, h.refused, h.rest = 0, time.Time{}, 0, time.Time{}
	h.wake()
}

// processes is how many processes ask for this queue's tickets, if all have as many workers
// as this one. The caller holds mu.
func (h *hub) processes() int { return max(h.crowd/max(len(h.takers), 1), 1) }
