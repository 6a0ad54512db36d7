package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/queue/acl"
	"github.com/rewardloop/rewardloop/queue/payload"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
)

// Worker is a process with workers and scorers but without a gateway, which scores samples of
// gateways on other machines. The methods of a Worker are used like those of a Node.
type Worker struct {
	*parts

	member *queue.Member
	claims *payload.Client
	server *server.Server
}

// NewWorker builds the rewards that its workers serve, and starts nothing. Stop releases what
// NewWorker has created.
func NewWorker(o Options) (*Worker, error) {
	o.Config = forWorker(o.Config)
	if load := o.Load; load != nil {
		o.Load = func() (*config.Config, error) {
			cfg, err := load()
			if err != nil {
				return nil, err
			}
			return forWorker(cfg), nil
		}
	}
	o.beside = true
	p, err := newParts(o)
	if err != nil {
		return nil, err
	}
	p.name, p.calls = processName(o.Config.Queue), true
	return &Worker{parts: p}, nil
}

// forWorker is what a worker takes of a configuration, in a copy.
func forWorker(of *config.Config) *config.Config {
	cfg := *of
	if only := cfg.Queue.Rewards; len(only) > 0 {
		cfg.Profiles = map[string]*config.Profile{}
		for _, name := range only {
			cfg.Profiles[name] = of.Profiles[name]
		}
	}
	cfg.Queue.Listen = ""
	cfg.NumWorkers = max(cfg.NumWorkers, 1)
	return &cfg
}

// Name returns the name of the process, which is unique among the processes that share NATS.
func (w *Worker) Name() string { return w.name }

// Start connects to NATS and starts scorers and workers, in this order. After an error everything
// that was started is stopped.
func (w *Worker) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			w.Stop()
		}
	}()
	cfg, err := queueConfig(w.cfg, acl.Worker)
	if err != nil {
		return err
	}
	cfg.Log, cfg.Metrics = w.log, w.metrics
	if w.member, err = queue.Join(ctx, cfg); err != nil {
		return err
	}
	if err = w.scorers.Engines.start(w.scorers.Readers.Devices.book); err != nil {
		return err
	}
	if err = w.warm(ctx); err != nil { // after Join: who is not let in need not load models
		return err
	}
	if err := w.joinFleet(ctx, w.member.Fleet); err != nil {
		return err
	}
	if w.claims, err = w.claimClient(w.member.Alive); err != nil {
		return err
	}
	if err := w.face(); err != nil {
		return err
	}
	return w.startWorkers(ctx, w.member.NewSource, w.claims)
}

// face makes what the process shows of itself, and serves the reward router to functions
// in Python.
func (w *Worker) face() (err error) {
	w.server, err = server.NewWorker(server.Options{
		Config: server.Config{TokenFile: w.cfg.Server.TokenFile, SelfTestEvery: time.Second}, SelfTest: w.ready, Router: w.scorers.Engines.Router(), Engines: w.scorers.Engines.Servers,
		Gatherer: w.metrics, Metrics: w.metrics, Log: w.log, Version: w.version,
	})
	if err != nil || w.local == nil {
		return err
	}
	if err = w.server.ServeRouter(w.local, w.localKey); err == nil {
		w.local = nil // the server's now
	}
	return err
}

// Listen starts the process's own HTTP server with /healthz, /readyz, /v1/engines and /metrics, and
// returns its address.
func (w *Worker) Listen(ctx context.Context, address string) (net.Addr, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the address for health and metrics: %w", err)
	}
	if err := w.server.Start(ctx, ln); err != nil {
		return nil, err
	}
	return w.server.Addr(), nil
}

// ready says why the workers cannot take samples; nil: they can.
func (w *Worker) ready(context.Context) error {
	if !w.member.Connected() {
		return errors.New("NATS cannot be reached")
	}
	for _, worker := range w.workers {
		if worker.Info().State == wire.WorkerReady {
			return nil
		}
	}
	return fmt.Errorf("none of %d workers accepts samples: all their samples fail, or their scorers hang", len(w.workers))
}

// Drain accepts no more samples and returns when those of the workers have their results, or when
// ctx or the configured drain_timeout ends.
func (w *Worker) Drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(w.cfg.Loop.DrainTimeout, time.Millisecond))
	defer cancel()
	var all errgroup.Group
	all.Go(func() error { return w.server.Drain(ctx) })
	for _, worker := range w.workers {
		all.Go(func() error { return worker.Drain(ctx) })
	}
	return all.Wait()
}

// Stop stops everything. Samples that are being scored are returned to their gateways.
func (w *Worker) Stop() {
	w.stopWorkers()
	if w.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := w.server.Stop(ctx); err != nil {
			w.log.Warn("the worker's HTTP server did not stop cleanly", "error", err)
		}
	}
	if w.claims != nil {
		w.claims.Close()
	}
	if err := w.closeScorers(); err != nil {
		w.log.Warn("scorers did not close cleanly", "error", err)
	}
	if w.member != nil {
		w.member.Close()
	}
	w.closeTraces()
}
