package pyenv

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/models"
)

// Stage is a stage of Make.
type Stage string

// The stages of Make, in order.
const (
	Preparing  Stage = "preparing"  // updates pip if that of the Python is too old; Note describes it
	Resolving  Stage = "resolving"  // resolves the requirements
	Waiting    Stage = "waiting"    // waits for another maker
	Installing Stage = "installing" // installs; Bytes are on the disk
	Fetching   Stage = "fetching"   // of Pack: downloads the wheels of Note; Bytes are on the disk
	Noted      Stage = "noted"      // Note is a message for people
)

// Event is a progress report of Make.
type Event struct {
	Stage Stage
	Note  string
	Bytes int64
}

// Options are the options of Make, Pack and Unpack.
type Options struct {
	// Agree is called with the plan before anything of it is downloaded. If Agree returns an error,
	// Make fails with an error that wraps it and ErrRefused. nil: no call.
	Agree func(context.Context, Plan) error
	// Progress is called with progress reports, from one goroutine at a time; nil: no call.
	Progress func(Event)
	// Source allows packages without a wheel, which are built on this machine.
	Source bool
	// Lock is the path of a file to which the lock is also written; "": none.
	Lock string
	// Timeout is the time limit for Make. The default is 2 hours.
	Timeout time.Duration
	// Patience is the time limit for waiting for another maker of the same environment. The default
	// is Timeout.
	Patience time.Duration
	// Client requests the sizes of files. The default is a client that uses the proxy of the
	// environment variables.
	Client *http.Client
	// Pip uses only pip, even if uv is on PATH.
	Pip bool
	// Free, for tests, returns the number of bytes that can still be written below a folder. The
	// default asks the file system.
	Free func(dir string) (int64, error)
}

// defaultTimeout: 5 GB of torch at 1 MB/s are 83 minutes.
const defaultTimeout = 2 * time.Hour

// goodPip is the first pip that resolves without fetching whole packages (pip 23.3, its issue 12186).
const goodPip = "23.3"

// maker is one Make. One goroutine owns it.
type maker struct {
	Store
	spec Spec
	o    Options
	py   python
	tool string // a Python with pip; "": there are no packages
	temp string
	held *os.File // the lock of temp
	// links replace the options of the index in what installs; nil: those of spec.
	links []string
}

// Make makes the environment of a Spec, or returns it if it exists. The error wraps a class of this
// package and describes the problem, the place, and what to do.
func (s Store) Make(ctx context.Context, spec Spec, o Options) (Env, error) {
	o, done := o.complete()
	defer done()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("%w: not done after %v; downloaded packages are in the cache of pip or uv", ErrInstall, o.Timeout))
	defer cancel()
	if err := spec.Validate(); err != nil {
		return Env{}, err
	}
	if e, err := s.Find(spec); err == nil { // also where an index has other versions by now
		return e, e.copyLock(o.Lock)
	}
	m := &maker{Store: s, spec: spec, o: o}
	var e Env
	err := m.within(func() (err error) { e, err = m.make(ctx); return err })
	return e, err
}

// copyLock writes the lock of an environment to a file; "": nowhere.
func (e Env) copyLock(path string) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(e.Dir, lockName))
	if err == nil {
		err = write(path, text)
	}
	if err != nil {
		return fmt.Errorf("environments: the lock: %w", err)
	}
	return nil
}

// complete fills in what is not set; done closes what it opened.
func (o Options) complete() (all Options, done func()) {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.Patience = cmp.Or(o.Patience, o.Timeout)
	tell, telling := o.Progress, sync.Mutex{}
	o.Progress = func(e Event) {
		telling.Lock()
		defer telling.Unlock()
		if tell != nil {
			tell(e)
		}
	}
	if o.Free == nil {
		o.Free = models.FreeSpace
	}
	done = func() {}
	if o.Client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
		o.Client, done = &http.Client{Transport: transport}, transport.CloseIdleConnections
	}
	return o, done
}

