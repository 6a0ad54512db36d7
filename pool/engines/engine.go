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

// ErrUnable marks what a canary says of an engine that will never do what it is asked for: it is not started again.
var ErrUnable = errors.New("the engine lacks a feature")

// Config is one engine: a number of equal servers. Of the durations 0 means the default.
type Config struct {
	// Name is the engine's, in messages and in the names of its logs; Served the one that requests name their model by; Model
	// what the server loads, a folder or a name that its program knows.
	Name, Served, Model string
	Kind                Kind
	// Servers is how many there are.
	Servers  int
	Parallel Parallel
	// Python has the program as a module; empty: the kind's own command is on PATH. Device is that of kinds that have to be told.
	Python, Device string
	// Args follow the arguments made here; Env is the environment, as NAME=value; nil: this process's.
	Args, Env []string
	// Folder is where <Name>-<number>.log is written.
	Folder string

	// StartTimeout bounds a start, from the command to the canary's answer; default 15 minutes. StopTimeout is what a server has
	// between SIGTERM and SIGKILL; default 15 s.
	StartTimeout, StopTimeout time.Duration
	// A ready server is asked every HealthEvery (default 5 s) for its health, and has HealthTimeout (default 10 s) to answer;
	// CanaryTimeout (default 60 s) to answer the canary.
	HealthEvery, HealthTimeout, CanaryTimeout time.Duration
	// PauseMin is how long a server that ended stays ended, at first; default 1 s. It doubles up to PauseMax, default 1 minute,
	// as long as no server stays ready for that long.
	PauseMin, PauseMax time.Duration

	// Asleep has the servers not started before Wake. Sleeps says that Sleep asks them to give their memory back, which their kind
	// and device can; else it ends them. SleepTimeout bounds what they have for it, default 1 minute: who takes longer is ended.
	Asleep, Sleeps bool
	SleepTimeout   time.Duration

	// Profile has the servers write profiles (StartProfile), those of Profile.Servers; nil: none does.
	Profile *Profile

	// Canary asks a server, at its address, what will be asked of it; nil: its health is enough.
	Canary func(ctx context.Context, url string) error
	// Moved is called when a server got another address, because its port was taken, with those of all; nil: nobody asks. It
	// must not call the engine.
	Moved func(urls []string)
	Log   *slog.Logger // nil: the default one
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

// Engine is one that runs here. It is safe for concurrent use.
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

// New makes an engine; nothing runs yet.
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

// Start starts the servers and returns before they are ready. It is called once. cards are those that each of them sees, by UUID
// or index; nil: all that this process does.
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

// Stop ends all servers and waits until they are gone, or for ctx: what still runs then is killed by its keeper.
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

// Program is where the program of the command is, or an error that says that it is nowhere.
func (e *Engine) Program() (string, error) {
	command, err := e.cfg.Command(1)
	if err != nil {
		return "", err
	}
	return exec.LookPath(command[0])
}

// Status is what is known of a server.
type Status struct {
	Name  string    `json:"name"`
	URL   string    `json:"url"`
	State State     `json:"state"`
	Since time.Time `json:"since"`
	// Starts counts the commands started; PID is that of the last one's keeper, 0 where none runs.
	Starts int `json:"starts"`
	PID    int `json:"pid,omitempty"`
	// Why is how the last one ended, or why it is unable; empty: none has.
	Why string `json:"why,omitempty"`
	// Log is where it writes.
	Log string `json:"log"`
}

// Status are the servers, in order.
func (e *Engine) Status() []Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]Status, len(e.servers))
	for i, s := range e.servers {
		out[i] = s.said
	}
	return out
}

// URLs are the addresses of all servers, ready or not.
func (e *Engine) URLs() []string {
	var out []string
	for _, s := range e.Status() {
		out = append(out, s.URL)
	}
	return out
}

// Changed is closed at the next change of a server's state.
func (e *Engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// Ready waits until n servers are ready, and says which cannot be where one never will.
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

// Sleep has the servers give their memory back and returns when all have, or with ctx: those that sleep answer nothing. Whoever asks
// them is to have stopped before.
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

// Wake has the servers take their memory again, and returns before they are ready.
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

// Suspect has a server be asked the canary at once: its caller has had no good answer of it. It does not wait.
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
