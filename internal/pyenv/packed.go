package pyenv

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Packed contains what is needed to make the environment of a Spec without a network: the lock, and
// the wheel file of each package.
type Packed struct {
	// Name is the environment's name on the machine where it was packed. On a machine whose Python
	// is another patch release, the name is different.
	Name string `json:"name"`
	// Digest identifies the Spec in a configuration.
	Digest             string    `json:"digest"`
	Python             string    `json:"python"`   // version of Python
	Platform           string    `json:"platform"` // platform as the Python reports it
	SystemSitePackages bool      `json:"system_site_packages,omitempty"`
	Packages           []Package `json:"packages"`
	// Wheels are the file names of the packages' wheels, in the same order.
	Wheels []string `json:"wheels"`
}

// Scratch returns a temporary folder in the store. It is removed by release, or by the next maker
// if the process was killed.
func (s Store) Scratch() (dir string, release func(), err error) {
	m := &maker{Store: s}
	if m.Dir, err = filepath.Abs(s.Dir); err == nil {
		err = os.MkdirAll(filepath.Join(m.Dir, specsDir), 0o755)
	}
	if err != nil {
		return "", nil, fmt.Errorf("environments: %w: set REWARDLOOP_ENVS to use another folder", err)
	}
	if err := m.openTemp(); err != nil {
		return "", nil, fmt.Errorf("environments: %w", err)
	}
	return m.temp, m.closeTemp, nil
}

// Pack downloads the wheels of a Spec's environment to a folder, for this platform and the
// environment's Python, and returns their description. If the environment exists, Pack uses its
// lock; otherwise Pack resolves the requirements. Options.Agree is called if the download was not
// agreed to when the environment was made.
func (s Store) Pack(ctx context.Context, spec Spec, dir string, o Options) (p Packed, err error) {
	if err := spec.Validate(); err != nil {
		return p, err
	}
	o, done := o.complete()
	defer done()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("%w: not done after %v; downloaded packages are in the cache of pip", ErrInstall, o.Timeout))
	defer cancel()
	m := &maker{Store: s, spec: spec, o: o}
	err = m.within(func() error { p, err = m.pack(ctx, dir); return err })
	return p, err
}

// within runs what needs a temporary folder of the store.
func (m *maker) within(run func() error) (err error) {
	if m.Dir, err = filepath.Abs(m.Dir); err == nil {
		err = os.MkdirAll(filepath.Join(m.Dir, specsDir), 0o755)
	}
	if err != nil {
		return fmt.Errorf("environments: %w: set REWARDLOOP_ENVS to use another folder", err)
	}
	if err := m.openTemp(); err != nil {
		return fmt.Errorf("environments: %w", err)
	}
	defer m.closeTemp()
	return run()
}

func (m *maker) pack(ctx context.Context, dir string) (p Packed, err error) {
	made, missing := m.Find(m.spec)
	want := m.spec.Python
	if missing == nil {
		want = made.Interpreter
	}
	if m.py, err = m.find(ctx, want); err != nil {
		return p, err
	}
	p = Packed{
		Name: made.Name, Digest: m.spec.digest(), Python: m.py.Version, Platform: m.py.Platform,
		SystemSitePackages: m.spec.SystemSitePackages, Packages: made.Packages,
	}
	if m.spec.packages() {
		if m.tool, err = m.pip(ctx); err != nil {
			return p, err
		}
	}
	r := resolver{spec: m.spec, py: m.py, tool: m.tool, temp: m.temp, held: m.held}
	var lines string
	if missing == nil {
		lines, err = m.locked(made)
		err = errors.Join(err, r.built(p.Packages))
	} else {
		lines, err = m.lockNow(ctx, r, &p)
	}
	if err != nil || len(p.Packages) == 0 {
		return p, err
	}
	if p.Wheels, err = m.wheels(ctx, r, p.Name, lines, dir, p.Packages); err != nil {
		return p, err
	}
	return p, nil
}

