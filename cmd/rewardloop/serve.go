package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/node"
	"github.com/rewardloop/rewardloop/server"
)

const serveText = `
Runs the reward loop in one process: gateway, workers and scorers. Trainers stream
samples to /v1/stream, or post them to / (flow_grpo's pickle protocol) and
/v1/score (JSON). The status page is at /.

With --nats-listen or --nats, workers on other machines join (rewardloop worker) and
several gateways share them; reward.num_workers=0 leaves the scoring to those.

Overrides follow the flags in Hydra's form: key=value changes a key, +key=value adds
one, ++key=value does either, ~key deletes.

SIGHUP reads the configuration anew and applies what can change while samples are scored,
as rewardloop reload does.

SIGTERM or Ctrl-C refuses new samples and finishes what is in flight; a second one
stops at once. With --until-stdin-closes the end of its standard input does what SIGTERM
does: whoever started it is gone.`

const serveExample = `
rewardloop serve -c cfg.yaml
rewardloop serve -c cfg.yaml --listen 0.0.0.0:8080 --token-file token
rewardloop serve reward.custom_reward_function.path=builtin://ocr
rewardloop serve -c cfg.yaml --nats-listen 127.0.0.1:4222`

func serve(ctx context.Context, args []string, e env) int {
	fs := newFlags(e, "serve", serveText, serveExample)
	file := fs.String("c", "", "configuration `file` (YAML); none: overrides only")
	listen := fs.String("listen", "", "`address` and port, over server.listen; a public one needs a token")
	token := fs.String("token-file", "", "`file` with the token clients must send, over server.token_file")
	nats := fs.String("nats", "", "`addresses` of the NATS that gateways and workers share, with commas between, over fabric.nats")
	natsListen := fs.String("nats-listen", "", "`address` and port at which this process's own NATS takes workers and other gateways, over fabric.nats_listen")
	advertise := fs.String("advertise", "", "`address` at which workers reach this gateway, such as ws://10.0.0.5:8080, over fabric.advertise")
	name := fs.String("name", "", "`name` of this process among all, over fabric.name")
	tied := addTied(fs)
	logs := addLogFlags(fs)
	if code, done := parse(fs, args, e); done {
		return code
	}
	overrides := append(fs.Args(), given(map[string]string{
		"fabric.nats": list(*nats), "fabric.name": *name, "fabric.nats_listen": *natsListen, "fabric.advertise": *advertise,
		"server.listen": *listen, "server.token_file": *token,
	})...)
	again := func() (*config.Config, error) { return load(ctx, e, *file, overrides, false) }
	cfg, err := again()
	if err != nil {
		return complain(e, "serve", exitUsage, err)
	}
	e.secrets = cfg.Secrets
	log, err := logs.logger(e)
	if err != nil {
		return complain(e, "serve", exitUsage, err)
	}
	for _, n := range cfg.Notes() {
		log.WarnContext(ctx, "configuration", "note", n.String())
	}
	node.CollectLater(cfg, e.getenv)
	if *tied {
		var cut context.CancelFunc
		ctx, cut = untilClosed(ctx, e.stdin, log)
		defer cut()
	}
	return serveNode(ctx, e, cfg, again, log)
}

// given are the overrides of the flags that were given, by the keys that they stand for.
func given(flags map[string]string) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(flags)) {
		if flags[key] != "" {
			out = append(out, "++"+key+"="+flags[key])
		}
	}
	return out
}

// list is a flag's value that is a list, with commas between; "" stays none.
func list(items string) string {
	if items == "" {
		return ""
	}
	return "[" + items + "]"
}

// serveNode runs a node until it is told to stop.
func serveNode(ctx context.Context, e env, cfg *config.Config, load func() (*config.Config, error), log *slog.Logger) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1) // several in a row are one reload
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	n, err := node.New(node.Options{Config: cfg, Load: load, Log: log, Version: release(), Examine: e.stdout})
	if err != nil {
		return complain(e, "serve", exitUsage, err)
	}
	start := time.Now()
	sctx, begun := untilSignal(ctx, signals)
	err = n.Start(sctx)
	if begun(); err != nil {
		return complain(e, "serve", exitFailure, err)
	}
	defer n.Stop()
	addr, err := n.Listen(ctx)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: if that is not a rewardloop that runs already, stop it, or name another address with server.listen or --listen", err)
		}
		return complain(e, "serve", exitFailure, err)
	}
	log.InfoContext(ctx, "serving", "address", addr.String(), "page", pageOf(cfg, addr), "version", release(), "workers", cfg.NumWorkers, "ready_after", time.Since(start).Round(time.Millisecond))
	if s := untilTold(ctx, signals, hangups, log, n.Reload); s != nil {
		log.InfoContext(ctx, "draining: new samples are refused, those in flight finish; once more stops at once", "signal", s.String())
	}
	dctx, drained := untilSignal(context.WithoutCancel(ctx), signals)
	defer drained()
	if err := n.Drain(dctx); err != nil {
		log.WarnContext(ctx, "stopped before all samples were answered", "error", err)
		return exitFailure
	}
	log.InfoContext(ctx, "every sample was answered; stopping")
	return exitOK
}

// untilTold waits for a signal to end, which it returns, or the end of ctx: nil. Meanwhile each
// SIGHUP reads the configuration anew.
func untilTold(
	ctx context.Context, signals, hangups <-chan os.Signal, log *slog.Logger, reload func(context.Context) (server.Reloaded, error),
) os.Signal {
	for {
		select {
		case s := <-signals:
			return s
		case <-ctx.Done():
			return nil
		case <-hangups:
			if _, err := reload(ctx); err != nil {
				log.ErrorContext(ctx, "the configuration was not read anew; everything goes on as it was", "error", err)
			}
		}
	}
}

// pageOf is where a browser finds the status page.
func pageOf(cfg *config.Config, addr net.Addr) string {
	scheme := "http"
	if cfg.Server.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + addr.String() + "/"
}

// untilSignal is a context for a start or a drain, which ends when a signal comes. over must
// be called when that is over; a signal that came before stays in the channel.
func untilSignal(ctx context.Context, signals chan os.Signal) (_ context.Context, over func()) {
	ctx, cancel := context.WithCancel(ctx)
	finished, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with over
		defer close(ended)
		select {
		case s := <-signals:
			cancel()
			signals <- s
		case <-finished:
		}
	}()
	return ctx, func() { close(finished); <-ended }
}

// logFlags are the flags of every command that logs.
type logFlags struct{ level, format *string }

func addLogFlags(fs *flag.FlagSet) logFlags {
	return logFlags{
		level:  fs.String("log-level", "info", "`level`: debug, info, warn or error"),
		format: fs.String("log-format", "text", "`format`: text or json"),
	}
}

func (f logFlags) logger(e env) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(*f.level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", *f.level)
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: e.secrets.Attr}
	switch *f.format {
	case "text":
		return slog.New(slog.NewTextHandler(e.stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(e.stderr, opts)), nil
	}
	return nil, errors.New("--log-format: want text or json")
}
