package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/otlp"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// parts are what every process that scores has, with a gateway or without one.
type parts struct {
	cfg      *config.Config
	log      *slog.Logger
	warmed   time.Duration // what warm took
	version  string
	traces   *otlp.Exporter // nil: nothing is traced
	name     string         // among all processes; "": there are no others
	scorers  *Scorers
	managers map[string]*rewards.Manager
	lacking  map[string]config.FaultsError // profiles that this machine cannot score, of a process beside others
	metrics  *prometheus.Registry
	buffers  *wire.Buffers
	test     *selfTest
	workers  []*workers.Worker
	sources  []*queue.Source
	lookout  lookout
	presence loop.Presence // nil: there is no gateway in this process
	load     func() (*config.Config, error)
	// colocated shares the memory of the cards with a trainer; nil: nobody does.
	colocated *colocated
	profiler  *profiler    // nil: nothing is profiled
	calls     bool         // functions of users are called with known samples at start
	fleet     *queue.Fleet // nil: nothing is asked by HTTP, or there are no other processes
	// local is where functions in Python find the reward router, and its key; nil
	// where none of them may ask. The server closes it once it serves it.
	local    net.Listener
	localKey string

	reloading sync.Mutex
	running   *config.Config             // cfg, with what was applied since; guarded by reloading
	serving   map[string]workers.Profile // what the workers serve; from startWorkers on guarded by reloading
}

// newParts builds the rewards.
func newParts(o Options) (_ *parts, err error) {
	p := &parts{cfg: o.Config, running: o.Config, load: o.Load, log: o.Log, version: o.Version, metrics: prometheus.NewRegistry(), buffers: new(wire.Buffers)}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	buildMetric(p.metrics, p.version)
	p.metrics.MustRegister(goCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if len(o.Config.Profiles) == 0 {
		return nil, errors.New("the configuration names no reward: write reward.custom_reward_function or reward.reward_functions")
	}
	if p.traces, err = openTraces(p); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.closeTraces()
		}
	}()
	if o.beside && p.cfg.Pool.Colocated {
		return nil, errors.New("pool.colocated needs a process that is gateway and worker: start rewardloop serve on the machine of the trainer's cards, in place of rewardloop worker")
	}
	if o.NoServer && p.cfg.Pool.Colocated { // nobody can tell it of a phase
		cfg := *p.cfg
		cfg.Pool.Colocated = false
		p.cfg = &cfg
	}
	if p.scorers, err = NewScorers(p.cfg, p.log); err != nil {
		return nil, err
	}
	for _, spec := range o.Scorers {
		p.scorers.Registry.Register(spec)
	}
	scorerMetrics(p.metrics, p.scorers)
	outboundMetrics(p.metrics, p.scorers.Engines)
	if err = p.openRouter(); err != nil {
		return nil, errors.Join(err, p.scorers.Close())
	}
	if o.beside {
		if p.managers, p.lacking, err = config.BuildThere(p.cfg, p.scorers.Registry); err == nil {
			err = p.leaveUnplanned()
		}
	} else {
		p.managers, err = config.BuildManagers(p.cfg, p.scorers.Registry)
	}
	if err != nil {
		return nil, errors.Join(err, p.closeRouter(), p.scorers.Close())
	}
	if p.cfg.Pool.Colocated {
		p.colocated = newColocated(p.log, p.restAll, p.scorers.Engines.wake, p.cfg.Loop.ResumeGrace)
		err = p.adjust(func(c *rewards.ManagerConfig) { c.Gate = p.colocated })
	}
	if err != nil {
		return nil, errors.Join(err, p.closeRouter(), p.scorers.Close())
	}
	if p.profiler = newProfiler(p.cfg, p.scorers); p.profiler != nil {
		if err = p.adjust(func(c *rewards.ManagerConfig) { c.Begun = p.profiler.begun }); err != nil {
			return nil, errors.Join(err, p.closeRouter(), p.scorers.Close())
		}
	}
	extraMetrics(p.metrics, p.managers)
	if m := p.managers[config.DefaultProfile]; m != nil {
		p.managers[""] = m // a sample that names no reward means the default one
	}
	if p.test, err = newSelfTest(p.scorers); err != nil {
		return nil, errors.Join(err, p.closeScorers())
	}
	p.managers[selfTestProfile] = p.test.manager
	return p, nil
}

// adjust changes the settings of every reward.
func (p *parts) adjust(how func(*rewards.ManagerConfig)) error {
	for name, m := range p.managers {
		changed, err := m.With(how)
		if err != nil {
			return fmt.Errorf("reward %q: %w", name, err)
		}
		p.managers[name] = changed
	}
	return nil
}

