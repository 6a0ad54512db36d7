package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/pool/engines"
	"github.com/rewardloop/rewardloop/server"
)

// stopEngines bounds how long engines have to end: 15 s of their own, and what their keepers have
// beyond it.
const stopEngines = 30 * time.Second

// run makes an engine that is started here. Nothing runs yet.
func (e *Engines) run(c *config.Config, cfg *config.Engine) (*engines.Engine, error) {
	m := cfg.Managed
	home, err := os.UserHomeDir()
	if err != nil {
		home = "~"
	}
	model := cfg.Model
	if rest, ok := strings.CutPrefix(model, "~/"); ok {
		model = filepath.Join(home, rest)
	}
	device := ""
	if m.Device == infer.CPU {
		device = m.Device
	}
	side, err := outbound.NewTransport(c.Outbound)
	if err != nil {
		return nil, err
	}
	e.sides = append(e.sides, side)
	args, env := m.Args, engineEnvironment(c.HiddenEnv)
	sleeps := false
	if c.Pool.Colocated && m.Frees {
		more, variables, can := m.Kind.CanSleep(m.Device)
		args, env, sleeps = slices.Concat(args, more), append(env, variables...), can
	}
	profile, err := profileOf(m)
	if err != nil {
		return nil, err
	}
	return engines.New(engines.Config{
		Profile: profile,
		Name:    cfg.Name, Served: cfg.Model, Model: model, Kind: m.Kind, Servers: m.Servers, Parallel: engines.Parallel(cfg.Parallel),
		Python: m.Interpreter, Device: device, Args: args, Env: env, Asleep: c.Pool.Colocated && m.Frees, Sleeps: sleeps, Folder: engineLogs(), StartTimeout: m.StartTimeout,
		Log: e.log,
		Canary: func(ctx context.Context, url string) error {
			doer, err := side.Upstream(outbound.UpstreamConfig{Name: cfg.Name, URLs: []string{url}, Attempts: 1, Timeout: time.Minute})
			if err != nil {
				return err
			}
			unable, err := e.try(ctx, cfg.Name, doer)
			if unable != nil {
				err = fmt.Errorf("%w: %w", engines.ErrUnable, unable)
			}
			return err
		},
		Moved: func(urls []string) { e.moved(cfg.Name, urls) },
	})
}

// engineLogs is where engines write; processes of one user that have engines of one name share their logs.
func engineLogs() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "rewardloop", "engines")
}

// engineEnvironment is this process's, without what it has for itself alone.
func engineEnvironment(hidden []string) []string {
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(hidden, name)
	})
	return append(env, "PYTHONUNBUFFERED=1")
}

