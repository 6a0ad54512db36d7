package workers

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Worker takes tickets for its free slots, scores each sample, and hands the
// result over before it lets the lease go.
type Worker struct {
	// Immutable after New.
	cfg      Config
	source   Source
	gateway  Gateway
	managers map[string]*rewards.Manager
	decoder  rewards.Decoder
	log      *slog.Logger
	metrics  *Metrics

	pulling  context.CancelFunc // ends the pullers: drain
	working  context.CancelFunc // ends the samples: stop
	ending   sync.WaitGroup     // the pullers and the heartbeat
	pullers  []*puller          // one for each queue
	started  time.Time          // set by New
	idle     chan struct{}      // capacity 1: a job has ended or was abandoned
	draining chan struct{}      // closed by Drain or Stop
	once     sync.Once

	mu        sync.Mutex
	free      int           // guarded by mu
	jobs      map[*job]bool // guarded by mu; true: abandoned
	abandoned int           // guarded by mu
	aside     time.Time     // it asks for nothing until then; guarded by mu
	reached   time.Time     // when a payload last came; guarded by mu
	unreached int           // claims in a row that found no gateway; guarded by mu
	scored    uint64        // guarded by mu
	failed    uint64        // guarded by mu
}

// puller takes the tickets of one queue. All pullers of a worker share its free slots: each
// asks for all of them, and what comes beyond them is handed back.
type puller struct {
	profile string
	queue   string
	changed chan struct{} // capacity 1: a slot is free

	asked  int                // of the Take that is open; guarded by the worker's mutex
	refile context.CancelFunc // ends the Take that is open; guarded by the worker's mutex
}

// Options are what a Worker needs from outside.
type Options struct {
	Config  Config
	Source  Source
	Gateway Gateway
	// Managers are the profiles it serves, by name; "" is the default one.
	Managers map[string]*rewards.Manager
	// Decoder turns media into pixels, once per attempt.
	Decoder rewards.Decoder
	Log     *slog.Logger // nil: discarded
	Metrics *Metrics     // nil: not counted
}

// New makes a worker. Start sets it going.
func New(o Options) (*Worker, error) {
	cfg := o.Config.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, source: o.Source, gateway: o.Gateway, managers: o.Managers, decoder: o.Decoder, log: o.Log, metrics: o.Metrics,
		idle: make(chan struct{}, 1), draining: make(chan struct{}),
		free: cfg.Slots, jobs: map[*job]bool{}, started: time.Now(),
	}
	for _, profile := range slices.Sorted(maps.Keys(w.managers)) {
		w.pullers = append(w.pullers, &puller{profile: profile, queue: queueOf(profile), changed: make(chan struct{}, 1)})
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.metrics == nil {
		w.metrics = NewMetrics(nil)
	}
	return w, nil
}

// Start sets the worker going. It runs until Stop; ctx gives it values only.
func (w *Worker) Start(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	pull, drain := context.WithCancel(work)
	w.working, w.pulling = stop, drain
	w.announce()
	w.ending.Go(func() {
		defer w.source.Close()
		var all sync.WaitGroup
		for _, p := range w.pullers {
			all.Go(func() { w.pull(pull, work, p) })
		}
		all.Wait()
	})
	w.ending.Go(func() { w.beat(work) })
}

// Drain takes no more samples and returns when those it has are answered, or when
// ctx ends; the error then says so.
func (w *Worker) Drain(ctx context.Context) error {
	w.once.Do(func() { close(w.draining) })
	if w.pulling != nil {
		w.pulling()
	}
	w.announce()
	for {
		w.mu.Lock()
		left := len(w.jobs) - w.abandoned
		w.mu.Unlock()
		if left <= 0 {
			w.ended() // another Drain may be waiting for the same
			return nil
		}
		select {
		case <-w.idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stopGrace is how long Stop waits for samples whose context has ended.
const stopGrace = 2 * time.Second

// Stop ends the worker. Samples that are being scored are given back for another
// worker. A scorer that ignores its context is left behind and logged, and so is a
// result that the gateway does not take.
func (w *Worker) Stop() {
	w.once.Do(func() { close(w.draining) })
	if w.working == nil {
		return
	}
	w.working()
	w.ending.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	if err := w.Drain(ctx); err != nil {
		w.log.Warn("samples did not end with their context and were left behind", "worker", w.cfg.ID, "error", err)
	}
	w.announce()
}

// Info describes the worker as it is now.
func (w *Worker) Info() wire.WorkerInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	info := wire.WorkerInfo{
		ID: w.cfg.ID, Slots: w.cfg.Slots, Busy: w.cfg.Slots - w.free, State: wire.WorkerReady, Version: w.cfg.Version,
		Scored: w.scored, Failed: w.failed, Host: w.cfg.Host, Devices: w.cfg.Devices, Models: w.cfg.Models,
		Started: w.started.Round(0),
	}
	for _, p := range w.pullers {
		info.Rewards = append(info.Rewards, p.profile)
		info.Profiles = append(info.Profiles, wire.ProfileInfo{Name: p.profile, Queue: p.queue, Capacity: info.Slots, Used: info.Busy})
	}
	select {
	case <-w.draining:
		info.State = wire.WorkerDraining
		return info
	default:
	}
	switch {
	case w.abandoned > w.cfg.MaxAbandoned:
		info.State = wire.WorkerSick
	case w.unreached > 0:
		info.State = wire.WorkerBroken
	}
	return info
}

func (w *Worker) announce() { w.source.Announce(w.Info()) }

// pull is the one goroutine that takes tickets of a queue: for exactly as many slots as
// are free, again whenever one more is.
func (w *Worker) pull(ctx, work context.Context, p *puller) {
	for ctx.Err() == nil {
		n, pause := w.wanted()
		if n == 0 {
			if !p.waitChange(ctx, pause) {
				return
			}
			continue
		}
		tctx, cancel := context.WithCancel(ctx)
		w.opened(p, n, cancel)
		leases, err := w.source.Take(tctx, p.queue, n)
		w.opened(p, 0, nil)
		cancel()
		for _, l := range leases {
			w.begin(work, l)
		}
		if err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "taking tickets failed; trying again", "worker", w.cfg.ID, "queue", p.queue, "error", err)
			p.waitChange(ctx, 200*time.Millisecond)
		}
	}
}

