package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/queue/acl"
	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
)

// Options are the parameters of New and NewWorker.
type Options struct {
	Config *config.Config
	Log    *slog.Logger // nil: discarded
	// Version is announced by workers and shown on the status page.
	Version string
	// Scorers are registered in addition to those that rewardloop contains.
	Scorers []rewards.Spec
	// Load reads the configuration again, for Reload. Nil: Reload returns ErrNoReload.
	Load func() (*config.Config, error)
	// Examine gets a description of the first samples of each step (loop.num_examine). Nil: none.
	Examine io.Writer
	// NoServer omits the HTTP server: samples come only from inside the process, and Listen must
	// not be called. Functions are not called with known samples.
	NoServer bool

	// StorePath is the file of results if the configuration sets none. Empty: no results are kept.
	StorePath string

	// beside says that other processes score as well: a reward for which this machine lacks
	// something is left to them, and is no reason not to start.
	beside bool
}

// Node is a process with gateway, workers, queue and HTTP routes.
type Node struct {
	*parts

	// Loop is the gateway.
	Loop *loop.Manager

	noServer bool
	queue    *queue.Queue
	spool    *spool.Spool // nil: nothing survives the process
	storeAt  string
	recorder *recorder       // nil: results are not kept
	key      *payload.Key    // signs tickets for workers of other processes; nil: none can join
	claims   *payload.Server // gives them what they claim; likewise
	others   *payload.Client // what the workers of this process claim of other gateways; likewise
	server   *server.Server  // nil with NoServer
	// printing keeps examined samples apart.
	printing sync.Mutex
	examined io.Writer
}

// New builds the rewards, and starts nothing. Stop releases what New has created.
func New(o Options) (*Node, error) {
	p, err := newParts(o)
	if err != nil {
		return nil, err
	}
	p.calls = !o.NoServer && !o.Config.Pool.Colocated
	return &Node{parts: p, noServer: o.NoServer, examined: o.Examine, storeAt: cmp.Or(o.Config.Store.Path, o.StorePath)}, nil
}

// Start starts everything except the listener. After an error everything that was started is
// stopped.
func (n *Node) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			n.Stop()
		}
	}()
	if n.cfg.NumWorkers > 0 { // else whoever scores readies its own
		if err := n.scorers.Engines.start(n.scorers.Readers.Devices.book); err != nil {
			return err
		}
		if n.colocated == nil { // else the trainer has the memory
			if err := n.warm(ctx); err != nil {
				return err
			}
		}
	}
	if err := n.openQueue(ctx); err != nil {
		return err
	}
	if err := n.openSpool(); err != nil {
		return err
	}
	if err := n.startLoop(ctx); err != nil {
		return err
	}
	if err := n.openClaims(); err != nil {
		return err
	}
	if err := n.startWorkers(ctx, n.queue.NewSource, route{n.Loop.Gateway(), n.Loop, n.others}); err != nil {
		return err
	}
	if n.noServer && n.local == nil {
		return nil
	}
	o := server.Options{
		Config: n.serverConfig(), Loop: n.Loop, Presence: n.queue, Profiles: n.profiles(), Gatherer: n.metrics,
		Metrics: n.metrics, Log: n.log, Version: n.version,
		SelfTest: n.SelfTest, Router: n.scorers.Engines.Router(), Engines: n.scorers.Engines.Servers,
		Store: n.recorder.opened,
	}
	if n.claims != nil {
		o.Claims = n.claims
	}
	if n.load != nil {
		o.Reload = n.Reload
	}
	n.server, err = server.New(o)
	if err != nil || n.local == nil {
		return err
	}
	err = n.server.ServeRouter(n.local, n.localKey)
	if err == nil {
		n.local = nil // the server's now
	}
	return err
}

// openQueue starts NATS, or connects to it. Where workers of other processes may
// join, the gateway has a name that no other has, and a key for its tickets.
func (n *Node) openQueue(ctx context.Context) error {
	cfg, err := queueConfig(n.cfg, acl.Gateway)
	if err != nil {
		return err
	}
	cfg.Log = n.log
	if n.cfg.Queue.Networked() {
		cfg.Metrics = n.metrics
	}
	if n.cfg.Queue.Networked() {
		n.key = payload.NewKey()
		n.name = lifeName(cfg.Name)
		cfg.Name, cfg.Sign = n.name, signer(n.key, n.cfg.Queue.ClaimTTL)
	}
	if n.queue, err = queue.Open(ctx, cfg); err != nil || n.key == nil {
		return err
	}
	if n.others, err = n.claimClient(n.queue.Alive); err != nil {
		return err
	}
	return n.joinFleet(ctx, n.queue.Fleet)
}

// openClaims answers workers of other processes.
func (n *Node) openClaims() (err error) {
	if n.key == nil {
		return nil
	}
	n.queue.OnRestored(n.Loop.Republish)
	n.claims, err = payload.NewServer(payload.ServerOptions{
		Gateway: n.Loop, Name: n.name, Key: n.key, Version: n.version,
		Lost: n.Loop.Lost, Log: n.log, Metrics: n.metrics,
	})
	return err
}

