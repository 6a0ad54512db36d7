package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/fabric"
	"github.com/rewardloop/rewardloop/internal/slot"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Options are what a node is made from.
type Options struct {
	Config *config.Config
	Log    *slog.Logger // nil: discarded
	// Version is announced by workers and shown on the status page.
	Version string
	// Scorers are registered beside those that ship.
	Scorers []rewards.Spec
	// Examine is where the first samples of a step are printed (loop.num_examine); nil:
	// nowhere.
	Examine io.Writer
	// NoServer leaves the HTTP edge out: samples come from inside the process alone,
	// and Listen must not be called.
	NoServer bool
}

// Node is one process: gateway, workers, engine and edge.
type Node struct {
	// Loop is the gateway.
	Loop *loop.Manager

	cfg      *config.Config
	log      *slog.Logger
	version  string
	noServer bool
	scorers  *Scorers
	managers map[string]*rewards.Manager
	decoder  *media.Decoder
	metrics  *prometheus.Registry
	fabric   *fabric.Fabric
	workers  []*workers.Worker
	sources  []*fabric.Source
	server   *server.Server // nil with NoServer
	test     *selfTest
	// printing keeps examined samples apart.
	printing sync.Mutex
	examined io.Writer
	// local is where functions in Python find the reward router, and its key; nil
	// where none of them may ask. The server closes it once it serves it.
	local    net.Listener
	localKey string
}

// New builds the rewards. Nothing runs yet; Close or Stop gives back what it made.
func New(o Options) (*Node, error) {
	n := &Node{cfg: o.Config, log: o.Log, version: o.Version, noServer: o.NoServer, examined: o.Examine, metrics: prometheus.NewRegistry()}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if len(o.Config.Profiles) == 0 {
		return nil, errors.New("the configuration names no reward: write reward.custom_reward_function or reward.reward_functions")
	}
	var err error
	if n.scorers, err = NewScorers(o.Config); err != nil {
		return nil, err
	}
	for _, spec := range o.Scorers {
		n.scorers.Registry.Register(spec)
	}
	n.metrics.MustRegister(devices{n.scorers}, asked{n.scorers.Engines})
	if err = n.openRouter(); err != nil {
		return nil, errors.Join(err, n.scorers.Close())
	}
	if n.managers, err = config.BuildManagers(n.cfg, n.scorers.Registry); err != nil {
		return nil, errors.Join(err, n.closeRouter(), n.scorers.Close())
	}
	if m := n.managers[config.DefaultProfile]; m != nil {
		n.managers[""] = m // a sample that names no reward means the default one
	}
	d := o.Config.Pool.Decode
	n.decoder, err = media.New(media.Config{MaxPixels: d.MaxPixels, MaxFrames: d.MaxFrames, BudgetBytes: d.BudgetBytes})
	if err != nil {
		return nil, errors.Join(err, n.closeScorers())
	}
	return n, nil
}

// Start brings everything up. On an error what was started is stopped again.
func (n *Node) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			n.Stop()
		}
	}()
	if err := n.warm(ctx); err != nil {
		return err
	}
	if n.fabric, err = fabric.Open(ctx, fabric.Config{Log: n.log, Addressed: n.cfg.Loop.Dispatch.Policy == config.DispatchRandomBlind}); err != nil {
		return err
	}
	if n.test, err = newSelfTest(n.scorers); err != nil {
		return err
	}
	n.managers[selfTestProfile] = n.test.manager
	if err := n.startLoop(ctx); err != nil {
		return err
	}
	if err := n.startWorkers(ctx); err != nil {
		return err
	}
	if n.noServer && n.local == nil {
		return nil
	}
	n.server, err = server.New(server.Options{
		Config: n.serverConfig(), Loop: n.Loop, Presence: n.fabric, Profiles: n.profiles(), Gatherer: n.metrics,
		Metrics: n.metrics, Log: n.log, Version: n.version,
		SelfTest: n.SelfTest, Router: n.scorers.Engines.Router(),
	})
	if err != nil || n.local == nil {
		return err
	}
	err = n.server.ServeRouter(n.local, n.localKey)
	if err == nil {
		n.local = nil // the server's now
	}
	return err
}