// wanted returns how many tickets to ask for; if none, how long to wait for a change.
func (w *Worker) wanted() (n int, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); w.aside.After(now) {
		return 0, w.aside.Sub(now)
	}
	return w.startable(), time.Hour
}

// startable returns how many samples may start now. The caller holds mu.
func (w *Worker) startable() int {
	if w.abandoned > w.cfg.MaxAbandoned {
		return 0
	}
	return w.free
}

// waitChange waits for a change or the pause; false when ctx ended.
func (p *puller) waitChange(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-p.changed:
	case <-t.C:
	}
	return true
}

func (w *Worker) opened(p *puller, n int, cancel context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.asked, p.refile = n, cancel
	if cancel != nil && w.startable() > n { // a slot was freed between the counting and the asking
		p.refile()
		p.refile = nil
	}
}

// stir wakes the pullers, and ends open Takes that ask for fewer than could
// start now. The caller holds mu.
func (w *Worker) stir() {
	for _, p := range w.pullers {
		if p.refile != nil && w.startable() > p.asked {
			p.refile()
			p.refile = nil
		}
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// avoidPause is how long a ticket rests that this worker must not take, or the worker
// where the ticket is in a hurry. It is at least as long and less than twice.
const avoidPause = 50 * time.Millisecond

// begin starts a lease on a slot, or hands it back.
func (w *Worker) begin(work context.Context, l Lease) {
	t := l.Ticket()
	if slices.Contains(t.Avoid, w.cfg.ID) {
		pause := avoidPause + rand.N(avoidPause) //nolint:gosec // a pause needs no secret randomness
		if t.Aside {                             // a faster one is free: the worker rests, not the ticket
			w.mu.Lock()
			w.aside = time.Now().Add(pause)
			w.mu.Unlock()
			pause = 0
		}
		l.Return(pause)
		return
	}
	w.mu.Lock()
	if w.startable() == 0 { // another queue's ticket has the slot, or a scorer overran
		w.mu.Unlock()
		l.Return(0)
		return
	}
	w.free--
	j := &job{lease: l, ticket: t, renewed: time.Now()}
	w.jobs[j] = false
	w.mu.Unlock()
	go w.score(work, j) // ends with the sample; Drain and Stop wait for it
}

// end frees the job's slot.
func (w *Worker) end(j *job) {
	w.mu.Lock()
	if w.jobs[j] {
		w.abandoned--
	}
	delete(w.jobs, j)
	w.free++
	w.stir()
	w.mu.Unlock()
	w.ended()
}

// ended wakes Drain: a job has ended, or nobody waits for it any more.
func (w *Worker) ended() {
	select {
	case w.idle <- struct{}{}:
	default:
	}
}

// announceEvery is how often a worker says that it lives.
const announceEvery = time.Second

// beat extends the leases of running jobs and announces the worker.
func (w *Worker) beat(ctx context.Context) {
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			w.announce()
			w.extend(ctx, now)
		}
	}
}

// extend renews the leases that have not been for one heartbeat. Most samples are answered
// before: the broker hears nothing of their leases but the end.
func (w *Worker) extend(ctx context.Context, now time.Time) {
	w.mu.Lock()
	var leases []Lease
	for j, abandoned := range w.jobs {
		if !abandoned && !j.done && now.Sub(j.renewed) >= w.cfg.Heartbeat {
			j.renewed = now
			leases = append(leases, j.lease)
		}
	}
	w.mu.Unlock()
	for _, l := range leases {
		if err := l.Extend(ctx); err != nil {
			w.log.WarnContext(ctx, "lease not extended; another worker may get the sample", "sample_id", l.Ticket().ID, "worker", w.cfg.ID, "error", err)
		}
	}
}
