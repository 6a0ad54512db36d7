package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/store"
)

const serveText = `
Runs a server in one process: gateway, workers and scorers. Trainers stream
samples to /v1/stream, or post samples to / (flow_grpo's pickle protocol) or to
/v1/score (JSON). The status page is at /.

The configuration is a file, given as an argument or after -c. With -, the
configuration is read from standard input once, and a reload uses the same text.
Overrides use Hydra's syntax: key=value changes a key, +key=value adds a key,
++key=value does either, and ~key deletes a key.

With --nats-listen or --nats, workers on other machines can join (rewardloop
worker), and several gateways share these workers. With reward.num_workers=0,
only the other machines score samples.

SIGHUP reloads the configuration and applies the changes that need no restart,
like rewardloop reload.

After SIGTERM or Ctrl-C, the server refuses new samples and finishes the samples
in flight; a second signal stops the server at once. With --until-stdin-closes,
the end of standard input has the effect of SIGTERM.`

const serveExample = `
rewardloop serve cfg.yaml
rewardloop serve -c cfg.yaml --listen 0.0.0.0:8080 --token-file token
rewardloop serve reward.custom_reward_function.path=builtin://ocr
rewardloop serve -c cfg.yaml --nats-listen 127.0.0.1:4222`

// serveFlags are what serve was asked for.
type serveFlags struct {
	listen, token, nats, natsListen, advertise, name string
	tied                                             *bool
	logs                                             *logFlags
}

func serveCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve [cfg.yaml] [flags] [key=value...]", GroupID: groupScore, DisableFlagsInUseLine: true,
		SuggestFor: []string{"start", "run", "server", "up"},
		Short:      "run a server: gateway, workers and scorers in one process",
		Long:       serveText, Example: serveExample,
	}
	s := configFlags(e, cmd)
	var f serveFlags
	cmd.Flags().StringVar(&f.listen, "listen", "", "`address` and port to listen on (overrides server.listen); a public address needs a token")
	cmd.Flags().StringVar(&f.token, "token-file", "", "`file` with the token that clients must send (overrides server.token_file)")
	cmd.Flags().StringVar(&f.nats, "nats", "", "comma-separated `addresses` of the NATS server that gateways and workers share (overrides queue.nats)")
	cmd.Flags().StringVar(&f.natsListen, "nats-listen", "", "`address` and port of the embedded NATS server, to which workers and other gateways connect (overrides queue.nats_listen)")
	cmd.Flags().StringVar(&f.advertise, "advertise", "", "`address` at which workers reach this gateway, such as ws://10.0.0.5:8080 (overrides queue.advertise)")
	cmd.Flags().StringVar(&f.name, "name", "", "unique `name` of this process (overrides queue.name)")
	f.tied, f.logs = tiedFlag(cmd), addLogFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), e, s, &f) }
	return cmd
}

func serve(ctx context.Context, e *env, s *settings, f *serveFlags) error {
	if s.file == "-" && *f.tied {
		return wrong(errTied)
	}
	s.set("advertise", "queue.advertise", f.advertise)
	s.set("name", "queue.name", f.name)
	s.set("nats", "queue.nats", list(f.nats))
	s.set("nats-listen", "queue.nats_listen", f.natsListen)
	s.set("listen", "server.listen", f.listen)
	s.set("token-file", "server.token_file", f.token)
	again := func() (*config.Config, error) { return s.load(ctx, false) }
	cfg, err := again()
	if err != nil {
		return wrong(err)
	}
	log, err := f.logs.logger(e)
	if err != nil {
		return wrong(err)
	}
	for _, n := range cfg.Notes() {
		log.WarnContext(ctx, "a key of the configuration may not have the expected effect", "note", n.String())
	}
	node.CollectLater(cfg, e.getenv)
	if *f.tied {
		var cut context.CancelFunc
		ctx, cut = untilClosed(ctx, e.stdin, log)
		defer cut()
	}
	return serveNode(ctx, e, serveRun{cfg: cfg, load: again, log: log, greet: f.logs.format == "text"})
}

// list is a flag's value that is a list, with commas between; "" stays none.
func list(items string) string {
	if items == "" {
		return ""
	}
	return "[" + items + "]"
}

// serveRun is what serveNode runs.
type serveRun struct {
	cfg   *config.Config
	load  func() (*config.Config, error)
	log   *slog.Logger
	greet bool // people read along
}

// storePath is where results are kept of a configuration that names no file: by the server's port. "": nowhere.
func storePath(cfg *config.Config, log *slog.Logger) string {
	if cfg.Store.Keep == store.KeepOff || cfg.Store.Path != "" {
		return ""
	}
	folder, err := store.DefaultFolder()
	if err != nil {
		if !errors.Is(err, store.ErrOff) {
			log.Warn("results are not kept, because the folder of the store is unknown; rewards are not affected", "error", err)
		}
		return ""
	}
	_, port, err := net.SplitHostPort(cfg.Server.Listen)
	if err != nil || port == "0" { // another one each time: its file would never be found again
		return ""
	}
	return filepath.Join(folder, port+".db")
}

// serveNode runs a node until it is told to stop.
func serveNode(ctx context.Context, e *env, r serveRun) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1) // several in a row are one reload
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	n, err := node.New(node.Options{Config: r.cfg, Load: r.load, Log: r.log, Version: release(), Examine: e.stdout, StorePath: storePath(r.cfg, r.log)})
	if err != nil {
		return wrong(err)
	}
	start := time.Now()
	sctx, begun := untilSignal(ctx, signals)
	err = n.Start(sctx)
	if begun(); err != nil {
		return failed(err)
	}
	defer n.Stop()
	addr, err := n.Listen(ctx)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: stop the program that listens there, or name another address with server.listen or --listen", err)
		}
		return failed(err)
	}
	if r.greet {
		fmt.Fprint(e.stdout, e.secrets.Text(greeting(r.cfg, addr.String())))
	}
	r.log.InfoContext(ctx, "serving", "address", addr.String(), "page", pageOf(r.cfg, addr.String()), "version", release(), "workers", r.cfg.NumWorkers, "ready_after", time.Since(start).Round(time.Millisecond))
	if s := untilTold(ctx, signals, hangups, r.log, n.Reload); s != nil {
		r.log.InfoContext(ctx, "draining: new samples are refused and samples in flight are finished; a second signal stops the server at once", "signal", s.String())
	}
	dctx, drained := untilSignal(context.WithoutCancel(ctx), signals)
	defer drained()
	if err := n.Drain(dctx); err != nil {
		r.log.WarnContext(ctx, "the server stopped before all samples were answered", "error", err)
		return failed(nil)
	}
	r.log.InfoContext(ctx, "every sample was answered; stopping")
	return nil
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
				log.ErrorContext(ctx, "the configuration was not reloaded; the server keeps its previous configuration", "error", err)
			}
		}
	}
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