func (n *Node) startLoop(ctx context.Context) error {
	cfg := n.cfg.Loop.Config
	cfg.Gateway, cfg.Profiles, cfg.Queues, cfg.OnSampleFailure = n.name, sortedKeys(n.managers), n.queues(n.cfg), map[string]rewards.SamplePolicy{}
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
	if n.cfg.Loop.Deterministic {
		cfg.Dispatch.BackupAfter = 0 // of two answers the one that is first would count
	}
	var phase func(ctx context.Context, run, client, name string) error
	if n.colocated != nil {
		phase = n.colocated.enter
	}
	var kept loop.Recorder
	if n.recorder = n.openStore(ctx, n.storeAt); n.recorder != nil {
		kept = n.recorder
	}
	err := n.newLoop(ctx, loop.Options{Phase: phase, Recorder: kept, Config: cfg, Queue: n.queue, Presence: n.queue, Log: n.log, Metrics: n.metrics, Tracer: n.traces.Tracer(), StepArrived: n.scorers.Readers.Devices.Flush, Examine: n.examine})
	if err != nil {
		return err
	}
	n.presence = n.queue
	if c := n.colocated; c != nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		c.connected, c.stop = n.Loop.Connected, cancel
		c.forgetting.Go(func() { c.forget(ctx) }) // ends with Stop
	}
	n.Loop.Start(ctx)
	return nil
}

// profiles describes the rewards that requests may ask for. The self-test's is none. The caller
// holds reloading, or nothing serves yet.
func (n *Node) profiles() []server.Profile {
	var out []server.Profile
	for _, name := range sortedKeys(n.running.Profiles) {
		p := n.running.Profiles[name]
		d := server.Profile{Name: name, Aggregation: string(p.Aggregation)}
		for _, t := range p.Components {
			d.Components = append(d.Components, server.Component{Key: t.Key, Scorer: t.ShownPath(), Weight: t.Weight, Required: t.Required})
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

func (n *Node) serverConfig() server.Config {
	cfg, l := n.cfg.Server, n.cfg.Loop
	cfg.BodiesBytes, cfg.MaxSampleTimeout = max(l.MaxBytes, 2*cfg.JSONBytes), l.MaxSampleTimeout
	// A sample beyond message_bytes is read to its end and answered by name; only
	// one far beyond costs its sender the connection.
	cfg.Stream.MessageBytes = 4 * l.MessageBytes
	return cfg
}

// SelfTest scores a known picture through the loop and returns an error if the score is not the
// known one. Start must have returned.
func (n *Node) SelfTest(ctx context.Context) error {
	if !n.queue.Connected() {
		return errors.New("NATS cannot be reached") // the picture would wait for it
	}
	return n.test.run(ctx, n.Loop)
}

// Listen starts the HTTP server and returns its address.
func (n *Node) Listen(ctx context.Context) (net.Addr, error) {
	if err := n.server.Start(ctx, nil); err != nil {
		return nil, err
	}
	addr := n.server.Addr()
	if n.key == nil {
		return addr, nil
	}
	at, reachable := claimURL(n.cfg, addr)
	n.queue.Advertise(at)
	joins := []any{"nats", cmp.Or(n.queue.Address(), strings.Join(n.cfg.Queue.URLs, ",")), "claims", at, "gateway", n.name}
	if f := n.cfg.Queue; f.Listen != "" && f.ACLFile == "" {
		dir, _ := acl.OwnDir() // openQueue has found it
		joins = append(joins, "join", "rewardloop worker --join nats://"+n.queue.Address(), "nkey_file", filepath.Join(dir, acl.SeedFile(acl.Worker)))
	}
	n.log.InfoContext(ctx, "workers can connect", joins...)
	if !reachable {
		n.log.WarnContext(ctx, "only workers on this machine can connect; set server.listen or queue.advertise to an address that other machines can reach", "claims", at)
	}
	return addr, nil
}

// NATS returns the address, as host:port, at which the embedded NATS server accepts workers and
// other gateways, or "" if it accepts none.
func (n *Node) NATS() string { return n.queue.Address() }

// Children returns the state of the scorers' child processes; see Scorers.Children.
func (n *Node) Children() map[string]subprocess.Stats { return n.scorers.Children() }

// Drain refuses new samples and returns when no sample is in flight, or when ctx or the configured
// drain_timeout ends. The error contains the number of samples that are still in flight.
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

// Stop stops everything: the HTTP server first, and the scorers after the workers.
func (n *Node) Stop() {
	if n.claims != nil {
		n.claims.Close() // the HTTP server waits for its connections
	}
	if n.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := n.server.Stop(ctx); err != nil {
			n.log.Warn("the HTTP server did not stop cleanly", "error", err)
		}
	}
	if c := n.colocated; c != nil && c.stop != nil {
		c.stop()
		c.forgetting.Wait()
	}
	if n.Loop != nil {
		n.Loop.Stop()
	}
	if n.spool != nil {
		if err := n.spool.Close(); err != nil {
			n.log.Warn("the spool did not close cleanly", "error", err)
		}
	}
	n.stopWorkers()
	if n.recorder != nil {
		if err := n.recorder.close(); err != nil {
			n.log.Warn("the store did not close cleanly", "error", err)
		}
	}
	if n.others != nil {
		n.others.Close()
	}
	if err := n.closeScorers(); err != nil {
		n.log.Warn("scorers did not close cleanly", "error", err)
	}
	if n.queue != nil {
		n.queue.Close()
	}
	n.closeTraces() // last: everything else may end a span
}
