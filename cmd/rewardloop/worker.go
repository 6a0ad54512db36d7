package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
)

const workerText = `
Runs workers and their scorers for gateways on other machines. A worker receives
tickets from the shared NATS server, fetches each sample from the gateway that
holds the sample, and returns the score. Workers can join and leave at any time.

When the worker is ready for samples, it prints one line of JSON to standard
output: its name, its process id, and the address at which --listen serves
/healthz, /readyz and /metrics.

SIGHUP reloads the configuration and applies the changes that need no restart
(rewardloop reload --help).

After SIGTERM or Ctrl-C, the worker accepts no more samples and finishes its
samples in flight; after a second signal, these samples return to the queue and
other workers score them. With --until-stdin-closes, the worker also stops, at
once, when standard input is closed.`

const workerExample = `
rewardloop worker cfg.yaml --join nats://10.0.0.5:4222
rewardloop worker -c cfg.yaml --join tls://nats.lab:4222 \
  ++queue.nkey_file=worker.nk ++queue.tls_ca=ca.pem
rewardloop worker -c cfg.yaml --join nats://10.0.0.5:4222 \
  --rewards default --listen 127.0.0.1:9090`

func workerCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "worker [cfg.yaml] --join nats://HOST:PORT [key=value...]", GroupID: groupScore, DisableFlagsInUseLine: true,
		SuggestFor: []string{"join"},
		Short:      "score samples of gateways on other machines",
		Long:       workerText, Example: workerExample,
	}
	s := configFlags(e, cmd)
	var join, name, rewards, listen string
	cmd.Flags().StringVar(&join, "join", "", "comma-separated `addresses` of the NATS server that gateways and workers share (overrides queue.nats)")
	cmd.Flags().StringVar(&name, "name", "", "unique `name` of this process (overrides queue.name); default: host and process id")
	cmd.Flags().StringVar(&rewards, "rewards", "", "score only these `rewards`: comma-separated names of their sections (overrides queue.rewards)")
	cmd.Flags().StringVar(&listen, "listen", "", "`address` and port for /healthz, /readyz and /metrics; default: none")
	tied, logs := tiedFlag(cmd), addLogFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.file == "-" && *tied {
			return wrong(errTied)
		}
		s.set("name", "queue.name", name)
		s.set("join", "queue.nats", list(join))
		s.set("rewards", "queue.rewards", list(rewards))
		again := func() (*config.Config, error) { return s.load(cmd.Context(), true) }
		cfg, err := again()
		if err != nil {
			return wrong(err)
		}
		if len(cfg.Queue.URLs) == 0 {
			return wrong(errors.New("the address of the gateways is missing: write --join nats://host:4222, the --nats-listen of a gateway or the address of a nats-server"))
		}
		log, err := logs.logger(e)
		if err != nil {
			return wrong(err)
		}
		node.CollectLater(cfg, e.getenv)
		return runWorker(cmd.Context(), e, workerRun{cfg: cfg, load: again, listen: listen, tied: *tied, log: log})
	}
	return cmd
}

// workerRun is what the worker command was asked for.
type workerRun struct {
	cfg    *config.Config
	load   func() (*config.Config, error)
	listen string
	tied   bool // to standard input
	log    *slog.Logger
}

// runWorker runs the workers until they are told to stop.
func runWorker(ctx context.Context, e *env, r workerRun) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1) // several in a row are one reload
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if r.tied {
		var cut context.CancelFunc
		ctx, cut = untilClosed(ctx, e.stdin, r.log)
		defer cut()
	}
	w, err := node.NewWorker(node.Options{Config: r.cfg, Load: r.load, Log: r.log, Version: release()})
	if err != nil {
		return wrong(err)
	}
	start := time.Now()
	sctx, begun := untilSignal(ctx, signals)
	err = w.Start(sctx)
	if begun(); err != nil {
		return failed(err)
	}
	defer w.Stop()
	address := ""
	if r.listen != "" {
		addr, err := w.Listen(ctx, r.listen)
		if err != nil {
			return failed(err)
		}
		address = addr.String()
	}
	r.log.InfoContext(ctx, "the worker accepts samples",
		"worker", w.Name(), "workers", max(r.cfg.NumWorkers, 1), "version", release(), "ready_after", time.Since(start).Round(time.Millisecond))
	if err := json.NewEncoder(e.stdout).Encode(ready{Event: "ready", Worker: w.Name(), PID: os.Getpid(), Listen: address}); err != nil {
		return failed(err)
	}
	s := untilTold(ctx, signals, hangups, r.log, w.Reload)
	if s == nil {
		return nil // Stop gives back what it has
	}
	r.log.InfoContext(ctx, "draining: the worker accepts no more samples; a second signal returns its samples to the queue", "signal", s.String())
	dctx, drained := untilSignal(ctx, signals)
	defer drained()
	if err := w.Drain(dctx); err != nil {
		r.log.WarnContext(ctx, "the worker stopped with unfinished samples; other workers score these samples", "error", err)
		return nil
	}
	r.log.InfoContext(ctx, "every accepted sample was answered; stopping")
	return nil
}

// ready is the line that tells whoever started the process that it takes samples.
type ready struct {
	Event  string `json:"event"`
	Worker string `json:"worker"`
	PID    int    `json:"pid"`
	Listen string `json:"listen"`
}