func (m *maker) make(ctx context.Context) (e Env, err error) {
	if m.py, err = m.find(ctx, m.spec.Python); err != nil {
		return e, err
	}
	if m.spec.SystemSitePackages && m.py.Prefix != m.py.Base {
		m.o.Progress(Event{Stage: Noted, Note: m.py.Path + " is in an environment itself: system_site_packages shows the packages of " + m.py.Base + ", not those of " + m.py.Prefix})
	}
	if m.spec.packages() {
		if m.tool, err = m.pip(ctx); err != nil {
			return e, err
		}
	}
	m.o.Progress(Event{Stage: Resolving, Note: "Python " + m.py.Version + " at " + m.py.Path})
	r := resolver{spec: m.spec, py: m.py, tool: m.tool, temp: m.temp, held: m.held, source: m.o.Source}
	all, err := r.resolve(ctx)
	if err != nil {
		return e, err
	}
	name := r.name(all)
	if m.o.Lock != "" {
		if err := write(m.o.Lock, m.lockText(r, all, filepath.Dir(m.o.Lock))); err != nil {
			return e, fmt.Errorf("environments: the lock: %w", err)
		}
	}
	if e, err = m.read(name); err != nil {
		plan := r.plan(ctx, filepath.Join(m.Dir, name), all, m.o.Client)
		if e, err = m.install(ctx, r, plan); err != nil {
			return e, err
		}
	}
	return e, write(filepath.Join(m.Dir, specsDir, m.spec.digest()), []byte(name+"\n"))
}

// openTemp makes the folder that this maker resolves in, and removes those of makers that are
// no more. Its lock is taken first, so that nobody takes it for one of those.
func (m *maker) openTemp() error {
	left, err := filepath.Glob(filepath.Join(m.Dir, temps+"*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		if l, err := m.tryLock(filepath.Base(dir)); err == nil && l != nil {
			_ = os.RemoveAll(dir) // the next maker tries again
			_ = os.Remove(l.Name())
			_ = l.Close()
		}
	}
	name := temps + rand.Text()
	if m.held, err = m.tryLock(name); err != nil {
		return err
	}
	m.temp = filepath.Join(m.Dir, name)
	return os.Mkdir(m.temp, 0o700)
}

func (m *maker) closeTemp() {
	_ = os.RemoveAll(m.temp) // the next maker tries again
	_ = os.Remove(m.held.Name())
	_ = m.held.Close()
}

// await takes the lock of a name, until ctx ends.
func (m *maker) await(ctx context.Context, name, what string) (*os.File, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.o.Patience, fmt.Errorf("not done after %v", m.o.Patience))
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; told = true {
		l, err := m.tryLock(name)
		if err != nil {
			return nil, fmt.Errorf("environments: %w", err)
		}
		if l != nil {
			return l, nil
		}
		if !told {
			m.o.Progress(Event{Stage: Waiting, Note: "another process is making " + what})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: another process is making %s: %w", ErrBusy, what, context.Cause(ctx))
		}
	}
}

// makeVenv makes an empty environment without pip.
func makeVenv(ctx context.Context, j job, py python, dir string, system bool) error {
	args := []string{"-I", "-m", "venv", "--without-pip", "--symlinks"}
	if system {
		args = append(args, "--system-site-packages")
	}
	j.what, j.class = "making "+dir+" with "+py.Path, ErrPython
	_, err := j.run(ctx, py.Path, append(args, dir)...)
	return err
}