// warm readies every reward's scorers: child processes are up and have read their
// canary before the first sample comes.
func (n *Node) warm(ctx context.Context) error {
	for _, name := range sortedKeys(n.managers) {
		if name == "" {
			continue // the default one, which is there by its name as well
		}
		if err := n.managers[name].Warm(ctx); err != nil {
			return fmt.Errorf("reward %q is not ready: %w", name, err)
		}
	}
	return nil
}

func (n *Node) startLoop(ctx context.Context) error {
	l := n.cfg.Loop
	cfg := loop.Config{
		MaxBytes: l.MaxBytes, MessageBytes: l.MessageBytes, CreditBytes: l.CreditBytes, CreditSamples: int64(l.CreditSamples),
		MaxAttempts: l.MaxAttempts, SampleTimeout: l.SampleTimeout, MaxSampleTimeout: l.MaxSampleTimeout,
		StepTimeout: l.StepTimeout, ClaimTimeout: l.ClaimTimeout, Weights: l.RunWeights, KeepResults: l.ResultsKept,
		KeepBytes: l.ResultsBytes, KeepFor: l.ResultsAge, Profiles: sortedKeys(n.managers),
		OnSampleFailure: map[string]rewards.SamplePolicy{}, NumExamine: l.NumExamine,
		StepBytes: l.StepBytes, StepAge: l.StepAge, OnStepDeadline: l.OnStepDeadline,
		Dispatch: loop.Dispatch{Policy: l.Dispatch.Policy, BackupAfter: l.Dispatch.BackupAfter, BackupShare: l.Dispatch.BackupShare},
	}
	for name, p := range n.cfg.Profiles {
		if p.GroupByPrompt {
			cfg.GroupByPrompt = append(cfg.GroupByPrompt, name)
			if name == config.DefaultProfile {
				cfg.GroupByPrompt = append(cfg.GroupByPrompt, "")
			}
		}
	}
	for _, name := range cfg.Profiles {
		if n.managers[name].Grouped() {
			cfg.GroupProfiles = append(cfg.GroupProfiles, name)
		}
	}
	for name, p := range n.cfg.Profiles {
		cfg.OnSampleFailure[name] = p.OnSampleFailure
	}
	cfg.OnSampleFailure[""] = cfg.OnSampleFailure[config.DefaultProfile]
	if l.Deterministic {
		cfg.Dispatch.BackupAfter = 0 // of two answers the one that is first would count
	}
	var err error
	n.Loop, err = loop.New(loop.Options{Config: cfg, Engine: n.fabric, Presence: n.fabric, Log: n.log, Metrics: n.metrics, StepArrived: n.scorers.Readers.Flush, Examine: n.examine})
	if err != nil {
		return err
	}
	n.Loop.Start(ctx)
	return nil
}

func (n *Node) startWorkers(ctx context.Context) error {
	w := n.cfg.Loop.Workers
	slots := w.SlotsFor(n.cfg.NumWorkers, runtime.NumCPU())
	metrics := workers.NewMetrics(n.metrics)
	for i := range n.cfg.NumWorkers {
		id := "w" + strconv.Itoa(i)
		source, err := n.fabric.NewSource(id)
		if err != nil {
			return err
		}
		n.sources = append(n.sources, source)
		worker, err := workers.New(workers.Options{
			Config: workers.Config{
				ID: id, Slots: slots, MaxAbandoned: w.AbandonedFor(slots), BreakerFailures: w.BreakerFailures,
				BreakerPause: w.BreakerPause, BreakerMaxPause: w.BreakerMaxPause, Version: n.version,
			},
			Source: source, Gateway: n.Loop, Managers: n.managers, Decoder: n.decoder, Log: n.log, Metrics: metrics,
		})
		if err != nil {
			return err
		}
		n.workers = append(n.workers, worker)
		worker.Start(ctx)
	}
	return nil
}

