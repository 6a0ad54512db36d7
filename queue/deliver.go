package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/wire"
)

// receive takes a ticket that a pull brought.
func (h *hub) receive(m *nats.Msg, slow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slow {
		h.slow = time.Time{}
	} else {
		h.asked = max(h.asked-1, 0)
	}
	h.refused = 0
	h.stir(time.Now())
	l, ok := h.open(m)
	if !ok {
		h.wake()
		return
	}
	if t := h.choose(l.ticket); t != nil {
		t.take(l)
		h.wants(t, t.want-1)
		if h.wanted > 0 && !h.enough(h.wanted-h.asked) { // what was enough has come: a place is left that nothing is asked for
			h.wake()
		}
		select {
		case t.signal <- struct{}{}:
		default:
		}
		return
	}
	// A slow pull may have been filed long ago, when a place was free.
	if slow || h.extra || !h.attended() || h.hurry(l.ticket) {
		h.extra = false
		l.give(0)
		return
	}
	h.ready = append(h.ready, l)
	if h.stale == nil {
		h.stale = time.AfterFunc(linger, h.expire)
	} else {
		h.stale.Reset(linger)
	}
}

// linger is how long a ticket may wait here for a worker to ask again. One that works
// asks at once; one whose breaker has opened meanwhile does not.
const linger = 50 * time.Millisecond

// expire hands on what has waited for too long.
func (h *hub) expire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handOn()
}

// choose draws one of the places that want a ticket, of workers that it need not avoid while
// there are such; nil: nobody wants one. The caller holds mu.
func (h *hub) choose(t wire.Ticket) *taker {
	if h.wanted == 0 {
		return nil
	}
	able := h.wanted
	if len(t.Avoid) > 0 {
		for w := range h.takers {
			if slices.Contains(t.Avoid, w.worker) {
				able -= w.want
			}
		}
	}
	all := able == 0
	if all {
		able = h.wanted
	}
	place := rand.IntN(able) //nolint:gosec // order needs no secret randomness
	for w := range h.takers {
		if !all && len(t.Avoid) > 0 && slices.Contains(t.Avoid, w.worker) {
			continue
		}
		if place -= w.want; place < 0 {
			return w
		}
	}
	return nil
}

// hurry reports whether a ticket had better go elsewhere at once: all workers here are too
// slow for it, and a faster one is free. The caller holds mu.
func (h *hub) hurry(t wire.Ticket) bool {
	if !t.Aside {
		return false
	}
	for w := range h.takers {
		if !w.closed && !slices.Contains(t.Avoid, w.worker) {
			return false
		}
	}
	return true
}

// open makes a lease of a delivered ticket. Revoked ones are swallowed. The caller holds mu.
func (h *hub) open(m *nats.Msg) (*lease, bool) {
	ticket, err := wire.DecodeTicket(m.Data)
	if err == nil && foreign(m, ticketSubjects) {
		err = errors.New("the ticket was not published by a gateway")
	}
	if err != nil {
		h.bus.cfg.Log.Error("a ticket could not be decoded and was dropped", "ticket", string(m.Data), "error", err)
		_ = m.Term() // without an answer it lapses and comes again
		return nil, false
	}
	ticket.Queue = h.queue
	l := &lease{hub: h, msg: m, ticket: ticket}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if !h.bus.attempts.begin(l) {
		l.cancel()
		_ = m.Ack() // without an answer it lapses and is refused at the claim
		return nil, false
	}
	return l, true
}