// lockNow resolves the requirements, and returns the lines of the lock.
func (m *maker) lockNow(ctx context.Context, r resolver, p *Packed) (lines string, err error) {
	m.o.Progress(Event{Stage: Resolving, Note: "Python " + m.py.Version + " at " + m.py.Path})
	if p.Packages, err = r.resolve(ctx); err != nil {
		return "", err
	}
	p.Name = r.name(p.Packages)
	plan := r.plan(ctx, filepath.Join(m.Dir, p.Name), p.Packages, m.o.Client)
	if m.o.Agree != nil {
		if err := m.o.Agree(ctx, plan); err != nil {
			return "", fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return pins(p.Packages), nil
}

// locked are the lines of the lock of a made environment.
func (m *maker) locked(e Env) (string, error) {
	text, err := os.ReadFile(filepath.Join(e.Dir, lockName))
	if err != nil {
		return "", fmt.Errorf("environments: the lock of %s: %w", e.Name, err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "-") { // the options are those of the Spec
			b.WriteString(line)
		}
	}
	return b.String(), nil
}

// wheels downloads what a lock names, and returns the name of each package's file.
func (m *maker) wheels(ctx context.Context, r resolver, name, lines, dir string, all []Package) ([]string, error) {
	into := filepath.Join(m.temp, "wheels")
	lock := filepath.Join(m.temp, lockName)
	_, options := r.absolute()
	if err := os.WriteFile(lock, []byte(strings.Join(options, "\n")+"\n"+lines), 0o600); err != nil { // an address in it may have a password
		return nil, fmt.Errorf("environments: %w", err)
	}
	ended := m.follow(Fetching, "the wheels of "+name, dir)
	j := job{what: "downloading the wheels of " + cmp.Or(m.spec.File, "the requirements"), class: ErrInstall, dir: m.spec.Dir, temp: m.temp, held: m.held, file: lock, call: "the lock"}
	_, err := j.run(ctx, m.tool, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", into, "-r", lock)
	ended()
	if err != nil {
		return nil, err
	}
	came, err := os.ReadDir(into)
	if err != nil {
		return nil, fmt.Errorf("environments: %w", err)
	}
	names := make([]string, len(all))
	for _, file := range came {
		sum, err := sumOf(filepath.Join(into, file.Name()))
		if err != nil {
			return nil, fmt.Errorf("environments: %w", err)
		}
		at := slices.IndexFunc(all, func(p Package) bool { return p.SHA256 == sum })
		if at < 0 {
			return nil, fmt.Errorf("%w: pip downloaded %s with sha256 %s, which is not in the lock", ErrHash, file.Name(), sum)
		}
		names[at] = file.Name()
		if err := move(filepath.Join(into, file.Name()), filepath.Join(dir, file.Name())); err != nil {
			return nil, fmt.Errorf("environments: %w", err)
		}
	}
	if at := slices.Index(names, ""); at >= 0 {
		return nil, fmt.Errorf("%w: pip downloaded no file for %s %s", ErrInstall, all[at].Name, all[at].Version)
	}
	return names, nil
}

// move gives a file another place, on another disk too.
func move(from, to string) error {
	if os.Rename(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func sumOf(path string) (string, error) {
	in, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	h := sha256.New()
	_, err = io.Copy(h, in)
	return hex.EncodeToString(h.Sum(nil)), err
}

var (
	digestForm  = regexp.MustCompile(`^[0-9a-f]{20}$`)
	sumForm     = regexp.MustCompile(`^[0-9a-f]{64}$`)
	wheelForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}\.whl$`)
	packageForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	versionForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+!_-]*$`)
)

// Validate returns an error if p cannot be the result of Pack.
func (p Packed) Validate() error {
	bad := func(what, text string) error {
		return fmt.Errorf("%w: %s: the %s %q", ErrSpec, p.Name, what, text)
	}
	switch {
	case !validName(p.Name):
		return bad("name", p.Name)
	case !digestForm.MatchString(p.Digest):
		return bad("digest", p.Digest)
	case !regexp.MustCompile(`^3\.\d{1,2}\.\d{1,2}[a-z0-9+]*$`).MatchString(p.Python):
		return bad("version of Python", p.Python)
	case len(p.Wheels) != len(p.Packages):
		return fmt.Errorf("%w: %s: %d wheels of %d packages", ErrSpec, p.Name, len(p.Wheels), len(p.Packages))
	}
	for i, one := range p.Packages {
		switch {
		case !packageForm.MatchString(one.Name):
			return bad("package", one.Name)
		case !versionForm.MatchString(one.Version):
			return bad("version of "+one.Name, one.Version)
		case !sumForm.MatchString(one.SHA256):
			return bad("sum of "+one.Name, one.SHA256)
		case !wheelForm.MatchString(p.Wheels[i]):
			return bad("wheel of "+one.Name, p.Wheels[i])
		}
	}
	return nil
}

// FindPacked returns the existing environment of p. The error wraps ErrMissing.
func (s Store) FindPacked(p Packed) (Env, error) {
	name, err := os.ReadFile(filepath.Join(s.Dir, specsDir, p.Digest))
	if err != nil {
		return Env{}, fmt.Errorf("%w in %s", ErrMissing, s.Dir)
	}
	return s.read(strings.TrimSpace(string(name)))
}

// kind is what wheels depend on: implementation, system, architecture and C library, without the
// version of that.
func kind(platform string) string {
	return regexp.MustCompile(`-\d[0-9.]*$`).ReplaceAllString(platform, "")
}

// Suits checks whether there is a Python for p. The error wraps ErrPython if there is none, and
// ErrPlatform if it is for another platform.
func (s Store) Suits(ctx context.Context, p Packed) error {
	_, err := s.suiting(ctx, p)
	return err
}

func (s Store) suiting(ctx context.Context, p Packed) (python, error) {
	py, err := s.find(ctx, python{Version: p.Python}.minor())
	if err != nil {
		return py, fmt.Errorf("environment %s: the wheels are for Python %s on %s: %w", p.Name, python{Version: p.Python}.minor(), p.Platform, err)
	}
	if kind(py.Platform) != kind(p.Platform) {
		return py, fmt.Errorf("%w: environment %s: the wheels are for %s, but Python at %s is %s (%s/%s): make the bundle on a machine of this kind",
			ErrPlatform, p.Name, p.Platform, py.Path, py.Platform, runtime.GOOS, runtime.GOARCH)
	}
	return py, nil
}

// Unpack makes the environment of p from the wheels in a folder, without using an index. An
// existing environment is returned unchanged.
func (s Store) Unpack(ctx context.Context, p Packed, dir string, o Options) (e Env, err error) {
	if err := p.Validate(); err != nil {
		return e, err
	}
	if e, err := s.FindPacked(p); err == nil {
		return e, nil
	}
	o, done := o.complete()
	defer done()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("%w: not done after %v", ErrInstall, o.Timeout))
	defer cancel()
	m := &maker{Store: s, spec: Spec{Requirements: "--no-index\n" + pins(p.Packages), SystemSitePackages: p.SystemSitePackages}, o: o}
	err = m.within(func() error { e, err = m.unpack(ctx, p, dir); return err })
	return e, err
}

func (m *maker) unpack(ctx context.Context, p Packed, dir string) (e Env, err error) {
	if m.py, err = m.suiting(ctx, p); err != nil {
		return e, err
	}
	if len(p.Packages) > 0 {
		if m.tool, err = m.pip(ctx); err != nil {
			return e, err
		}
		m.links = []string{"--no-index", "--find-links " + dir}
	}
	r := resolver{spec: m.spec, py: m.py, tool: m.tool, temp: m.temp, held: m.held}
	name := r.name(p.Packages)
	if e, err = m.read(name); err != nil {
		plan := Plan{Name: name, Dir: filepath.Join(m.Dir, name), Python: m.py.Version, SystemSitePackages: p.SystemSitePackages, Packages: p.Packages}
		if e, err = m.install(ctx, r, plan); err != nil {
			return e, err
		}
	}
	return e, write(filepath.Join(m.Dir, specsDir, p.Digest), []byte(name+"\n"))
}