// pip returns a Python of the wanted version that has a pip which resolves without fetching whole packages.
// It lies beside the environments, is made once, and is in none of them.
func (m *maker) pip(ctx context.Context) (string, error) {
	key := m.py.Version + "-" + short([]byte(m.py.Path+m.py.Platform), 4)
	dir := filepath.Join(m.Dir, pipDir, key)
	l, err := m.await(ctx, "pip-"+key, "pip for Python "+m.py.Version)
	if err != nil {
		return "", err
	}
	defer l.Close()
	program, whole := interpreterOf(dir), filepath.Join(dir, marker)
	j := job{what: "asking pip for its version", class: ErrPython, temp: m.temp, held: l}
	said, broken := j.run(ctx, program, "-m", "pip", "--version")
	if _, err := os.Stat(whole); err != nil || broken != nil {
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("environments: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
			return "", fmt.Errorf("environments: %w", err)
		}
		j.what = "making an environment with pip in " + dir + " (on Debian its Python needs python3-venv)"
		if _, err := j.run(ctx, m.py.Path, "-I", "-m", "venv", dir); err != nil {
			return "", err
		}
		if said, err = j.run(ctx, program, "-m", "pip", "--version"); err != nil {
			return "", err
		}
		if err := write(whole, nil); err != nil {
			return "", fmt.Errorf("environments: %w", err)
		}
	}
	version := strings.Fields(said + " ? ?")[1]
	if m.spec.local() || !older(version, goodPip) {
		return program, nil
	}
	m.o.Progress(Event{Stage: Preparing, Note: "pip " + version + " would fetch whole packages to find out what they need: a newer pip comes first, about 2 MB, licence MIT"})
	j.what, j.class = "fetching a pip of "+goodPip+" or newer for Python "+m.py.Version, ErrInstall
	// From where the packages come from.
	_, options := resolver{spec: m.spec}.absolute()
	wanted := filepath.Join(m.temp, "pip.txt")
	if err := os.WriteFile(wanted, []byte(strings.Join(append(options, "pip>="+goodPip), "\n")), 0o600); err != nil { // an address in it may have a password
		return "", fmt.Errorf("environments: %w", err)
	}
	if err := os.Remove(whole); err != nil { // until it is upgraded as a whole
		return "", fmt.Errorf("environments: %w", err)
	}
	if _, err = j.run(ctx, program, "-m", "pip", "install", "--quiet", "--upgrade", "--only-binary", ":all:", "-r", wanted); err != nil {
		return "", err
	}
	return program, write(whole, nil)
}

// older compares the first two numbers of two versions.
func older(version, than string) bool {
	var a, b [2]int
	_, _ = fmt.Sscanf(version, "%d.%d", &a[0], &a[1]) // what is no number is old
	_, _ = fmt.Sscanf(than, "%d.%d", &b[0], &b[1])
	return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
}

// lockText is a lock for people and for later: a requirements file with hashes, in which no
// address has a password. What lies below dir is named relative to it.
func (m *maker) lockText(r resolver, all []Package, dir string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Locked by rewardloop env make for Python %s, %s, system_site_packages: %v\n", m.py.Version, m.py.Platform, m.spec.SystemSitePackages)
	_, options := r.absolute()
	for _, o := range options {
		if option, ref := fileOption(o); dir != "" && option == "--find-links" && filepath.IsAbs(ref) {
			if abs, err := filepath.Abs(dir); err == nil {
				if rel, err := filepath.Rel(abs, ref); err == nil && !strings.HasPrefix(rel, "..") {
					o = option + " ." + string(filepath.Separator) + rel
				}
			}
		}
		b.WriteString(withoutUser(o) + "\n")
	}
	b.WriteString(withoutUser(pins(all)))
	return []byte(b.String())
}

