package fabric

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/wire"
)

// receive takes a ticket, or the server's word that a pull has ended and how many
// tickets it still lacked. It runs on a goroutine of the connection.
func (h *hub) receive(m *nats.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if status := m.Header.Get("Status"); len(m.Data) == 0 && status != "" { // 408 expired, 404, 409, 503
		lacks, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		if err != nil { // refused as a whole: what it asked for is in the subject
			lacks, _ = strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
		}
		h.asked = max(h.asked-lacks, 0)
		if status != "408" { // to ask again at once would be to ask all the time
			h.rest = time.Now().Add(pullRest + rand.N(pullRest)) //nolint:gosec // a pause needs no secret randomness
		}
		h.wake()
		return
	}
	h.asked = max(h.asked-1, 0)
	l, ok := h.open(m)
	if !ok {
		h.wake()
		return
	}
	if s := h.choose(l.ticket); s != nil {
		s.take(l)
		h.wants(s, s.want-1)
		select {
		case s.signal <- struct{}{}:
		default:
		}
		return
	}
	if !h.attended() || h.hurry(l.ticket) {
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

// choose draws one of the slots that want a ticket, of workers that it need not avoid while
// there are such; nil: nobody wants one. The caller holds mu.
func (h *hub) choose(t wire.Ticket) *Source {
	if h.wanted == 0 {
		return nil
	}
	able := h.wanted
	if len(t.Avoid) > 0 {
		for s := range h.sources {
			if slices.Contains(t.Avoid, s.worker) {
				able -= s.want
			}
		}
	}
	all := able == 0
	if all {
		able = h.wanted
	}
	slot := rand.IntN(able) //nolint:gosec // order needs no secret randomness
	for s := range h.sources {
		if !all && len(t.Avoid) > 0 && slices.Contains(t.Avoid, s.worker) {
			continue
		}
		if slot -= s.want; slot < 0 {
			return s
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
	for s := range h.sources {
		if !s.closed && !slices.Contains(t.Avoid, s.worker) {
			return false
		}
	}
	return true
}

// open makes a lease of a delivered ticket. Revoked ones are swallowed. The caller holds mu.
func (h *hub) open(m *nats.Msg) (*lease, bool) {
	ticket, err := wire.DecodeTicket(m.Data)
	if err == nil && foreign(m, ticketSubjects) {
		err = errors.New("no gateway has published it")
	}
	if err != nil {
		h.bus.cfg.Log.Error("a ticket could not be read and was dropped", "ticket", string(m.Data), "error", err)
		_ = m.Term() // without an answer it lapses and comes again
		return nil, false
	}
	key := ticket.Key()
	if h.over.has(key) {
		_ = m.Ack() // without an answer it lapses and is refused at the claim
		return nil, false
	}
	l := &lease{hub: h, msg: m, ticket: ticket}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	h.leases[key] = l
	return l, true
}

// revoke ends the lease of an attempt that is over.
func (h *hub) revoke(key wire.AttemptKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over.add(key)
	if l := h.leases[key]; l != nil {
		l.revoked = true
		l.cancel()
	}
}

// recent remembers the latest keys, a bounded number of them.
type recent struct {
	set  map[wire.AttemptKey]bool
	ring []wire.AttemptKey // grows up to most, then the oldest makes room
	most int
	next int
}

func newRecent(most int) *recent {
	return &recent{set: make(map[wire.AttemptKey]bool), most: most}
}

func (r *recent) add(k wire.AttemptKey) {
	if r.set[k] {
		return
	}
	r.set[k] = true
	if len(r.ring) < r.most {
		r.ring = append(r.ring, k)
		return
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = k
	r.next = (r.next + 1) % r.most
}

func (r *recent) has(k wire.AttemptKey) bool { return r.set[k] }
