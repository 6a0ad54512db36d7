package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/memory"
	"github.com/rewardloop/rewardloop/internal/spool"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool/cards"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
)

const doctorText = `
Checks this machine and prints a remedy for everything that is missing: memory
and limits, GPUs, ONNX Runtime and models, Tesseract, OCR of a picture in a
child process, a Python function, the queue, and one known picture end to end.
With a configuration, doctor also checks its files and its address, checks that
every reward in it becomes ready, and calls its Python functions with a known
sample (probe: false in the entry of a function skips the call). If a server
runs at the address, doctor prints the state of the server's rewards.

The exit code is 0 if everything required is present. OCR is required only for
the reward ocr, and Python only for rewards in Python.`

const doctorExample = `
rewardloop doctor
rewardloop doctor cfg.yaml --json`

// state is how a check ended.
type state string

const (
	stateOK      state = "ok"
	stateWarn    state = "warn"    // it works, and something is not as it should be
	stateMissing state = "missing" // it is not there, or does not work
)

// check is one line of the table.
type check struct {
	Name  string `json:"name"`
	State state  `json:"state"`
	// Required is false for what only some configurations need.
	Required bool    `json:"required"`
	Detail   string  `json:"detail"`
	Advice   string  `json:"advice,omitempty"`
	MS       float64 `json:"ms"`
}

// doctorTimeout bounds all checks together. A first start of Tesseract on a loaded
// machine takes seconds.
const doctorTimeout = 2 * time.Minute

func doctorCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor [cfg.yaml] [flags] [key=value...]", GroupID: groupPrepare, DisableFlagsInUseLine: true,
		SuggestFor: []string{"check", "diagnose"},
		Short:      "check this machine, and report what is missing",
		Long:       doctorText, Example: doctorExample,
	}
	s, asJSON := configFlags(e, cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return doctor(cmd.Context(), e, s, *asJSON) }
	return cmd
}

func doctor(ctx context.Context, e *env, s *settings, asJSON bool) error {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	x := &exam{cfg: config.Default(), given: s.given()}
	if x.given {
		cfg, err := s.read()
		if x.configErr = node.Check(ctx, cfg, err, scores(cfg)); err == nil {
			x.cfg, x.read = cfg, true
		}
	}
	checks := x.all(ctx)
	for i, c := range checks {
		checks[i].Detail, checks[i].Advice = x.cfg.Secrets.Text(c.Detail), x.cfg.Secrets.Text(c.Advice)
	}
	ok := !slices.ContainsFunc(checks, func(c check) bool { return c.Required && c.State == stateMissing })
	if asJSON {
		if err := e.json(map[string]any{"ok": ok, "checks": checks}); err != nil {
			return err
		}
	} else {
		printChecks(e, checks, ok)
	}
	if !ok {
		return failed(nil)
	}
	return nil
}

// printChecks prints the table: state, name, what was found, and below it what to do.
func printChecks(e *env, checks []check, ok bool) {
	w, width := e.stdout, 0
	colours := map[state]string{stateOK: green, stateWarn: yellow, stateMissing: red}
	for _, c := range checks {
		width = max(width, len(c.Name))
	}
	for _, c := range checks {
		indent := "\n" + strings.Repeat(" ", 11+width)
		fmt.Fprintf(w, "%s  %-*s  %s\n", e.colour(colours[c.State], fmt.Sprintf("%-7s", c.State)), width, c.Name, strings.ReplaceAll(c.Detail, "\n", indent))
		if c.Advice != "" {
			fmt.Fprintf(w, "%s-> %s\n", indent[1:], strings.ReplaceAll(c.Advice, "\n", indent+"   "))
		}
	}
	if ok {
		fmt.Fprintln(w, "\neverything required is present")
	} else {
		fmt.Fprintln(w, "\nsomething required is missing, see above")
	}
}

// exam is one run of the checks.
type exam struct {
	cfg       *config.Config
	given     bool    // a configuration was named
	read      bool    // it could be read
	configErr error   // what is wrong with it
	running   []check // of a server that runs at the address
}

