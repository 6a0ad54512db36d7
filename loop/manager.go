package loop

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Manager is the gateway: it accepts samples, decides which is next, keeps the
// table of what is in flight, and answers each sample once.
type Manager struct {
	// Immutable after New.
	cfg      Config
	rewards  []string // the profiles that clients may ask for
	engine   Engine
	presence Presence
	log      *slog.Logger
	buffers  *wire.Buffers
	metrics  *metrics

	stepArrived func()         // nil: nobody asks
	examine     func(Examined) // likewise
	spool       Spool          // likewise: nothing outlives the process

	// The dispatcher's own: when it last said that the engine takes no tickets, and how
	// many these were since.
	complained time.Time
	untaken    int

	wake    chan struct{} // capacity 1: something changed for the dispatcher
	stop    context.CancelFunc
	stopped chan struct{}  // closed when the dispatcher has returned
	closing sync.WaitGroup // connections that are being closed

	mu       sync.Mutex
	core     *core             // guarded by mu
	budget   budget            // guarded by mu
	sessions map[*Session]bool // with a live connection; guarded by mu
	draining bool              // guarded by mu
	drained  chan struct{}     // closed when draining and nothing is in flight; guarded by mu
	closed   bool              // guarded by mu
	epochs   uint64            // the latest epoch given out; guarded by mu
	// writing holds the ids of samples that are on their way to the spool; a channel is
	// closed when its sample is known or refused. Guarded by mu.
	writing map[sampleKey]chan struct{}
}

// Options are what a Manager needs from outside.
type Options struct {
	Config   Config
	Engine   Engine
	Presence Presence
	Log      *slog.Logger          // nil: discarded
	Metrics  prometheus.Registerer // nil: counted, not exported
	Buffers  *wire.Buffers         // nil: its own
	// StepArrived is called, from several goroutines, when all samples of a step that
	// were declared have arrived, and for each that comes after: the moment from
	// which waiting for more helps nobody. It must return at once. nil: nobody asks.
	StepArrived func()
	// Examine is called, from several goroutines, with the first Config.NumExamine
	// samples of a step as they are answered, for people to look at; nil: nobody does.
	Examine func(Examined)
	// Spool keeps what clients were promised over the death of the process: Restore takes
	// it in. nil: it lives in memory, and clients send it again.
	Spool Spool
}

// New makes a gateway. Start sets it going.
func New(o Options) (*Manager, error) {
	cfg := o.Config.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Gateway == "" {
		cfg.Gateway = "gw-" + randomName()
	}
	m := &Manager{
		cfg: cfg, engine: o.Engine, presence: o.Presence, log: o.Log, buffers: o.Buffers,
		stepArrived: o.StepArrived, examine: o.Examine, spool: o.Spool,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), drained: make(chan struct{}),
		budget: budget{max: cfg.MaxBytes}, sessions: map[*Session]bool{}, writing: map[sampleKey]chan struct{}{},
		// Epochs of a restarted gateway must differ from those of its last life.
		epochs: uint64(time.Now().UnixMicro()), //nolint:gosec // the clock is past 1970
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.buffers == nil {
		m.buffers = new(wire.Buffers)
	}
	// Names that begin with "_" are the process's own.
	m.rewards = slices.DeleteFunc(slices.Clone(cfg.Profiles), func(name string) bool { return strings.HasPrefix(name, "_") })
	m.metrics = newMetrics(m, o.Metrics)
	m.core = newCore(cfg, m.metrics, o.Spool)
	return m, nil
}

func randomName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Gateway returns the name that tickets carry.
func (m *Manager) Gateway() string { return m.cfg.Gateway }

// Buffers returns where frames get their memory.
func (m *Manager) Buffers() *wire.Buffers { return m.buffers }

// Start sets the dispatcher going. It runs until Stop; ctx gives it values only.
func (m *Manager) Start(ctx context.Context) {
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	go m.dispatch(ctx) // ends on Stop, which waits for it
}

// Drain refuses new samples, tells every client, and returns when nothing is in
// flight or ctx ends; the error then says what still is.
func (m *Manager) Drain(ctx context.Context) error {
	m.mu.Lock()
	if !m.draining {
		m.draining = true
		m.noteDrained()
	}
	live := m.liveSessions()
	m.mu.Unlock()
	for _, s := range live {
		s.send(&wire.Draining{})
	}
	select {
	case <-m.drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Draining reports whether new samples are refused.
func (m *Manager) Draining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.draining
}

// Stop ends the gateway: connections are closed, what is still in flight over a
// local Submit is answered as cancelled, and clients re-send what they have no
// result for to the next gateway. It returns when nothing of it runs any more.
func (m *Manager) Stop() {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		<-m.stopped
		return
	}
	m.closed, m.draining = true, true
	m.core.journal.spool = nil // what is cut off here goes on in the next life
	for _, r := range m.core.runs {
		r.progress() // whoever waits for rewards sees that there will be none
	}
	var fx effects
	now := time.Now()
	for _, e := range m.core.entries {
		m.core.abort(now, e, "the gateway stopped", &fx)
	}
	m.noteDrained()
	for _, s := range m.liveSessions() {
		// Taken away before the results go out: to a client its samples are not
		// cancelled, it sends them to the next gateway.
		if c := s.take(); c != nil {
			m.closing.Go(func() { _ = c.Close(closeGoingAway, "the gateway stopped") }) // it is going away either way
		}
	}
	m.mu.Unlock()
	m.apply(fx)
	m.closing.Wait()
	if m.stop == nil {
		close(m.stopped) // never started
		return
	}
	m.stop()
	<-m.stopped
}

