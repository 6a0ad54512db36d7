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

	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop/stream"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Manager is the gateway: it accepts samples, decides which sample is next, tracks the samples in
// flight, and answers each sample once.
type Manager struct {
	// Immutable after New.
	cfg      Config
	rewards  []string // the profiles that clients may ask for
	queue    Queue
	presence Presence
	log      *slog.Logger
	buffers  *wire.Buffers
	metrics  *metrics

	stepArrived func()                                                    // nil: nobody asks
	phase       func(ctx context.Context, run, client, name string) error // nil: a phase asks for nothing
	examine     func(Examined)                                            // likewise
	spool       Spool                                                     // likewise: nothing outlives the process
	recorder    Recorder                                                  // likewise: nobody keeps what becomes of samples

	// The dispatcher's own: when it last said that the queue takes no tickets, and how
	// many these were since.
	complained time.Time
	untaken    int

	wake    chan struct{} // capacity 1: something changed for the dispatcher
	stop    context.CancelFunc
	stopped chan struct{}  // closed when the dispatcher has returned
	closing sync.WaitGroup // connections that are being closed

	mu       sync.Mutex
	core     *core         // guarded by mu
	flow     *stream.Flow  // guarded by mu
	draining bool          // guarded by mu
	drained  chan struct{} // closed when draining and nothing is in flight; guarded by mu
	closed   bool          // guarded by mu
	epochs   uint64        // the latest epoch given out; guarded by mu
	// writing holds the ids of samples that are on their way to the spool; a channel is
	// closed when its sample is known or refused. Guarded by mu.
	writing map[sampleKey]chan struct{}
}

// Options are the dependencies of a Manager.
type Options struct {
	Config   Config
	Queue    Queue
	Presence Presence
	Log      *slog.Logger          // nil: no log
	Metrics  prometheus.Registerer // nil: metrics are counted but not exported
	Buffers  *wire.Buffers         // nil: the Manager creates its own
	// StepArrived is called when all declared samples of a step have arrived, and for each sample
	// of the step that arrives later. From this moment waiting for more samples is useless.
	// StepArrived is called from several goroutines and must return at once. nil: no call.
	StepArrived func()
	// Phase handles a phase (wire.PhaseRollout, wire.PhaseReward) that a client of a run has begun,
	// and returns when the actions of that phase are done. nil: a phase has no effect.
	Phase func(ctx context.Context, run, client, name string) error
	// Examine is called with the first Config.NumExamine samples of a step as they are answered,
	// for people to inspect. Examine is called from several goroutines. nil: no call.
	Examine func(Examined)
	// Recorder gets the media and the results of all samples. nil: nothing is recorded.
	Recorder Recorder
	// Spool stores the samples and results that clients rely on, so that they survive the process;
	// Restore reads them back. nil: samples and results are only in memory, and clients send the
	// samples again.
	Spool Spool
	// Tracer gets the spans of samples. nil: no tracing.
	Tracer *tracing.Tracer
}

// New returns a gateway that is not started yet; call Start. New fails if Config is invalid.
func New(o Options) (*Manager, error) {
	cfg := o.Config.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Gateway == "" {
		cfg.Gateway = "gw-" + randomName()
	}
	m := &Manager{
		cfg: cfg, queue: o.Queue, presence: o.Presence, log: o.Log, buffers: o.Buffers,
		stepArrived: o.StepArrived, phase: o.Phase, examine: o.Examine, spool: o.Spool, recorder: o.Recorder,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), drained: make(chan struct{}),
		writing: map[sampleKey]chan struct{}{},

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
	m.core.recorded = o.Recorder != nil
	m.flow = stream.NewFlow(cfg.MaxBytes, cfg.profileBytes(), m.window, m.wakeUp)
	m.core.tracer = o.Tracer
	m.core.hungry = m.flow.Hungry
	return m, nil
}

func randomName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// window is what a connection may send of a profile before a frame is released again: twice
// what workers can use at a time, so that no place waits for a client. The caller holds the
// mutex.
func (m *Manager) window(profile string) wire.CreditTotals {
	samples := m.cfg.CreditSamples
	if samples == 0 {
		samples = max(defaultCredit, 2*m.core.board.Profile(profile).Capacity())
	}
	return wire.CreditTotals{Samples: int64(samples), Bytes: m.cfg.CreditBytes}
}

