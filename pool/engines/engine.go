package engines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

// ErrUnable marks an error of the canary for an engine that will never provide the required
// features. Such an engine is not restarted.
var ErrUnable = errors.New("the engine lacks a feature")

// Config configures one engine: a number of equal servers. A zero duration means its default.
type Config struct {
	// Name is the name of the engine in messages and in the names of its logs. Served is the model
	// name in requests; the default is Model. Model is the model that the server loads: a folder,
	// or a name for the program.
	Name, Served, Model string
	Kind                Kind
	// Servers is the number of servers, 1 to 256.
	Servers  int
	Parallel Parallel
	// Python is the interpreter that runs the program as a module. If it is empty, the program
	// itself must be on PATH. Device is for kinds that have a --device argument, which is all
	// except vLLM.
	Python, Device string
	// Args follow the generated arguments. Env is the environment, as NAME=value; nil means the
	// environment of this process.
	Args, Env []string
	// Folder is the folder for the logs <Name>-<number>.log.
	Folder string

	// StartTimeout is the maximum duration of a start, from the command to the answer to the
	// canary. The default is 15 minutes. StopTimeout is the time between SIGTERM and SIGKILL. The
	// default is 15 s.
	StartTimeout, StopTimeout time.Duration
	// HealthEvery is the interval of the health checks of a ready server (default 5 s),
	// HealthTimeout the timeout of a health check (default 10 s), and CanaryTimeout the timeout of
	// the canary (default 60 s).
	HealthEvery, HealthTimeout, CanaryTimeout time.Duration
	// PauseMin is the first pause before a server is restarted. The default is 1 s. The pause
	// doubles up to PauseMax, by default 1 minute, unless the server was ready for at least
	// PauseMax.
	PauseMin, PauseMax time.Duration

	// Asleep delays the start of the servers until Wake. Sleeps makes Sleep use the servers' route
	// for releasing memory, which their kind and device must support; otherwise Sleep ends the
	// servers. SleepTimeout is the maximum duration of this call, by default 1 minute; a server
	// that takes longer is ended.
	Asleep, Sleeps bool
	SleepTimeout   time.Duration

	// Profile enables profiles (see StartProfile) in the servers listed in Profile.Servers. nil
	// disables them.
	Profile *Profile

	// Canary sends a typical request to the server at url. If nil, a healthy server is ready.
	Canary func(ctx context.Context, url string) error
	// Moved is called with the addresses of all servers when a server got another address because
	// its port was in use. It may be nil, and must not call the engine.
	Moved func(urls []string)
	Log   *slog.Logger // default: slog.Default()
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, otherwise time.Duration) { *d = cmp.Or(*d, otherwise) }
	def(&c.StartTimeout, 15*time.Minute)
	def(&c.StopTimeout, 15*time.Second)
	def(&c.HealthEvery, 5*time.Second)
	def(&c.HealthTimeout, 10*time.Second)
	def(&c.CanaryTimeout, time.Minute)
	def(&c.SleepTimeout, time.Minute)
	def(&c.PauseMin, time.Second)
	def(&c.PauseMax, time.Minute)
	c.Served = cmp.Or(c.Served, c.Model)
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// Engine is an engine on this machine. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	http    *http.Client
	servers []*server
	cancel  context.CancelFunc
	owners  sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed at the next change of a state
	awake   bool          // guarded by mu; what Sleep and Wake want
	wanted  chan struct{} // guarded by mu; closed when awake is another
}

// New returns an engine and starts nothing.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if _, err := cfg.Command(1); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, changed: make(chan struct{}), awake: !cfg.Asleep, wanted: make(chan struct{}), http: &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for i := range cfg.Servers {
		port, err := freePort()
		if err != nil {
			return nil, fmt.Errorf("engine %s: %w", cfg.Name, err)
		}
		name := fmt.Sprintf("%s-%d", cfg.Name, i)
		said := Status{Name: name, URL: address(port), State: Stopped, Since: time.Now()}
		e.servers = append(e.servers, &server{engine: e, number: i, name: name, port: port, suspect: make(chan struct{}, 1), said: said})
	}
	return e, nil
}