// goCollector is what Go's runtime tells of itself, with the memory that the latest collection
// found in use.
func goCollector() prometheus.Collector {
	return collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{
		Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`),
	}))
}

// warm readies every reward's scorers: child processes are up and have read their
// canary before the first sample comes.
func (p *parts) warm(ctx context.Context) error {
	begun := time.Now()
	defer func() { p.warmed = time.Since(begun) }()
	for _, name := range sortedKeys(p.managers) {
		if name == "" {
			continue // the default one, which is there by its name as well
		}
		if err := p.managers[name].Warm(ctx); err != nil {
			return fmt.Errorf("reward %q is not ready: %w", name, err)
		}
	}
	return nil
}

// startWorkers starts the workers of this process, each with a source of its own.
func (p *parts) startWorkers(ctx context.Context, connect func(worker string, queues []string) (*queue.Source, error), gateway workers.Gateway) error {
	if p.cfg.NumWorkers > 0 {
		p.logCapacities(ctx)
		p.lookOut(ctx)
	}
	metrics, served, queues := workers.NewMetrics(p.metrics), p.served(), p.queues(p.cfg)
	profiles, names := map[string]workers.Profile{}, map[string]bool{}
	for name, m := range served {
		profiles[name] = workers.Profile{Manager: m, Queue: queues[name], Config: digest(p.cfg.Profiles[cmp.Or(name, config.DefaultProfile)])}
		names[queues[name]] = true
	}
	for name, why := range p.lacking {
		p.log.ErrorContext(ctx, "this process cannot score a reward, because this machine lacks what the reward needs; install what is missing and restart the process",
			"reward", name, "reason", why)
		profiles[name] = workers.Profile{Queue: queues[name], Missing: why.Error()}
	}
	p.serving = profiles
	for i := range p.cfg.NumWorkers {
		cfg := p.cfg.Workers
		cfg.ID, cfg.Index, cfg.Of, cfg.Version = "w"+strconv.Itoa(i), i, p.cfg.NumWorkers, p.version
		cfg.MaxBytes, cfg.Heartbeat = p.workerBytes(), p.cfg.Queue.Lease/3
		if p.name != "" {
			cfg.ID = p.name + "-" + cfg.ID
			cfg.Host = hostName()
			cfg.Devices, cfg.Models = p.scorers.Readers.Devices.uses()
		}
		s, err := connect(cfg.ID, slices.Sorted(maps.Keys(names)))
		if err != nil {
			return err
		}
		p.sources = append(p.sources, s)
		worker, err := workers.New(workers.Options{
			Config: cfg, Source: s, Gateway: gateway, Profiles: profiles, Decoder: p.scorers.Readers.Decoder, Log: p.log, Metrics: metrics, Tracer: p.traces.Tracer(),
		})
		if err != nil {
			return err
		}
		p.workers = append(p.workers, worker)
		worker.Start(ctx)
	}
	return nil
}

// joinFleet has the limits and breakers of what is asked by HTTP hold for all processes
// together.
func (p *parts) joinFleet(ctx context.Context, open func(context.Context) (*queue.Fleet, error)) (err error) {
	if !p.scorers.Engines.asks() {
		return nil
	}
	if p.fleet, err = open(ctx); err != nil {
		return err
	}
	p.scorers.Engines.transport.Join(p.fleet, p.cfg.NumWorkers == 0)
	return nil
}

// served are the managers that the workers of this process have.
func (p *parts) served() map[string]*rewards.Manager {
	only := p.cfg.Queue.Rewards
	if len(only) == 0 {
		return p.managers
	}
	own := maps.Clone(p.managers)
	maps.DeleteFunc(own, func(name string, _ *rewards.Manager) bool {
		return name != selfTestProfile && !slices.Contains(only, name) && (name != "" || !slices.Contains(only, config.DefaultProfile))
	})
	return own
}

// stopWorkers ends the workers, all at once, and then their connections.
func (p *parts) stopWorkers() {
	var all sync.WaitGroup
	for _, w := range p.workers {
		all.Go(w.Stop)
	}
	all.Wait()
	for _, s := range p.sources {
		s.Disconnect()
	}
}

// closeScorers gives back what the rewards hold. "" is another name of the default.
func (p *parts) closeScorers() error {
	p.stopLooking()
	if p.profiler != nil {
		p.profiler.close()
	}
	var errs []error
	for name, m := range p.managers {
		if name != "" {
			errs = append(errs, m.Close())
		}
	}
	errs = append(errs, p.closeRouter(), p.scorers.Close())
	if p.fleet != nil {
		p.fleet.Close() // after those who share by it
	}
	return errors.Join(errs...)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// openRouter opens the port where functions in Python find the reward router, and
// writes its address into the configuration. The port must be known before they are
// made; it is served with the HTTP server, whatever that listens on and asks for. Its key
// lives as long as this process.
func (p *parts) openRouter() error {
	if !asksRouter(p.cfg) {
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("the reward router's port: %w", err)
	}
	p.local, p.localKey = ln, rand.Text()
	cfg := *p.cfg // whoever made it may use it again
	cfg.RouterAddress, cfg.RouterKey = ln.Addr().String(), p.localKey
	p.cfg = &cfg
	return nil
}

// asksRouter reports whether a function in Python has a reward model beside it.
func asksRouter(c *config.Config) bool {
	for _, p := range c.Profiles {
		for _, t := range p.Components {
			if p.EngineOf(t) != "" && t.Scorer == config.PythonScorer {
				return true
			}
		}
	}
	return false
}

// closeRouter closes a port that nobody serves yet.
func (p *parts) closeRouter() error {
	if p.local == nil {
		return nil
	}
	ln := p.local
	p.local = nil
	return ln.Close()
}