// Gateway returns the name of the gateway, which its tickets carry.
func (m *Manager) Gateway() string { return m.cfg.Gateway }

// Start starts the dispatcher, which runs until Stop. Cancelling ctx does not stop the dispatcher.
func (m *Manager) Start(ctx context.Context) {
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	go m.dispatch(ctx) // ends on Stop, which waits for it
}

// Drain refuses new samples, notifies every connected client, and returns nil when no sample is in
// flight, or the error of ctx when ctx ends before.
func (m *Manager) Drain(ctx context.Context) error {
	m.mu.Lock()
	if !m.draining {
		m.draining, m.core.draining = true, true
		m.noteDrained()
		m.wakeUp() // what waits for a dependency ends now
	}
	live := m.flow.Sessions()
	m.mu.Unlock()
	for _, s := range live {
		s.Send(&wire.Draining{})
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

// Stop stops the gateway. Stop closes the connections and answers the samples in flight of local
// Submit calls as cancelled; clients send the samples that have no result to the next gateway. Stop
// returns when no goroutine of the Manager runs any more.
func (m *Manager) Stop() {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		<-m.stopped
		return
	}
	m.closed, m.draining = true, true
	m.core.journal.spool = nil // what is cut off here goes on in the next life
	m.core.book.Wake()         // whoever waits for rewards sees that there will be none
	var fx effects
	now := time.Now()
	for _, e := range m.core.all() {
		m.core.abort(now, e, "the gateway stopped", &fx)
	}
	m.noteDrained()
	for _, s := range m.flow.Sessions() {
		// Taken away before the results go out: to a client its samples are not
		// cancelled, it sends them to the next gateway.
		if c := s.Cut(); c != nil {
			m.closing.Go(func() { _ = c.Close(wsconn.CloseGoingAway, "the gateway stopped") }) // it is going away either way
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

// apply does what the core asked for, without the mutex.
func (m *Manager) apply(fx effects) {
	for _, a := range fx.results {
		message := a.to.deliver(a.stored)
		if a.final > 0 {
			fx.final[a.final-1].Message = message
		}
	}
	m.record(fx)
	for _, f := range fx.released {
		f.Release()
	}
	for _, key := range fx.revoked {
		if err := m.queue.Revoke(context.Background(), key); err != nil {
			m.log.Debug("a ticket of an ended attempt was not revoked in the queue", "sample_id", key.ID, "error", err)
		}
	}
	if len(fx.results) > 0 || len(fx.released) > 0 {
		m.mu.Lock()
		m.noteDrained()
		m.mu.Unlock()
	}
	for _, b := range fx.breakers {
		m.tell(b)
	}
	for _, s := range fx.strangers {
		m.log.Warn("a worker's configuration of a reward differs from this gateway's; the worker gets no samples of the reward until both are the same",
			"worker", s.worker, "reward", shown(s.profile))
	}
	for _, fault := range fx.faults {
		m.log.Error("an invariant of the gateway's sample table is broken; please report this", "fault", fault)
	}
	for _, p := range fx.progress {
		m.tellProgress(p)
	}
	for _, l := range fx.failures {
		m.tellFailure(l)
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
	for _, st := range fx.over { // last: nothing else waits for a report
		m.report(st)
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

// InFlight returns the number of samples that are accepted and not answered.
func (m *Manager) InFlight() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.core.entries) - m.core.units
}

// Bytes returns the number of bytes of frames in memory, and the number of bytes granted as credit
// and not used yet.
func (m *Manager) Bytes() (held, granted int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flow.Bytes()
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
		m.core.heed(m.core.book.Age(now, name), &effects{}) // nothing ends by its age
		if n := r.done.trim(&m.cfg, now); n > 0 {
			m.metrics.forgotten.Add(float64(n))
		}
		for id, s := range r.sessions {
			if s.Sweep(now, m.cfg.KeepFor) {
				delete(r.sessions, id)
			}
		}
		if r.inflight == 0 && len(r.sessions) == 0 && len(r.done.byKey) == 0 && now.Sub(r.lastUse) > m.cfg.KeepFor {
			m.core.forget(r)
		}
	}
}

// profile resolves a reward's name to the profile and its policy.
func (m *Manager) profile(name string) (rewards.SamplePolicy, bool) {
	return m.cfg.OnSampleFailure[name], slices.Contains(m.cfg.Profiles, name)
}