func (m *Manager) liveSessions() []*Session {
	live := make([]*Session, 0, len(m.sessions))
	for s := range m.sessions {
		live = append(live, s)
	}
	return live
}

// dispatch is the one goroutine that publishes tickets and minds the clock.
func (m *Manager) dispatch(ctx context.Context) {
	defer close(m.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	sweep := time.NewTicker(30 * time.Second)
	defer sweep.Stop()
	for {
		wait := m.round(ctx)
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
		case <-sweep.C:
			m.sweep(time.Now())
		}
	}
}

const (
	publishBatch   = 64                     // tickets taken under one lock
	publishTimeout = 500 * time.Millisecond // deadlines may slip by no more
	publishPause   = 100 * time.Millisecond // after the engine refused one
	presencePoll   = 100 * time.Millisecond // while samples wait for a slot that is not there
)

// round does all that is due and returns how long nothing is.
func (m *Manager) round(ctx context.Context) time.Duration {
	for {
		workers := m.presence.Workers()
		now := time.Now()
		m.mu.Lock()
		tickets, fx, next := m.core.tick(now, workers)
		for len(tickets) < publishBatch {
			t, ok := m.core.next(now, workers)
			if !ok {
				break
			}
			tickets = append(tickets, t)
		}
		waiting := m.core.waiting()
		if len(m.core.alarms) > 0 { // publishing has moved it
			next = m.core.alarms[0].at
		}
		if due := m.core.bench.due; !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
		m.mu.Unlock()
		m.apply(fx)
		if !m.publish(ctx, tickets) {
			return publishPause
		}
		if len(tickets) < publishBatch {
			wait := time.Hour
			if !next.IsZero() {
				wait = max(time.Until(next), 0)
			}
			if waiting {
				wait = min(wait, presencePoll)
			}
			return wait
		}
	}
}

// publish hands tickets to the engine; those that it does not take go back to
// their queues.
func (m *Manager) publish(ctx context.Context, tickets []wire.Ticket) bool {
	if len(tickets) == 0 {
		return true
	}
	pctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	for i, t := range tickets {
		err := m.engine.Publish(pctx, t)
		if err == nil {
			continue
		}
		m.metrics.publishErrs.Inc()
		m.complain(ctx, t, err)
		m.mu.Lock()
		for _, back := range slices.Backward(tickets[i:]) {
			m.core.unpublish(back)
		}
		m.mu.Unlock()
		return false
	}
	return true
}

// complainEvery is how often the log says that the engine takes no tickets: while it is
// away, ten are tried a second.
const complainEvery = 10 * time.Second

// complain says that the engine did not take a ticket. It is the dispatcher's.
func (m *Manager) complain(ctx context.Context, t wire.Ticket, err error) {
	m.untaken++
	now := time.Now()
	if now.Sub(m.complained) < complainEvery {
		return
	}
	m.log.WarnContext(ctx, "engine did not take a ticket; it stays queued", "sample_id", t.ID, "run", t.Run, "error", err, "since_last_said", m.untaken)
	m.complained, m.untaken = now, 0
}

// apply does what the core asked for, without the mutex.
func (m *Manager) apply(fx effects) {
	for _, a := range fx.results {
		a.to.deliver(a.stored)
	}
	for _, f := range fx.released {
		f.Release()
	}
	for _, key := range fx.revoked {
		if err := m.engine.Revoke(context.Background(), key); err != nil {
			m.log.Debug("engine did not revoke", "sample_id", key.ID, "error", err)
		}
	}
	if len(fx.results) > 0 || len(fx.released) > 0 {
		m.mu.Lock()
		m.noteDrained()
		m.mu.Unlock()
	}
	for _, st := range fx.over {
		m.report(st)
	}
	if m.examine != nil {
		for _, x := range fx.examined {
			m.examine(x)
		}
	}
	if fx.wake {
		m.wakeUp()
	}
	if fx.whole && m.stepArrived != nil {
		m.stepArrived()
	}
}

// noteDrained lets Drain return when nothing is in flight. The caller holds the mutex.
func (m *Manager) noteDrained() {
	if !m.draining || len(m.core.entries) > 0 {
		return
	}
	select {
	case <-m.drained:
	default:
		close(m.drained)
	}
}

