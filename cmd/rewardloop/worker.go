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
Runs workers and their scorers for gateways on other machines: they take tickets
from the NATS that both share, fetch each sample from the gateway that holds it,
and hand the score back. Workers join and leave at any time.

Once it takes samples it prints one line of JSON to stdout: its name, its
process and where --listen serves /healthz, /readyz and /metrics.

SIGHUP reads the configuration anew and applies what can change while samples
are scored (rewardloop reload --help).

SIGTERM or Ctrl-C takes nothing more and finishes what it has; a second one
gives it back to be scored elsewhere. With --until-stdin-closes it also ends, at
once, when standard input does.`

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
		Short:      "score what gateways on other machines hold",
		Long:       workerText, Example: workerExample,
	}
	s := configFlags(e, cmd)
	var join, name, rewards, listen string
	cmd.Flags().StringVar(&join, "join", "", "`addresses` of the NATS that gateways and workers share, with commas between, over queue.nats")
	cmd.Flags().StringVar(&name, "name", "", "`name` of this process among all, over queue.name; default: host and process number")
	cmd.Flags().StringVar(&rewards, "rewards", "", "serve only these `rewards`, by the names of their sections, over queue.rewards")
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
	r.log.InfoContext(ctx, "taking samples", "worker", w.Name(), "workers", max(r.cfg.NumWorkers, 1), "version", release(), "ready_after", time.Since(start).Round(time.Millisecond))
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
