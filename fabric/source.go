package fabric

import (
	"context"
	"encoding/json"
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

// Source hands the stream's tickets to one worker.
type Source struct {
	bus    *bus
	cfg    Config
	nc     *nats.Conn // all of the process's
	answer *nats.Subscription
	worker string
	crowd  func() int          // workers that share the engine
	gone   func(worker string) // nil: nothing to do once it is disconnected
	// consumer is where it asks: the one of its pool, or its own.
	consumer string
	inbox    string // the pulls' answers go to inbox.<batch>

	signal chan struct{} // capacity 1: a ticket came, or a pull ended

	mu     sync.Mutex
	asked  int                        // tickets that open pulls may still bring; guarded by mu
	until  time.Time                  // when the last of them is over, whatever the server says; guarded by mu
	rest   time.Time                  // it asks for nothing until then: there is nobody to ask; guarded by mu
	ready  []*lease                   // came and not taken; guarded by mu
	leases map[wire.AttemptKey]*lease // taken or ready, not over; guarded by mu
	over   *recent                    // attempts that were revoked; guarded by mu
	takers int                        // Takes that are open; guarded by mu
	stale  *time.Timer                // hands ready tickets on that nobody takes; guarded by mu
	closed bool                       // guarded by mu
}

const (
	// pullGrace is how long after its expiry a pull is waited for: the server says
	// when it ends, unless the connection was cut.
	pullGrace = time.Second
	// pullRest is how long a worker rests whose pool has no consumer yet, or whose engine
	// has no leader; it is at least as long and less than twice.
	pullRest = 100 * time.Millisecond
	// calm is how many workers may ask as often as PullMin and PullMax say.
	calm = 16
	// longestPull bounds the life of a request where there are very many workers.
	longestPull = 5 * time.Second
)

func newSource(b *bus, worker string, crowd func() int) (*Source, error) {
	s := &Source{
		bus: b, cfg: b.cfg, nc: b.nc, worker: worker, crowd: crowd, consumer: consumerOfPool(b.cfg.Pool), inbox: b.nc.NewInbox(), signal: make(chan struct{}, 1),
		leases: map[wire.AttemptKey]*lease{}, over: newRecent(4096),
	}
	if b.cfg.Addressed {
		s.consumer = consumerOf(worker)
	}
	var err error
	if s.answer, err = b.nc.Subscribe(s.inbox+".*", s.receive); err != nil {
		return nil, fmt.Errorf("fabric: inbox of %s: %w", worker, err)
	}
	b.mu.Lock()
	b.sources[s] = true
	b.mu.Unlock()
	return s, nil
}

// Disconnect ends the source, after the worker has stopped: leases that are not over lapse.
func (s *Source) Disconnect() {
	s.Close()
	_ = s.answer.Unsubscribe() // an error: the connection has ended
	s.bus.mu.Lock()
	delete(s.bus.sources, s)
	s.bus.mu.Unlock()
	if s.gone != nil {
		s.gone(s.worker)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		l.cancel()
	}
}

// Take implements workers.Source.
func (s *Source) Take(ctx context.Context, n int) ([]workers.Lease, error) {
	wait, err := s.file(n)
	if err != nil {
		return nil, err
	}
	s.taking(1)
	defer s.taking(-1)
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		leases, open := s.collect()
		if len(leases) > 0 || !open {
			return leases, nil
		}
		select {
		case <-s.signal:
		case <-t.C:
			return nil, nil
		case <-ctx.Done():
			leases, _ := s.collect()
			return leases, nil
		}
	}
}