// profiles describes the rewards that requests may ask for. The self-test's is none.
func (n *Node) profiles() []server.Profile {
	var out []server.Profile
	for _, name := range sortedKeys(n.cfg.Profiles) {
		p := n.cfg.Profiles[name]
		d := server.Profile{Name: name, Aggregation: string(p.Aggregation)}
		for _, t := range p.Terms {
			d.Terms = append(d.Terms, server.Term{Key: t.Key, Scorer: t.Path, Weight: t.Weight, Required: t.Required})
		}
		for _, f := range n.managers[name].Columns() {
			d.Extra = append(d.Extra, wire.ExtraKey{Name: f.Name, Kind: f.Kind})
		}
		out = append(out, d)
		if name == config.DefaultProfile {
			d.Name = ""
			out = append(out, d)
		}
	}
	return out
}

// pickleBytes bounds a pickled body whatever body_bytes says: what the decoder makes of
// it is bounded by the same figure.
const pickleBytes = 64 << 20

func (n *Node) serverConfig() server.Config {
	s, l := n.cfg.Server, n.cfg.Loop
	return server.Config{
		Listen: s.Listen, TokenFile: s.TokenFile, TLSCert: s.TLSCert, TLSKey: s.TLSKey, ClientCA: s.ClientCA,
		PickleBytes: min(s.BodyBytes, pickleBytes), JSONBytes: s.BodyBytes, BodiesBytes: max(l.MaxBytes, 2*s.BodyBytes),
		SampleTimeout: l.HTTPSampleTimeout, ComputeTimeout: l.ComputeTimeout, MaxSampleTimeout: l.MaxSampleTimeout,
		// A sample beyond message_bytes is read to its end and answered by name; only
		// one far beyond costs its sender the connection.
		Stream: wsconn.Config{MessageBytes: 4 * l.MessageBytes},
	}
}

// SelfTest sends a known picture through the loop and reports an error unless it
// comes back with its known score. The node must have been started.
func (n *Node) SelfTest(ctx context.Context) error { return n.test.run(ctx, n.Loop) }

// Listen opens the edge and returns its address.
func (n *Node) Listen(ctx context.Context) (net.Addr, error) {
	if err := n.server.Start(ctx, nil); err != nil {
		return nil, err
	}
	return n.server.Addr(), nil
}

// Children says how the scorers' child processes are; see Scorers.Children.
func (n *Node) Children() map[string]slot.Stats { return n.scorers.Children() }

// Drain refuses new samples and returns when nothing is in flight, or when ctx or
// the configured drain_timeout ends.
func (n *Node) Drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(n.cfg.Loop.DrainTimeout, time.Millisecond))
	defer cancel()
	var both errgroup.Group
	both.Go(func() error {
		if err := n.Loop.Drain(ctx); err != nil {
			return fmt.Errorf("%d samples were still in flight: %w", n.Loop.InFlight(), err)
		}
		return nil
	})
	both.Go(func() error { return n.server.Drain(ctx) })
	return both.Wait()
}

// stopTimeout is how long Stop lets requests finish; after a Drain there are none.
const stopTimeout = 2 * time.Second

// Stop takes everything down, the edge first and the scorers last.
func (n *Node) Stop() {
	if n.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := n.server.Stop(ctx); err != nil {
			n.log.Warn("stopping the edge", "error", err)
		}
	}
	if n.Loop != nil {
		n.Loop.Stop()
	}
	done := make(chan struct{}, len(n.workers))
	for _, w := range n.workers {
		go func() { w.Stop(); done <- struct{}{} }() // waited for below
	}
	for range n.workers {
		<-done
	}
	for _, s := range n.sources {
		s.Disconnect()
	}
	if n.fabric != nil {
		n.fabric.Close()
	}
	if err := n.closeScorers(); err != nil {
		n.log.Warn("closing the scorers", "error", err)
	}
}

// closeScorers gives back what the rewards hold. "" is another name of the default.
func (n *Node) closeScorers() error {
	var errs []error
	for name, m := range n.managers {
		if name != "" {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, n.closeRouter(), n.scorers.Close())...)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
