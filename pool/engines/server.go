package engines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// misses in a row make a ready server silent.
const misses = 3

// refusedGrace is how long a command whose port is closed has to end by itself: its keeper ends a little later than it does.
const refusedGrace = time.Second

// tellEvery is how often a server that starts is told of.
const tellEvery = 30 * time.Second

// killMargin is what a keeper has beyond the grace of its command.
const killMargin = 6 * time.Second

// server is one of an engine. All but said belong to its owner.
type server struct {
	engine  *Engine
	number  int
	name    string
	cards   []string
	port    int
	suspect chan struct{}

	said Status // guarded by Engine.mu
}

func address(port int) string { return "http://" + net.JoinHostPort(host, strconv.Itoa(port)) }

// listen listens on a port of the loopback; 0: a free one. It waits for nothing.
func listen(port int) (net.Listener, error) {
	return new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}

// freePort is one that nobody listens on.
func freePort() (int, error) {
	l, err := listen(0)
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil //nolint:forcetypeassert // a TCP listener's
}

// own is the life of a server: its command is started, watched and ended, again and again, until ctx ends.
func (s *server) own(ctx context.Context) {
	// Linux sends a parent's death to its children when the thread that forked ends. This one ends with the goroutine.
	runtime.LockOSThread()
	cfg := s.engine.cfg
	out := openOutput(cfg.Folder, s.name, logBytes)
	defer out.close()
	s.engine.note(func() { s.said.Log = out.path })
	pause := cfg.PauseMin
	for ctx.Err() == nil {
		if awake, other := s.engine.orders(); !awake {
			s.happened(slept, "")
			s.engine.note(func() { s.said.PID = 0 })
			select {
			case <-other:
			case <-ctx.Done():
			}
			continue
		}
		ready, err := s.live(ctx, out)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errSleeps): // its command has ended, and it is asleep
		case errors.Is(err, ErrUnable):
			s.happened(refused, err.Error())
			cfg.Log.ErrorContext(ctx, "an engine lacks a feature that its judges need; the engine is stopped and not restarted", "engine", cfg.Name, "server", s.name, "error", err, "log", out.path)
			<-ctx.Done()
		default:
			if ready >= cfg.PauseMax {
				pause = cfg.PauseMin
			}
			s.happened(ended, err.Error())
			cfg.Log.WarnContext(ctx, "a server of an engine exited and is restarted", "engine", cfg.Name, "server", s.name, "error", err, "pause", pause, "log", out.path)
			if awake, other := s.engine.orders(); awake {
				select {
				case <-time.After(pause):
				case <-other:
				case <-ctx.Done():
				}
			}
			pause = min(2*pause, cfg.PauseMax)
		}
	}
	s.happened(closed, "")
}

// errSleeps ends a command that cannot sleep, or does not.
var errSleeps = errors.New("the engine is put to sleep")

// happened moves the server through the table of states.
func (s *server) happened(e event, why string) {
	s.engine.note(func() {
		to, err := s.said.State.after(e)
		if err != nil { // a fault of this package, which says so and goes on
			s.engine.cfg.Log.Error("a state change of an engine's server is not in the table of states; please report this", "server", s.name, "error", err)
			return
		}
		if to != s.said.State {
			s.said.State, s.said.Since = to, time.Now()
		}
		if why != "" {
			s.said.Why = why
		}
		if to != Starting && to != Ready && to != Silent && to != Asleep {
			s.said.PID = 0
		}
	})
}

// live is the life of one command. It says how long the server was ready, and how it ended.
func (s *server) live(ctx context.Context, out *output) (ready time.Duration, err error) {
	p, err := s.start(out)
	if err != nil {
		return 0, err
	}
	defer s.kill(p)
	ctx, done := during(ctx, p)
	defer done()
	begun := time.Now()
	if err := s.rise(ctx, out); err != nil {
		return 0, s.ending(p, out, fmt.Errorf("the server was not ready after %v: %w", time.Since(begun).Round(time.Millisecond), err))
	}
	risen := time.Now()
	s.happened(answered, "")
	s.engine.cfg.Log.InfoContext(ctx, "a server of an engine is ready", "engine", s.engine.cfg.Name, "server", s.name, "url", address(s.port), "after", risen.Sub(begun).Round(time.Millisecond))
	for err == nil {
		if err = s.watch(ctx, p); err == nil {
			err = s.doze(ctx, p, out)
		}
	}
	return time.Since(risen), s.ending(p, out, err)
}