// all runs the checks in order, those that explain others first.
func (x *exam) all(ctx context.Context) []check {
	var out []check
	add := func(f func(context.Context) check) {
		begun := time.Now()
		c := f(ctx)
		c.MS = math.Round(float64(time.Since(begun).Microseconds())/100) / 10
		out = append(out, c)
	}
	add(func(context.Context) check { return check{Name: "version", State: stateOK, Detail: release()} })
	add(func(context.Context) check { return system() })
	add(func(context.Context) check { return x.memory() })
	add(func(context.Context) check { return descriptors() })
	add(func(context.Context) check { return tempDir() })
	add(x.cards)
	add(x.onnxRuntime)
	if c, found := x.cudaProvider(ctx); found {
		out = append(out, c)
	}
	add(func(context.Context) check { return x.modelFiles() })
	add(x.tesseract)
	add(x.videos)
	out = append(out, x.readings(ctx)...)
	add(x.python)
	add(func(context.Context) check { return jpegSize() })
	add(tickets)
	add(selfTest)
	if x.given {
		add(func(context.Context) check { return x.configuration() })
	}
	if x.read {
		add(func(context.Context) check { return x.files() })
		if x.cfg.Queue.Durable {
			add(func(context.Context) check { return x.spool() })
		}
		out = append(out, x.rewards(ctx)...)
	}
	add(x.address)
	return append(out, x.running...)
}

func system() check {
	kernel := ""
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = " " + strings.TrimSpace(string(b))
	}
	return check{Name: "system", State: stateOK, Detail: fmt.Sprintf("%s/%s%s, %d CPUs (%d used), %s",
		runtime.GOOS, runtime.GOARCH, kernel, runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.Version())}
}

// memory compares what there is with what the configuration may take.
func (x *exam) memory() check {
	c := check{Name: "memory", State: stateOK}
	total, available, limit := memory.Read()
	parts := []string{}
	for _, p := range []struct {
		name  string
		bytes int64
	}{{"total", total}, {"available", available}, {"cgroup limit", limit}} {
		if p.bytes > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", p.name, gib(p.bytes)))
		}
	}
	if c.Detail = strings.Join(parts, ", "); c.Detail == "" {
		c.Detail = "unknown on this system"
		return c
	}
	// Where nothing bounds the process it is the machine that does.
	have, may := cmp.Or(limit, total), node.StatedBytes(x.cfg)
	if limit > 0 && total > 0 {
		have = min(limit, total)
	}
	if have < may {
		c.State = stateWarn
		c.Advice = fmt.Sprintf("loop.max_bytes, loop.step_bytes, loop.results_bytes and pool.decode.budget_bytes allow %s together: lower them", gib(may))
	}
	return c
}

