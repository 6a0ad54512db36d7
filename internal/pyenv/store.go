package pyenv

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/models"
)

const (
	// marker is the file with which a folder counts as a made environment.
	marker = "environment.json"
	// lockName is the lock of an environment, in its folder.
	lockName = "requirements.lock"
	specsDir = ".specs" // which Spec was made into which environment
	locksDir = ".locks"
	pipDir   = ".pip"     // environments that have pip, one for each Python
	temps    = ".making-" // what a maker resolves in
)

// Store is a folder of environments. Its methods may be called concurrently, also by several
// processes.
type Store struct {
	Dir string
	// Python is the interpreter for a Spec without one; "": python3 on PATH.
	Python string
}

// FromEnvironment returns the store in the folder REWARDLOOP_ENVS, or else in the folder envs
// beside that of the models.
func FromEnvironment(getenv func(string) (string, bool)) (Store, error) {
	var s Store
	s.Python, _ = getenv("REWARDLOOP_PYTHON")
	if s.Dir, _ = getenv("REWARDLOOP_ENVS"); s.Dir != "" {
		return s, nil
	}
	kept, err := models.FromEnvironment(getenv)
	if err != nil {
		return s, fmt.Errorf("no folder for environments: set REWARDLOOP_ENVS: %w", err)
	}
	s.Dir = filepath.Join(filepath.Dir(filepath.Clean(kept.Dir)), "envs")
	return s, nil
}

// Package is one package of an environment.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
	// Size is the size of the file to download, in bytes; 0: unknown.
	Size int64 `json:"size,omitempty"`
	// Licence is the licence from the package's metadata, which is not verified; "": unknown.
	Licence string `json:"licence,omitempty"`
	// Source means that the package has no wheel and is built on this machine.
	Source bool `json:"source,omitempty"`

	address string // the file's; a direct one is locked
	direct  bool
}

// Env is an existing environment.
type Env struct {
	Name string `json:"name"`
	Dir  string `json:"folder"`
	// Interpreter is the absolute path of the environment's Python.
	Interpreter        string    `json:"interpreter"`
	Python             string    `json:"python"` // version of Python
	Platform           string    `json:"platform"`
	SystemSitePackages bool      `json:"system_site_packages"`
	Packages           []Package `json:"packages"`
	Tool               string    `json:"tool"` // uv or pip
	Size               int64     `json:"size"` // size on disk in bytes when it was made
	Made               time.Time `json:"made"`
}

// Find returns the environment of a Spec. Find reads files only. The error wraps ErrMissing,
// ErrSpec, or ErrPython if the Python of the environment no longer exists.
func (s Store) Find(spec Spec) (Env, error) {
	if err := spec.Validate(); err != nil {
		return Env{}, err
	}
	name, err := os.ReadFile(filepath.Join(s.Dir, specsDir, spec.digest()))
	if err != nil {
		return Env{}, fmt.Errorf("%w in %s", ErrMissing, s.Dir)
	}
	return s.read(strings.TrimSpace(string(name)))
}

// read returns a made environment.
func (s Store) read(name string) (Env, error) {
	e := Env{}
	if !validName(name) {
		return e, fmt.Errorf("%w: %q", ErrUnknown, name)
	}
	dir, err := filepath.Abs(filepath.Join(s.Dir, name))
	if err != nil {
		return e, fmt.Errorf("%w: %s: %w", ErrMissing, name, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, marker))
	if err != nil {
		return e, fmt.Errorf("%w in %s", ErrMissing, s.Dir)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, fmt.Errorf("%w: %s in %s is damaged", ErrMissing, marker, dir)
	}
	e.Name, e.Dir, e.Interpreter = name, dir, interpreterOf(dir)
	if info, err := os.Stat(e.Interpreter); err != nil || info.IsDir() {
		return e, fmt.Errorf("%w: the Python %s of environment %s no longer exists: run `rewardloop env remove %s` and make the environment again", ErrPython, e.Python, dir, name)
	}
	return e, nil
}

// Gone reports whether the Python of an environment no longer exists.
func (s Store) Gone(e Env) bool {
	_, err := s.read(e.Name)
	return errors.Is(err, ErrPython)
}

func interpreterOf(dir string) string { return filepath.Join(dir, "bin", "python") }

// validName is what an environment is called: py3.11-0123456789abcdef.
func validName(name string) bool {
	return regexp.MustCompile(`^py3\.\d{1,2}-[0-9a-f]{16}$`).MatchString(name)
}

// List returns the environments, sorted by name, and the folders that a maker has left unfinished
// or is using.
func (s Store) List() (made []Env, unfinished []string, err error) {
	found, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, f := range found {
		if !validName(f.Name()) {
			continue
		}
		e, err := s.read(f.Name())
		if errors.Is(err, ErrMissing) {
			unfinished = append(unfinished, f.Name())
			continue
		}
		made = append(made, e) // also one whose Python is gone
	}
	return made, unfinished, nil
}

// Remove deletes an environment or an unfinished folder, and returns the number of bytes that it
// used. The error wraps ErrUnknown, or ErrBusy if a process of this machine makes or uses it.
func (s Store) Remove(name string) (freed int64, err error) {
	dir := filepath.Join(s.Dir, name)
	if info, err := os.Stat(dir); !validName(name) || err != nil || !info.IsDir() {
		return 0, fmt.Errorf("%w %q in %s: `rewardloop env list` has the names", ErrUnknown, name, s.Dir)
	}
	l, err := s.tryLock(name)
	if err != nil {
		return 0, err
	}
	if l == nil {
		return 0, fmt.Errorf("%w: %s is being made by another process", ErrBusy, name)
	}
	defer l.Close()
	if pid := usedBy(dir); pid > 0 {
		return 0, fmt.Errorf("%w: process %d runs in %s; end that process first", ErrBusy, pid, dir)
	}
	freed = treeSize(dir)
	// Without the marker nobody takes the half that is left, should this be cut short.
	if err := os.Remove(filepath.Join(dir, marker)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return 0, err
	}
	s.forget(name)
	return freed, nil
}

// forget removes the notes of which Spec was made into an environment.
func (s Store) forget(name string) {
	notes, err := os.ReadDir(filepath.Join(s.Dir, specsDir))
	if err != nil {
		return
	}
	for _, n := range notes {
		at := filepath.Join(s.Dir, specsDir, n.Name())
		if text, err := os.ReadFile(at); err == nil && strings.TrimSpace(string(text)) == name {
			_ = os.Remove(at) // what stays names nothing
		}
	}
}

// usedBy is a process of this machine whose program is that environment's Python; 0: none is
// known. Only Linux says so.
func usedBy(dir string) int {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return 0
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0
	}
	for _, at := range lines {
		text, err := os.ReadFile(at)
		program, _, _ := strings.Cut(string(text), "\x00")
		if err == nil && strings.HasPrefix(program, abs+string(filepath.Separator)) {
			pid := 0
			_, _ = fmt.Sscanf(at, "/proc/%d/", &pid) // the glob matched digits
			return pid
		}
	}
	return 0
}

// treeSize sums the files below dir, which may vanish meanwhile.
func treeSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone, or is not ours to count
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// write replaces a file as a whole.
func write(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".part-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// sorted puts packages in the order of their names.
func sorted(list []Package) []Package {
	slices.SortFunc(list, func(a, b Package) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
