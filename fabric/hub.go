package fabric

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// hub asks for the tickets of one consumer for all workers of this process that take from
// it: in one request for as many slots as they want together, however many workers these
// are. A ticket that comes goes to one of the slots at random.
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

const (
	// pullGrace is how long after its expiry a pull is waited for: the server says
	// when it ends, unless the connection was cut.
	pullGrace = time.Second
	// pullRest is how long a hub rests whose pool has no consumer yet, or whose engine
	// has no leader; it is at least as long and less than twice.
	pullRest = 100 * time.Millisecond
	// calm is how many processes may ask as often as PullMin and PullMax say.
	calm = 16
	// longestPull bounds the life of a request where there are very many.
	longestPull = 5 * time.Second
	// linger is how long a ticket may wait here for a worker to ask again. One that works
	// asks at once; one whose breaker has opened meanwhile does not.
	linger = 50 * time.Millisecond
)

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

// take gives a ticket to the source. The caller holds mu.
func (s *Source) take(l *lease) {
	l.source = s
	s.got = append(s.got, l)
}

// hand gives the worker what came. The caller holds mu.
func (s *Source) hand() []workers.Lease {
	out := make([]workers.Lease, 0, len(s.got))
	for _, l := range s.got {
		out = append(out, l)
	}
	s.got = nil
	return out
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

// run files the pulls. What several workers want at the same time goes into one.
func (h *hub) run(ctx context.Context) {
	defer close(h.ended)
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.work:
		case <-t.C:
		}
		wait, err := h.file()
		if err != nil {
			h.bus.cfg.Log.DebugContext(ctx, "tickets cannot be asked for; trying again", "consumer", h.consumer, "error", err)
		}
		t.Reset(wait)
	}
}

// file makes the open requests as many as the slots that want a ticket, once half of these
// have none, and returns when to look again, whatever the server says.
func (h *hub) file() (time.Duration, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.After(h.until) {
		h.asked = 0
	}
	missing := h.wanted - h.asked
	switch {
	case 2*missing < h.wanted && h.asked > 0:
		// The requests that are open are enough for now: one for every slot that is freed
		// would have the engine look through hundreds of them for every ticket.
		return h.until.Sub(now) + time.Millisecond, nil
	case missing <= 0:
		return time.Hour, nil // until somebody wants more
	case h.rest.After(now):
		return h.rest.Sub(now), nil
	}
	processes := max(h.crowd()/max(len(h.sources), 1), 1)
	life := h.life(processes)
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d,"group":%q,"priority":%d}`, missing, life.Nanoseconds(), pullGroup, place(processes))
	subject := "$JS.API.CONSUMER.MSG.NEXT." + streamName + "." + h.consumer
	if err := h.bus.nc.PublishRequest(subject, h.inbox+"."+strconv.Itoa(missing), body); err != nil {
		return pullRest, err
	}
	h.asked += missing
	if until := now.Add(life + pullGrace); until.After(h.until) {
		h.until = until
	}
	return h.until.Sub(now) + time.Millisecond, nil
}

// life draws how long a request waits before it is filed again.
func (h *hub) life(processes int) time.Duration {
	c := h.bus.cfg
	life := c.PullMin + rand.N(c.PullMax-c.PullMin) //nolint:gosec // order needs no secret randomness
	if processes > calm {
		life = min(life*time.Duration(processes)/calm, longestPull)
	}
	return life
}

// place says where a request goes in the queue of waiting ones: to the front (0) one
// time in as many as there are processes, else to the back (1). At the back alone the
// process that was served last is always served last again.
func place(processes int) int {
	if processes > 1 && rand.IntN(processes) > 0 { //nolint:gosec // order needs no secret randomness
		return 1
	}
	return 0
}

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