func gib(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// fewDescriptors is what 1,000 connections, children and files stay below.
const fewDescriptors = 4096

func descriptors() check {
	c := check{Name: "file descriptors", State: stateOK}
	n, ok := descriptorLimit()
	if !ok {
		c.Detail = "no limit is known on this system"
		return c
	}
	c.Detail = fmt.Sprintf("at most %d", n)
	if n < fewDescriptors {
		c.State = stateWarn
		c.Advice = fmt.Sprintf("raise the limit to %d or more (ulimit -n; systemd: LimitNOFILE=; docker: --ulimit nofile=): every connection uses a file descriptor", fewDescriptors)
	}
	return c
}

func tempDir() check {
	c := check{Name: "temporary files", Required: true, State: stateOK, Detail: os.TempDir()}
	f, err := os.CreateTemp("", "rewardloop-doctor-*")
	if err == nil {
		_, err = f.Write(make([]byte, 4096))
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "make the folder writable, or set TMPDIR to another folder"
	}
	return c
}

func (x *exam) configuration() check {
	c := check{Name: "configuration", Required: true, State: stateOK}
	if x.configErr != nil {
		c.State, c.Detail, c.Advice = stateMissing, x.configErr.Error(), "correct the lines above; rewardloop config check reports the same"
		return c
	}
	c.Detail = contents(x.cfg) + ", " + rewards.Count(x.cfg.NumWorkers, "worker")
	if notes := x.cfg.Notes(); len(notes) > 0 {
		lines := make([]string, len(notes))
		for i, n := range notes {
			lines[i] = n.String()
		}
		c.State, c.Advice = stateWarn, strings.Join(lines, "\n")
	}
	return c
}

// files checks that what the section server names can be read.
func (x *exam) files() check {
	c := check{Name: "server files", Required: true, State: stateOK}
	s := x.cfg.Server
	var names, weak []string
	var errs []error
	for _, f := range []struct{ key, path string }{
		{"token_file", s.TokenFile}, {"tls_cert", s.TLSCert}, {"tls_key", s.TLSKey}, {"client_ca", s.ClientCA},
	} {
		if f.path == "" {
			continue
		}
		names = append(names, f.key)
		var err error
		if f.key == "token_file" {
			_, weak, err = server.CheckTokenFile(f.path)
		} else {
			_, err = os.ReadFile(f.path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("server.%s: %w", f.key, err))
		}
	}
	if len(weak) > 0 {
		c.State, c.Advice = stateWarn, s.TokenFile+": "+strings.Join(weak, "\n")
	}
	if err := errors.Join(errs...); err != nil {
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "make the files readable for this user, and correct their contents"
	} else if c.Detail = strings.Join(names, ", ") + " can be read"; len(names) == 0 {
		c.Detail = "the section server sets no token or certificate files"
	}
	return c
}

// spool compares queue.spool_bytes with the file system.
func (x *exam) spool() check {
	f := x.cfg.Queue
	c := check{Name: "spool", State: stateOK, Detail: f.Spool.Dir + " has room for queue.spool_bytes"}
	if why := spool.Short(f.Spool.Dir, f.Spool.MaxBytes, models.FreeSpace); why != "" {
		c.State, c.Detail, c.Advice = stateWarn, why, spool.ShortAdvice
	}
	return c
}

// address tries the address that serve would listen on.
func (x *exam) address(ctx context.Context) check {
	c := check{Name: "address", Required: x.given, State: stateOK, Detail: x.cfg.Server.Listen + " is free"}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", x.cfg.Server.Listen)
	switch {
	case err == nil:
		_ = l.Close() // it was only tried
	case errors.Is(err, syscall.EADDRINUSE):
		if x.running, err = x.askServer(ctx); err == nil {
			c.Detail = x.cfg.Server.Listen + " is in use by a rewardloop"
			return c
		}
		c.State, c.Detail = stateWarn, fmt.Sprintf("%s is in use by another program: %v", x.cfg.Server.Listen, err)
		c.Advice = "stop the program that listens on the address, or set another address with server.listen or --listen"
	default:
		c.State, c.Detail, c.Advice = stateMissing, err.Error(), "set server.listen to an address of this machine, with a port that this user may use"
	}
	return c
}

// cards lists the cards. Whether they are enough is what the check of the configuration says.
func (x *exam) cards(ctx context.Context) check {
	c := check{Name: "cards", State: stateOK}
	found, err := cards.Find(ctx, cards.Options{})
	if err != nil {
		c.State, c.Detail, c.Advice = stateWarn, err.Error(), "models that run on the CPU are not affected; rewardloop devices reports the same"
		return c
	}
	lines := []string{cardsSeen(found)}
	for i, card := range found.Cards {
		lines = append(lines, cards.Device(i)+" "+cardLine(card))
		if card.Sick != "" {
			c.State, c.Advice = stateWarn, "no model is placed on a faulty card; repair the card, or leave it out of "+cards.VisibleEnv
		}
	}
	c.Detail = strings.Join(append(lines, found.Notes...), "\n")
	return c
}
