package fabric

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// hub asks for the tickets of one consumer for all workers of this process that take from
// it: in one request for as many slots as they want together, however many workers these
// are (pull.go). A ticket that comes goes to one of the slots at random (deliver.go).
type hub struct {
	bus      *bus
	consumer string
	inbox    string // the pulls' answers go to inbox.<batch>
	crowd    func() int
	answer   *nats.Subscription
	work     chan struct{}      // capacity 1: somebody wants more, or a pull ended
	end      context.CancelFunc // ends run
	ended    chan struct{}

	mu      sync.Mutex
	sources map[*Source]bool           // guarded by mu
	wanted  int                        // slots of all open Takes; guarded by mu
	asked   int                        // tickets that open pulls may still bring; guarded by mu
	until   time.Time                  // when the last of them is over, whatever the server says; guarded by mu
	rest    time.Time                  // it asks for nothing until then: there is nobody to ask; guarded by mu
	ready   []*lease                   // came when nobody wanted any; guarded by mu
	stale   *time.Timer                // hands them on; guarded by mu
	leases  map[wire.AttemptKey]*lease // of all that came and are not over; guarded by mu
	over    *recent                    // attempts that were revoked; guarded by mu
}

// enlist gives a source its hub, making it for the first.
func (b *bus) enlist(s *Source, consumer string, crowd func() int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.hubs[consumer]
	if h == nil {
		h = &hub{
			bus: b, consumer: consumer, inbox: b.nc.NewInbox(), crowd: crowd, work: make(chan struct{}, 1), ended: make(chan struct{}),
			sources: map[*Source]bool{}, leases: map[wire.AttemptKey]*lease{}, over: newRecent(4096),
		}
		var err error
		if h.answer, err = b.nc.Subscribe(h.inbox+".*", h.receive); err != nil {
			return fmt.Errorf("fabric: inbox for %s: %w", consumer, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		h.end = cancel
		go h.run(ctx) // ends with its last source, which waits for it
		b.hubs[consumer] = h
	}
	s.hub = h
	h.mu.Lock()
	h.sources[s] = true
	h.mu.Unlock()
	return nil
}

// dismiss forgets a source, and its hub with the last one.
func (b *bus) dismiss(s *Source) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := s.hub
	h.mu.Lock()
	delete(h.sources, s)
	for _, l := range h.leases {
		if l.source == s {
			l.cancel()
		}
	}
	last := len(h.sources) == 0
	if last {
		h.handOn()
	}
	h.mu.Unlock()
	if last && b.hubs[h.consumer] == h {
		delete(b.hubs, h.consumer)
		_ = h.answer.Unsubscribe() // an error: the connection has ended
		h.end()
		<-h.ended
	}
}

// ask opens a Take for n tickets, or answers it with what is here.
func (h *hub) ask(s *Source, n int) []workers.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return nil
	}
	select {
	case <-s.signal: // of an earlier Take
	default:
	}
	for len(h.ready) > 0 && len(s.got) < n {
		l := h.ready[0]
		h.ready = h.ready[1:]
		if l.revoked {
			l.give(0)
			continue
		}
		s.take(l)
	}
	if len(s.got) > 0 {
		return s.hand()
	}
	h.wants(s, n)
	h.wake()
	return nil
}

// collect closes a Take.
func (h *hub) collect(s *Source) []workers.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wants(s, 0)
	return s.hand()
}

// wants sets how many tickets a source's open Take lacks. The caller holds mu.
func (h *hub) wants(s *Source, n int) {
	h.wanted += n - s.want
	s.want = n
}

// close ends a source's asking, and hands back what came and was not taken.
func (h *hub) close(s *Source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.closed = true
	h.wants(s, 0)
	for _, l := range s.got {
		l.give(0)
	}
	s.got = nil
	if !h.attended() {
		h.handOn()
	}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// attended reports whether any source may ask again. The caller holds mu.
func (h *hub) attended() bool {
	for s := range h.sources {
		if !s.closed {
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
