package workers

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Worker takes tickets for its free places, scores each sample, and hands over the result before it
// releases the lease.
type Worker struct {
	// Immutable after New.
	cfg     Config
	source  Source
	gateway Gateway
	bays    []*bay             // one for each queue, by name
	missing []wire.ProfileInfo // profiles that it cannot score
	decoder rewards.Decoder
	log     *slog.Logger
	metrics *Metrics
	tracer  *tracing.Tracer // nil: nothing is traced

	pulling  context.CancelFunc // ends the pullers: drain
	working  context.CancelFunc // ends the samples: stop
	ending   sync.WaitGroup     // the pullers, the heartbeat, and what looks at dependencies
	pulled   chan struct{}      // closed when all pullers have returned
	started  time.Time          // set by New
	idle     chan struct{}      // capacity 1: a job has ended or was abandoned
	draining chan struct{}      // closed by Drain or Stop
	once     sync.Once

	mu        sync.Mutex
	jobs      map[*job]bool // guarded by mu; true: abandoned
	bytes     int64         // of the samples that it has; guarded by mu
	aside     time.Time     // it asks for nothing until then; guarded by mu
	reached   time.Time     // when a payload last came; guarded by mu
	unreached int           // claims in a row that found no gateway; guarded by mu
	scored    uint64        // guarded by mu
	failed    uint64        // guarded by mu
}

// Options are the dependencies of a Worker.
type Options struct {
	Config  Config
	Source  Source
	Gateway Gateway
	// Profiles are the profiles that the worker serves, by name; "" is the default profile. Names
	// with the same queue are one profile.
	Profiles map[string]Profile
	// Decoder decodes media into pixels, once for each attempt.
	Decoder rewards.Decoder
	Log     *slog.Logger // nil: no log
	Metrics *Metrics     // nil: not counted
	// Tracer gets the spans of the worker's operations. nil: no tracing.
	Tracer *tracing.Tracer
}

// New returns a worker that is not started yet; call Start. New fails if Config is invalid.
func New(o Options) (*Worker, error) {
	cfg := o.Config.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &Worker{
		cfg: cfg, source: o.Source, gateway: o.Gateway, decoder: o.Decoder, log: o.Log, metrics: o.Metrics, tracer: o.Tracer,
		idle: make(chan struct{}, 1), pulled: make(chan struct{}), draining: make(chan struct{}), jobs: map[*job]bool{}, started: time.Now(),
	}
	for _, name := range slices.Sorted(maps.Keys(o.Profiles)) {
		p := o.Profiles[name]
		if p.Missing != "" {
			w.missing = append(w.missing, wire.ProfileInfo{Name: name, Queue: p.Queue, State: wire.WorkerMissing, Waits: p.Missing})
			continue
		}
		if i := slices.IndexFunc(w.bays, func(b *bay) bool { return b.now.Load().Queue == p.Queue }); i >= 0 {
			w.bays[i].names = append(w.bays[i].names, name)
			continue
		}
		places := rewards.NewPlaces(p.Manager, cfg.Index, cfg.Of)
		if p.Capacity > 0 {
			places = rewards.FixedPlaces(p.Manager, p.Capacity)
		}
		b := &bay{
			name: name, names: []string{name}, places: places,
			changed: make(chan struct{}, 1), used: map[string]int{}, reliant: p.Manager.Relies(),
		}
		b.now.Store(&p)
		w.bays = append(w.bays, b)
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.metrics == nil {
		w.metrics = NewMetrics(nil)
	}
	return w, nil
}

// Start starts the worker, which runs until Stop. Cancelling ctx does not stop the worker.
func (w *Worker) Start(ctx context.Context) {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	pull, drain := context.WithCancel(work)
	w.working, w.pulling = stop, drain
	w.announce()
	for _, b := range w.bays {
		if b.reliant {
			w.ending.Go(func() { w.watch(work, b) })
		}
	}
	w.ending.Go(func() {
		defer w.source.Close()
		var all sync.WaitGroup
		for _, b := range w.bays {
			all.Go(func() { w.pull(pull, work, b) })
		}
		all.Wait()
		close(w.pulled)
	})
	w.ending.Go(func() { w.beat(work) })
}

// Replace replaces the manager of a profile by another manager with the same components
// (rewards.Manager.With), and the profile's queue by that of p. Samples that the worker has already
// are finished with the old manager. Replace may be called while the worker runs. An error means
// that nothing has changed.
func (w *Worker) Replace(name string, p Profile) error {
	i := slices.IndexFunc(w.bays, func(b *bay) bool { return slices.Contains(b.names, name) })
	if i < 0 {
		return fmt.Errorf("workers: %s serves no profile %q", w.cfg.ID, name)
	}
	b := w.bays[i]
	if from := b.now.Load().Queue; from != p.Queue {
		if err := w.source.Move(from, p.Queue); err != nil {
			return fmt.Errorf("workers: %s: %w", w.cfg.ID, err)
		}
	}
	w.mu.Lock()
	b.now.Store(&p)
	b.places.Follow(p.Manager)
	if b.refile != nil { // it asks again, at the new queue
		b.refile()
		b.refile = nil
	}
	b.tell()
	w.mu.Unlock()
	w.announce()
	return nil
}

// Drain takes no more samples, and returns nil when the worker's samples are answered, or the error
// of ctx when ctx ends before.
func (w *Worker) Drain(ctx context.Context) error {
	w.once.Do(func() { close(w.draining) })
	if w.pulling != nil {
		w.pulling()
	}
	w.announce()
	if w.pulling != nil { // what a puller was handed at the last moment is one of those
		select {
		case <-w.pulled:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		w.mu.Lock()
		left := 0
		for _, abandoned := range w.jobs {
			if !abandoned {
				left++
			}
		}
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

// Stop stops the worker. Unfinished samples are handed back for other workers. Stop waits up to 2 s
// for scorers whose context is cancelled; then it logs a warning and returns.
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
		w.log.Warn("scorers did not stop within 2 s of their cancellation; the worker stops, and other workers score the unfinished samples", "worker", w.cfg.ID, "error", err)
	}
	w.announce()
}

// Info returns the current state of the worker.
func (w *Worker) Info() wire.WorkerInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	info := wire.WorkerInfo{
		ID: w.cfg.ID, Busy: len(w.jobs), State: wire.WorkerReady, Version: w.cfg.Version,
		Scored: w.scored, Failed: w.failed, Host: w.cfg.Host, Devices: w.cfg.Devices, Models: w.cfg.Models,
		Started: w.started.Round(0),
	}
	sick := len(w.bays) > 0
	for _, b := range w.bays {
		p := w.profileInfo(b)
		info.Profiles = append(info.Profiles, p)
		sick = sick && p.State == wire.WorkerSick
	}
	info.Profiles = append(info.Profiles, w.missing...)
	select {
	case <-w.draining:
		info.State = wire.WorkerDraining
		return info
	default:
	}
	switch {
	case sick:
		info.State = wire.WorkerSick
	case w.unreached > 0:
		info.State = wire.WorkerBroken
	}
	return info
}

func (w *Worker) announce() { w.source.Announce(w.Info()) }

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
			w.log.WarnContext(ctx, "the lease of a sample was not extended; another worker may score the sample as well", "sample_id", l.Ticket().ID, "worker", w.cfg.ID, "error", err)
		}
	}
}