// start starts the engines on the cards of a book, and looks after them until Close.
func (e *Engines) start(book func() (Book, error)) error {
	var errs []error
	for _, x := range e.engines {
		if x.run == nil {
			continue
		}
		sets, err := serverCards(x.cfg, book)
		if err == nil {
			err = x.run.Start(sets)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: engine %s: %w", x.cfg.Place, x.cfg.Name, err))
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		e.stopTending = append(e.stopTending, cancel)
		e.tending.Go(func() { e.tend(ctx, x) }) // ends with Close
	}
	return errors.Join(errs...)
}

// serverCards are the cards of each server of an engine, as CUDA_VISIBLE_DEVICES has them.
func serverCards(cfg *config.Engine, book func() (Book, error)) (sets [][]string, err error) {
	if cfg.Managed.Device == infer.CPU {
		return nil, nil
	}
	b, err := book()
	if err != nil {
		return nil, err
	}
	for i := range cfg.Managed.Servers {
		var set []string
		for _, held := range b.Plan.Owners {
			if held.Owner == config.SetOwner(cfg.Name, i) {
				for _, u := range b.Plan.Cards {
					if slices.Contains(held.Devices, u.Device) {
						set = append(set, u.Card.Visible())
					}
				}
			}
		}
		if len(set) == 0 {
			return nil, fmt.Errorf("the plan of cards has no card for server %d", i)
		}
		sets = append(sets, set)
	}
	return sets, nil
}

// hold keeps questions from the servers of an engine that is started here.
func (x engine) hold(why string) {
	for _, url := range x.run.URLs() {
		x.upstream.Hold(url, why, false)
	}
}

// tend has questions go to the servers that are ready, and to no others, and has a server examined
// that gave no answer.
func (e *Engines) tend(ctx context.Context, x engine) {
	before := map[string]engines.State{}
	for {
		changed, asked := x.run.Changed(), x.upstream.Dependency().Changed
		for _, s := range x.run.Status() {
			if was, known := before[s.URL]; !known || was != s.State {
				e.tell(x, s)
				before[s.URL] = s.State
			}
		}
		for _, at := range x.upstream.Stats().Endpoints {
			if at.Breaker != outbound.Closed && before[at.Endpoint] == engines.Ready {
				x.run.Suspect(at.Endpoint)
			}
		}
		select {
		case <-changed:
		case <-asked:
		case <-ctx.Done():
			return
		}
	}
}

// tell says to those who ask how a server is.
func (e *Engines) tell(x engine, s engines.Status) {
	if s.State == engines.Ready {
		x.upstream.Release(s.URL)
		return
	}
	x.upstream.Hold(s.URL, shortState(x.cfg.Managed.Kind, s), s.State == engines.Unable)
}

// shortState is a server's state on one line.
func shortState(kind engines.Kind, s engines.Status) string {
	text := map[engines.State]string{
		engines.Stopped: "is not started", engines.Starting: "is starting and does not answer yet", engines.Silent: "no longer answers and is stopped",
		engines.Asleep: "sleeps until the reward phase of the trainer", engines.Paused: "exited and is restarted", engines.Unable: "lacks a feature that the judges need", engines.Ready: "is ready",
	}[s.State]
	text = fmt.Sprintf("the server %s (%s) %s", s.Name, kind, text)
	if s.Why != "" && s.State != engines.Ready {
		why := strings.Join(strings.Fields(s.Why), " ")
		text += ": " + why[:min(len(why), 400)]
	}
	return text + "; its log is " + s.Log
}

// drainTime is how long questions that are under way may take before their engine sleeps all the same.
const drainTime = time.Minute

// sleep has the engines give their memory back: no more questions go to them, those that are under way
// have drainTime to be answered. It returns when all memory is free.
func (e *Engines) sleep(ctx context.Context) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, x := range e.engines {
		if x.run == nil || !x.cfg.Managed.Frees {
			continue
		}
		x.hold("engine " + x.cfg.Name + " sleeps without its memory until the reward phase of the trainer")
		all.Go(func() { // ends with ctx
			x.drain(ctx)
			if err := x.run.Sleep(ctx); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// drain waits until no question is under way, or for drainTime.
func (x engine) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		asked := 0
		for _, at := range x.upstream.Stats().Endpoints {
			asked += at.InFlight
		}
		if asked == 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// wake has the engines take their memory again, and returns before they are ready.
func (e *Engines) wake() {
	for _, x := range e.engines {
		if x.run != nil {
			x.run.Wake()
		}
	}
}

// moved has questions go to the new addresses of an engine.
func (e *Engines) moved(name string, urls []string) {
	for _, x := range e.engines {
		if x.cfg.Name == name {
			if err := e.transport.Replace(x.upstream, upstreamOf(x.cfg, urls)); err != nil {
				e.log.Error("an engine listens on a new port, but calls still use the old port and fail; restart this process", "engine", name, "error", err)
			}
		}
	}
}

// stop ends what start has begun.
func (e *Engines) stop() error {
	for _, cancel := range e.stopTending {
		cancel()
	}
	e.tending.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), stopEngines)
	defer cancel()
	var errs []error
	for _, x := range e.engines {
		if x.run != nil {
			errs = append(errs, x.run.Stop(ctx))
		}
	}
	for _, side := range e.sides {
		side.Close()
	}
	return errors.Join(errs...)
}

// Servers returns the state of the servers that this process has started, in the order of their engines' names.
func (e *Engines) Servers() (out []server.EngineServer) {
	for _, x := range e.engines {
		if x.run == nil {
			continue
		}
		asked := map[string]outbound.EndpointStats{}
		for _, at := range x.upstream.Stats().Endpoints {
			asked[at.Endpoint] = at
		}
		for _, s := range x.run.Status() {
			w := server.EngineServer{
				Engine: x.cfg.Name, Kind: string(x.cfg.Managed.Kind), Model: x.cfg.Model, Name: s.Name, URL: s.URL, State: string(s.State),
				Since: s.Since, Starts: s.Starts, PID: s.PID, Why: s.Why, Log: s.Log, InFlight: asked[s.URL].InFlight, Requests: asked[s.URL].Requests,
			}
			for _, n := range asked[s.URL].Failures {
				w.Failures += n
			}
			out = append(out, w)
		}
	}
	return out
}

// Program is the program that starts the servers of an engine.
type Program struct {
	Engine string
	// Path is the path of the program. Err is why there is none.
	Path string
	Err  error
}

// Programs returns the programs of the engines that a process with workers starts.
func (e *Engines) Programs() (out []Program) {
	for _, x := range e.engines {
		if x.run != nil {
			path, err := x.run.Program()
			out = append(out, Program{x.cfg.Name, path, err})
		}
	}
	return out
}