// install makes the environment of a plan in its final folder, under its lock.
func (m *maker) install(ctx context.Context, r resolver, plan Plan) (e Env, err error) {
	if free, err := m.o.Free(m.Dir); err == nil && free < plan.Total {
		return e, fmt.Errorf("%w: the packages have %d MB to download and %s has %d MB: free some, or name another folder in REWARDLOOP_ENVS",
			ErrSpace, plan.Total/1e6, m.Dir, free/1e6)
	}
	if m.o.Agree != nil {
		if err := m.o.Agree(ctx, plan); err != nil {
			return e, fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	l, err := m.await(ctx, plan.Name, plan.Name)
	if err != nil {
		return e, err
	}
	defer l.Close()
	if e, err = m.read(plan.Name); err == nil {
		return e, nil // another one made it meanwhile
	}
	if err := os.RemoveAll(plan.Dir); err != nil { // what a maker that is no more has left
		return e, fmt.Errorf("environments: %w", err)
	}
	done := false
	defer func() {
		if !done {
			_ = os.RemoveAll(plan.Dir) // what stays has no marker
		}
	}()
	if err := makeVenv(ctx, job{temp: m.temp, held: l}, m.py, plan.Dir, m.spec.SystemSitePackages); err != nil {
		return e, err
	}
	tool, err := m.fill(ctx, r, plan, l)
	if err != nil {
		return e, err
	}
	is, err := ask(ctx, interpreterOf(plan.Dir))
	if err != nil {
		return e, fmt.Errorf("the new environment does not start: %w", err)
	}
	if err := write(filepath.Join(plan.Dir, lockName), m.lockText(r, plan.Packages, "")); err != nil {
		return e, fmt.Errorf("environments: %w", err)
	}
	e = Env{
		Name: plan.Name, Dir: plan.Dir, Interpreter: interpreterOf(plan.Dir), Python: is.Version, Platform: is.Platform,
		SystemSitePackages: m.spec.SystemSitePackages, Packages: plan.Packages, Tool: tool, Size: treeSize(plan.Dir), Made: time.Now().UTC().Truncate(time.Second),
	}
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return e, fmt.Errorf("environments: %w", err)
	}
	if err := write(filepath.Join(plan.Dir, marker), text); err != nil {
		return e, fmt.Errorf("environments: %w", err)
	}
	done = true
	return e, nil
}

// fill installs the packages of a plan, with uv where it is, and says with what.
func (m *maker) fill(ctx context.Context, r resolver, plan Plan, l *os.File) (tool string, err error) {
	if len(plan.Packages) == 0 {
		m.o.Progress(Event{Stage: Installing, Note: plan.Name})
		return "venv", nil
	}
	_, options := r.absolute()
	if m.links != nil {
		options = m.links
	}
	lock := filepath.Join(m.temp, lockName)
	if err := os.WriteFile(lock, []byte(strings.Join(options, "\n")+"\n"+pins(plan.Packages)), 0o600); err != nil { // an address in it may have a password
		return "", fmt.Errorf("environments: %w", err)
	}
	ended := m.follow(Installing, filepath.Base(plan.Dir), plan.Dir)
	defer ended()
	j := job{what: "installing into " + plan.Dir, class: ErrInstall, dir: m.spec.Dir, temp: m.temp, held: l}
	uv, missing := exec.LookPath("uv")
	if missing == nil && !m.o.Pip {
		args := []string{"pip", "install", "--quiet", "--python", interpreterOf(plan.Dir), "--require-hashes", "--no-deps", "--no-config", "-r", lock}
		if !m.o.Source {
			args = append(args, "--no-build")
		}
		_, err = j.run(ctx, uv, args...)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrHash) || errors.Is(err, ErrSpace) {
			return "uv", err
		}
		// uv reads no configuration of pip's, such as the address of an index.
		m.o.Progress(Event{Stage: Noted, Note: "uv cannot install, so pip does: " + err.Error()})
	}
	args := []string{"-m", "pip", "--python", interpreterOf(plan.Dir), "install", "--quiet", "--require-hashes", "--no-deps", "--no-warn-script-location", "-r", lock}
	if !m.o.Source {
		args = append(args, "--only-binary", ":all:")
	}
	_, err = j.run(ctx, m.tool, args...)
	return "pip", err
}

// follow tells how a folder grows, until it is told to stop. A large environment has some 50,000
// files, which are counted in half a second.
func (m *maker) follow(stage Stage, what, dir string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // ends with stop, which waits for it
		defer close(ended)
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			m.o.Progress(Event{Stage: stage, Note: what, Bytes: treeSize(dir) + treeSize(m.temp)})
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-ended }
}