// Start starts the servers and returns before they are ready. It may be called only once. cards
// contains the cards of each server, by UUID or index; if it is nil, each server uses all cards of
// this process.
func (e *Engine) Start(cards [][]string) error {
	switch {
	case e.cancel != nil:
		return fmt.Errorf("engine %s: started twice", e.cfg.Name)
	case len(cards) != 0 && len(cards) != len(e.servers):
		return fmt.Errorf("engine %s: cards for %d servers, want %d", e.cfg.Name, len(cards), len(e.servers))
	}
	if err := os.MkdirAll(e.cfg.Folder, 0o700); err != nil { // the last words are kept in memory all the same
		e.cfg.Log.Warn("an engine's output is not logged, because the log folder cannot be created", "engine", e.cfg.Name, "error", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	for i, s := range e.servers {
		if len(cards) > 0 {
			s.cards = cards[i]
		}
		e.owners.Go(func() { s.own(ctx) })
	}
	return nil
}

// Stop ends all servers and waits until they have ended or ctx ends. The keepers kill any server
// that is left.
func (e *Engine) Stop(ctx context.Context) error {
	if e.cancel == nil {
		return nil
	}
	e.cancel()
	done := make(chan struct{})
	go func() { // ends with the last owner
		e.owners.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("engine %s: the servers have not ended: %w", e.cfg.Name, context.Cause(ctx))
	}
}

// Program returns the path of the engine's program, or an error if the program is not found.
func (e *Engine) Program() (string, error) {
	command, err := e.cfg.Command(1)
	if err != nil {
		return "", err
	}
	return exec.LookPath(command[0])
}

// Status is the state of a server.
type Status struct {
	Name  string    `json:"name"`
	URL   string    `json:"url"`
	State State     `json:"state"`
	Since time.Time `json:"since"`
	// Starts counts the commands that were started. PID is the process ID of the last command's
	// keeper, or 0 if none is running.
	Starts int `json:"starts"`
	PID    int `json:"pid,omitempty"`
	// Why describes how the last command ended, or why the server is unable. It is empty if no
	// command has ended.
	Why string `json:"why,omitempty"`
	// Log is the path of the server's log.
	Log string `json:"log"`
}

// Status returns the state of the servers, in order.
func (e *Engine) Status() []Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Status, len(e.servers))
	for i, s := range e.servers {
		out[i] = s.said
	}
	return out
}

// URLs returns the addresses of all servers, ready or not.
func (e *Engine) URLs() []string {
	var out []string
	for _, s := range e.Status() {
		out = append(out, s.URL)
	}
	return out
}

// Changed returns a channel that is closed at the next change of a server's state.
func (e *Engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// Ready waits until n servers are ready. It returns an error if ctx ends first or a server is
// Unable.
func (e *Engine) Ready(ctx context.Context, n int) error {
	for {
		changed := e.Changed()
		ready, unable := 0, error(nil)
		for _, s := range e.Status() {
			switch s.State {
			case Ready:
				ready++
			case Unable:
				unable = fmt.Errorf("engine %s: %w: %s", e.cfg.Name, ErrUnable, s.Why)
			}
		}
		switch {
		case ready >= n:
			return nil
		case unable != nil:
			return unable
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("engine %s: %d of %d servers are ready: %w", e.cfg.Name, ready, e.cfg.Servers, context.Cause(ctx))
		}
	}
}

// Sleep makes the servers release their memory, and waits until all have done so or ctx ends.
// Sleeping servers do not answer requests, so callers must stop sending requests first.
func (e *Engine) Sleep(ctx context.Context) error {
	e.want(false)
	for {
		changed := e.Changed()
		held := 0
		for _, s := range e.Status() {
			if s.State != Asleep && s.State != Stopped && s.State != Unable {
				held++
			}
		}
		if held == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("engine %s: %d of %d servers have not released their memory: %w", e.cfg.Name, held, e.cfg.Servers, context.Cause(ctx))
		}
	}
}

// Wake makes the servers load their models again. It returns before they are ready.
func (e *Engine) Wake() { e.want(true) }

func (e *Engine) want(awake bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.awake != awake {
		e.awake = awake
		close(e.wanted)
		e.wanted = make(chan struct{})
	}
}

// orders says what is wanted, and is closed when that is another thing.
func (e *Engine) orders() (awake bool, other <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.awake, e.wanted
}

// Suspect requests an immediate canary for the server at url, from which the caller did not get a
// valid answer. It does not block.
func (e *Engine) Suspect(url string) {
	for i, s := range e.Status() {
		if s.URL == url {
			select {
			case e.servers[i].suspect <- struct{}{}:
			default: // it is suspected already
			}
		}
	}
}

// note changes what is said of a server, and tells those who wait.
func (e *Engine) note(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
	close(e.changed)
	e.changed = make(chan struct{})
}