func (m *Manager) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Claim gives a worker the payload of a ticket: its start notice. The frame is the
// worker's to release when every goroutine of the attempt has returned. wire.ErrGone
// means that the sample needs no scoring any more.
func (m *Manager) Claim(_ context.Context, t wire.Ticket, worker string) (*wire.Frame, error) {
	if t.Gateway != m.cfg.Gateway {
		return nil, wire.ErrGone
	}
	m.mu.Lock()
	f, _, fx, err := m.core.claim(time.Now(), t, worker)
	m.mu.Unlock()
	m.apply(fx)
	return f, err
}

// ClaimGroup gives a worker the payloads of a group's ticket, as Claim does for a sample.
func (m *Manager) ClaimGroup(_ context.Context, t wire.Ticket, worker string) (*wire.Group, error) {
	if t.Gateway != m.cfg.Gateway {
		return nil, wire.ErrGone
	}
	m.mu.Lock()
	_, g, fx, err := m.core.claim(time.Now(), t, worker)
	m.mu.Unlock()
	m.apply(fx)
	return g, err
}

// Finish takes a worker's answer. It returns nil when the gateway answers for the
// sample from here on, whether the answer was the first or came too late.
func (m *Manager) Finish(_ context.Context, _ wire.Ticket, res *wire.Result) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrStopped
	}
	own := *res // a worker in this process still reads its own while the group finishes ours
	now := time.Now()
	fx := m.core.finish(now, &own)
	var grants []grant
	if fx.parked {
		grants = m.relieve(now, &fx)
	}
	m.mu.Unlock()
	m.apply(fx)
	send(grants)
	return nil
}

// relieve gives clients more credit, now that samples which wait for their groups do
// not count against it. Where memory is full of such samples, so that those they wait
// for can never come, the oldest group ends. The caller holds the mutex.
func (m *Manager) relieve(now time.Time, fx *effects) []grant {
	grants := m.topUp()
	for s := range m.sessions {
		if s.credit.stuck(&m.budget) {
			m.core.evict(now, s.run, m.cfg.MaxBytes, fx)
		}
	}
	return grants
}

// InFlight returns how many samples are accepted and not answered.
func (m *Manager) InFlight() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.core.entries) - m.core.units
}

// Bytes returns how many bytes of frames are held, and how many are granted as
// credit and not yet used.
func (m *Manager) Bytes() (held, granted int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.budget.held, m.budget.unused
}

// released is called when the last reference to a frame has gone.
func (m *Manager) released(s *Session, size int64) {
	m.mu.Lock()
	if s != nil {
		s.credit.release(&m.budget, size)
	} else {
		m.budget.held -= size
	}
	grants := m.topUp()
	m.mu.Unlock()
	send(grants)
}

// topUp gives the bytes that are free to whoever is low. The caller holds the mutex
// and sends the grants after it.
func (m *Manager) topUp() []grant {
	var grants []grant
	for s := range m.sessions {
		if s.credit.topUp(&m.budget, m.fullWindow()) {
			s.mu.Lock()
			grants = append(grants, grant{s, s.conn, s.credit.granted})
			s.mu.Unlock()
		}
	}
	return grants
}

// send tells the clients. A grant is for one connection: the totals begin anew with
// each welcome.
func send(grants []grant) {
	for _, g := range grants {
		g.session.tell(g.conn, wire.Credit(g.total))
	}
}

type grant struct {
	session *Session
	conn    conn
	total   wire.CreditTotals
}

func (m *Manager) fullWindow() wire.CreditTotals {
	return wire.CreditTotals{Samples: m.cfg.CreditSamples, Bytes: m.cfg.CreditBytes}
}

func (m *Manager) limits() wire.Limits {
	return wire.Limits{MessageBytes: m.cfg.MessageBytes}
}

// sweep forgets what is too old: results nobody confirmed, sessions nobody
// resumed, runs nobody uses.
func (m *Manager) sweep(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.core.runs {
		m.core.ageSteps(now, r)
		if n := r.done.trim(&m.cfg, now); n > 0 {
			m.metrics.forgotten.Add(float64(n))
		}
		for id, s := range r.sessions {
			s.mu.Lock()
			s.prune()
			s.mu.Unlock()
			if !m.sessions[s] && now.Sub(s.detached) > m.cfg.KeepFor {
				delete(r.sessions, id)
			}
		}
		if r.inflight == 0 && len(r.sessions) == 0 && len(r.done.byKey) == 0 && now.Sub(r.lastUse) > m.cfg.KeepFor {
			for _, st := range r.stepLog {
				m.core.forgetStep(st, "nobody has used the run for too long")
			}
			m.core.journal.gone(r)
			delete(m.core.runs, name)
		}
	}
}

// profile resolves a reward's name to the profile and its policy.
func (m *Manager) profile(name string) (rewards.SamplePolicy, bool) {
	return m.cfg.OnSampleFailure[name], slices.Contains(m.cfg.Profiles, name)
}