// file makes the open requests n, counting what has come already, and returns how
// long there is anything to wait for.
func (s *Source) file(n int) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, nil
	}
	now := time.Now()
	if now.After(s.until) {
		s.asked = 0
	}
	missing := n - len(s.ready) - s.asked
	if missing <= 0 {
		return s.until.Sub(now), nil
	}
	if s.rest.After(now) {
		return s.rest.Sub(now), nil
	}
	life := s.life()
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d,"group":%q,"priority":%d}`, missing, life.Nanoseconds(), pullGroup, s.place())
	subject := "$JS.API.CONSUMER.MSG.NEXT." + streamName + "." + s.consumer
	if err := s.nc.PublishRequest(subject, s.inbox+"."+strconv.Itoa(missing), body); err != nil {
		return 0, fmt.Errorf("fabric: pull: %w", err)
	}
	s.asked += missing
	if until := now.Add(life + pullGrace); until.After(s.until) {
		s.until = until
	}
	return s.until.Sub(now), nil
}

// life draws how long a request waits before it is filed again.
func (s *Source) life() time.Duration {
	life := s.cfg.PullMin + rand.N(s.cfg.PullMax-s.cfg.PullMin) //nolint:gosec // order needs no secret randomness
	if n := s.crowd(); n > calm {
		life = min(life*time.Duration(n)/calm, longestPull)
	}
	return life
}

// place says where a request goes in the queue of waiting ones: to the front (0) one
// time in as many as there are workers, else to the back (1). At the back alone the
// worker that was served last is always served last again.
func (s *Source) place() int {
	if n := s.crowd(); n > 1 && rand.IntN(n) > 0 { //nolint:gosec // order needs no secret randomness
		return 1
	}
	return 0
}

// taking notes that a Take begins or ends.
func (s *Source) taking(by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takers += by
}

// linger is how long a ticket may wait here for the worker to ask again. A worker
// that works asks at once; one whose breaker has opened meanwhile does not.
const linger = 50 * time.Millisecond

// handOn gives back what came for slots that are no longer free, so that it does
// not wait for its lease to lapse.
func (s *Source) handOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.takers > 0 {
		return // it is being collected
	}
	for _, l := range s.ready {
		l.give(0)
	}
	s.ready = nil
}

// collect takes what has come, and says whether more may come.
func (s *Source) collect() (leases []workers.Lease, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.ready {
		leases = append(leases, l)
	}
	s.ready = nil
	return leases, (s.asked > 0 || s.rest.After(time.Now())) && !s.closed
}

// receive takes a ticket, or the server's word that a pull has ended and how many
// tickets it still lacked. It runs on the connection's own goroutine.
func (s *Source) receive(m *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake()
	if status := m.Header.Get("Status"); len(m.Data) == 0 && status != "" { // 408 expired, 404, 409, 503
		lacks, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		if err != nil { // refused as a whole: what it asked for is in the subject
			lacks, _ = strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
		}
		s.asked = max(s.asked-lacks, 0)
		if status != "408" { // to ask again at once would be to ask all the time
			s.rest = time.Now().Add(pullRest + rand.N(pullRest)) //nolint:gosec // a pause needs no secret randomness
		}
		return
	}
	s.asked = max(s.asked-1, 0)
	l, ok := s.open(m)
	if !ok {
		return
	}
	hurry := s.takers == 0 && l.ticket.Aside && slices.Contains(l.ticket.Avoid, s.worker)
	if s.closed || hurry { // who asked for it rests, and a faster one is free
		l.give(0)
		return
	}
	s.ready = append(s.ready, l)
	if s.takers > 0 {
		return
	}
	if s.stale == nil {
		s.stale = time.AfterFunc(linger, s.handOn)
	} else {
		s.stale.Reset(linger)
	}
}

// open makes a lease of a delivered ticket. Revoked ones are swallowed.
func (s *Source) open(m *nats.Msg) (*lease, bool) {
	ticket, err := wire.DecodeTicket(m.Data)
	if err == nil && foreign(m) {
		err = errors.New("no gateway has published it")
	}
	if err != nil {
		s.cfg.Log.Error("a ticket could not be read and was dropped", "ticket", string(m.Data), "error", err)
		_ = m.Term() // without an answer it lapses and comes again
		return nil, false
	}
	key := ticket.Key()
	if s.over.has(key) {
		_ = m.Ack() // without an answer it lapses and is refused at the claim
		return nil, false
	}
	l := &lease{s: s, msg: m, ticket: ticket}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	s.leases[key] = l
	return l, true
}

// revoke ends the lease of an attempt that is over.
func (s *Source) revoke(key wire.AttemptKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over.add(key)
	if l := s.leases[key]; l != nil {
		l.revoked = true
		l.cancel()
	}
}

func (s *Source) wake() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// Announce implements workers.Source.
func (s *Source) Announce(info wire.WorkerInfo) {
	data, err := json.Marshal(info)
	if err == nil {
		err = s.nc.Publish(presenceSubject, data)
	}
	if err != nil {
		s.cfg.Log.Debug("announcement not sent", "worker", info.ID, "error", err)
	}
}

// Close implements workers.Source.
func (s *Source) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, l := range s.ready {
		l.give(0)
	}
	s.ready = nil
	if s.stale != nil {
		s.stale.Stop()
	}
	s.wake()
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