// doze has a server sleep until it is wanted, and wakes it.
func (s *server) doze(ctx context.Context, p *process, out *output) error {
	cfg := s.engine.cfg
	if !cfg.Sleeps {
		return errSleeps
	}
	if err := s.engine.post(ctx, address(s.port)+cfg.Kind.sleep(), cfg.SleepTimeout); err != nil {
		cfg.Log.WarnContext(ctx, "a server of an engine did not release its memory; the server is stopped", "engine", cfg.Name, "server", s.name, "error", err)
		return errSleeps
	}
	s.happened(slept, "")
	for {
		awake, other := s.engine.orders()
		if awake {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.happened(woken, "")
	if err := s.engine.post(ctx, address(s.port)+cfg.Kind.wake(), cfg.StartTimeout); err != nil {
		if p.ends(refusedGrace) {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the server did not wake up: %w", err)
	}
	if err := s.rise(ctx, out); err != nil {
		return fmt.Errorf("the server did not answer after its wake-up: %w", err)
	}
	s.happened(answered, "")
	return nil
}

// post calls a URL without a body.
func (e *Engine) post(ctx context.Context, url string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("POST %s: %s: %s", url, answer.Status, text)
	}
	return nil
}

// ending is err, or where the command has ended how, with its last words.
func (s *server) ending(p *process, out *output, err error) error {
	if !p.ended() || errors.Is(err, ErrUnable) || errors.Is(err, errSleeps) {
		return err
	}
	err = fmt.Errorf("the command ended: %s", p.how())
	if words := out.lastWords(); words != "" {
		lines := strings.Split(words, "\n")
		err = fmt.Errorf("%w; last output of the server: %s", err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
	}
	return err
}

// start starts the command at the server's port, or at another one where somebody else has that.
func (s *server) start(out *output) (*process, error) {
	if err := s.settle(); err != nil {
		return nil, err
	}
	cfg := s.engine.cfg
	command, err := cfg.Command(s.port)
	if err != nil {
		return nil, err
	}
	env := slices.Clone(cfg.Env)
	if env == nil {
		env = os.Environ()
	}
	if p := cfg.profileOf(s.number); p != nil {
		if err := os.MkdirAll(p.Folder, 0o700); err != nil {
			return nil, fmt.Errorf("the folder of its profiles: %w", err)
		}
		command, env = p.profiled(cfg.Kind, s.name, command, env)
	}
	kept, err := subprocess.KeepCommand(cfg.StopTimeout, command...)
	if err != nil {
		return nil, err
	}
	if len(s.cards) > 0 {
		env = append(env, "CUDA_VISIBLE_DEVICES="+strings.Join(s.cards, ","))
	}
	fmt.Fprintf(out, "--- %s rewardloop %d starts: %s\n", time.Now().Format(time.RFC3339), os.Getpid(), strings.Join(command, " "))
	out.fresh()
	p, err := startProcess(kept, env, out)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", command[0], err)
	}
	s.happened(started, "")
	s.engine.note(func() { s.said.Starts, s.said.PID = s.said.Starts+1, p.pid() })
	return p, nil
}

// settle takes another port where somebody else has the server's.
func (s *server) settle() error {
	l, err := listen(s.port)
	if err == nil {
		return l.Close()
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	s.engine.cfg.Log.Warn("the port of an engine's server is in use; the server gets another port", "engine", s.engine.cfg.Name, "server", s.name, "port", s.port, "new", port)
	s.port = port
	s.engine.note(func() { s.said.URL = address(port) })
	if s.engine.cfg.Moved != nil {
		s.engine.cfg.Moved(s.engine.URLs())
	}
	return nil
}

// rise waits until the server is healthy and has answered the canary.
func (s *server) rise(ctx context.Context, out *output) error {
	cfg := s.engine.cfg
	ctx, cancel := context.WithTimeout(ctx, cfg.StartTimeout)
	defer cancel()
	begun := time.Now()
	tell := time.NewTicker(tellEvery)
	defer tell.Stop()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := s.healthy(ctx)
		if err == nil {
			err = s.canary(ctx)
		}
		if err == nil || errors.Is(err, ErrUnable) {
			return err
		}
		awake, other := s.engine.orders()
		if !awake {
			return errSleeps
		}
		select {
		case <-other:
		case <-ctx.Done():
			return err
		case <-tell.C:
			cfg.Log.InfoContext(ctx, "a server of an engine is still starting", "engine", cfg.Name, "server", s.name, "for", time.Since(begun).Round(time.Second),
				"within", cfg.StartTimeout, "says", out.lastLine(), "log", out.path)
		case <-time.After(wait):
		}
	}
}

// watch looks after a ready server until it is silent or ends, or is to sleep, which is no error.
func (s *server) watch(ctx context.Context, p *process) error {
	cfg := s.engine.cfg
	tick := time.NewTicker(cfg.HealthEvery)
	defer tick.Stop()
	for missed := 0; ; {
		var err error
		awake, other := s.engine.orders()
		if !awake {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-other:
		case <-s.suspect:
			if err = s.canary(ctx); err != nil {
				missed = misses
			}
		case <-tick.C:
			if err = s.healthy(ctx); err != nil {
				missed++
			} else {
				missed = 0
			}
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrUnable):
			return err
		case missed >= misses:
			if errors.Is(err, syscall.ECONNREFUSED) && p.ends(refusedGrace) {
				return context.Cause(ctx)
			}
			s.happened(quiet, "")
			return fmt.Errorf("the server was ready and no longer answers: %w", err)
		}
	}
}

// ended reports whether the process has.
func (p *process) ended() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

// ends waits until the process has ended, for some time at most.
func (p *process) ends(within time.Duration) bool {
	select {
	case <-p.over:
		return true
	case <-time.After(within):
		return false
	}
}

// during is a context that ends with ctx and with the process.
func during(ctx context.Context, p *process) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with ctx, which whoever asked for it ends
		select {
		case <-p.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// healthy asks the health route.
func (s *server) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.engine.cfg.HealthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address(s.port)+"/health", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := s.engine.http.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, 64<<10)
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /health: %s", answer.Status)
	}
	return nil
}

// canary asks what will be asked of the server.
func (s *server) canary(ctx context.Context) error {
	if s.engine.cfg.Canary == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.engine.cfg.CanaryTimeout)
	defer cancel()
	if err := s.engine.cfg.Canary(ctx, address(s.port)); err != nil {
		return fmt.Errorf("the canary: %w", err)
	}
	return nil
}

// kill ends the command, and waits until it and all that it has started are gone.
func (s *server) kill(p *process) {
	if p.ended() {
		return
	}
	p.terminate()
	if !p.ends(s.engine.cfg.StopTimeout + killMargin) { // the keeper hangs, too
		p.killGroup()
		<-p.over
	}
}
