package pyenv

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/models"
)

// job is one run of a program that a maker waits for.
type job struct {
	what  string   // in errors
	class error    // of a failure that says nothing that is known
	dir   string   // where it runs; "": here
	temp  string   // where its temporary files lie
	held  *os.File // a lock that lasts as long as the program and what it starts
	file  string   // a temporary file, which is called call where it is named in errors; "": none
	call  string
}

// run runs a program until its end or that of ctx and returns its standard output. Its failure has a
// class of this package's.
func (j job) run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // who makes the environment names it
	cmd.Dir, cmd.Env = j.dir, environment(j.temp)
	cmd.WaitDelay = 5 * time.Second
	models.InOwnGroup(cmd)
	if j.held != nil {
		cmd.ExtraFiles = []*os.File{j.held}
	}
	out, said := &bounded{limit: 8 << 20}, &bounded{limit: 64 << 10}
	cmd.Stdout, cmd.Stderr = out, said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", j.what, context.Cause(ctx))
	case err != nil:
		text := out.String() + "\n" + said.String()
		if j.file != "" {
			text = strings.ReplaceAll(text, j.file, j.call)
		}
		return "", failure(j.what, text, err, j.class)
	}
	return out.String(), nil
}

// environment is what the programs see: not this server's own variables, which may be secrets, and
// nothing that has Python or pip look or install elsewhere.
func environment(temp string) []string {
	var env []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		switch {
		case strings.HasPrefix(name, "REWARDLOOP_"), name == "PYTHONPATH", name == "PYTHONHOME", name == "PYTHONSTARTUP",
			name == "VIRTUAL_ENV", name == "PIP_TARGET", name == "PIP_PREFIX", name == "PIP_ROOT", name == "PIP_USER",
			name == "PIP_REQUIRE_VIRTUALENV", name == "PIP_QUIET", name == "PIP_VERBOSE", name == "PIP_REPORT":
		default:
			env = append(env, pair)
		}
	}
	env = append(env, "PIP_NO_INPUT=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_PYTHON_VERSION_WARNING=1", "PYTHONNOUSERSITE=1",
		"UV_NO_PROGRESS=1", "UV_PYTHON_DOWNLOADS=never", "LC_ALL=C.UTF-8")
	if temp != "" {
		env = append(env, "TMPDIR="+temp)
	}
	return env
}

// bounded keeps the end of what is written. One goroutine of os/exec writes; it is read after
// that has ended.
type bounded struct {
	bytes.Buffer
	limit int
}

func (b *bounded) Write(p []byte) (int, error) {
	n, err := b.Buffer.Write(p)
	if extra := b.Len() - b.limit; extra > 0 {
		b.Next(extra)
	}
	return n, err
}

// python is what an interpreter says of itself.
type python struct {
	Path     string `json:"executable"`
	Version  string `json:"version"`
	Platform string `json:"platform"`
	Base     string `json:"base"`   // where its own packages are
	Prefix   string `json:"prefix"` // another one than Base: it is an environment itself
}

// question has an interpreter describe itself.
const question = `import json, platform, sys, sysconfig
print(json.dumps({"version": platform.python_version(), "base": sys.base_prefix, "prefix": sys.prefix, "executable": sys.executable,
    "platform": "-".join([sys.implementation.name, sysconfig.get_platform(), *platform.libc_ver()]).rstrip("-")}))`

// askTime bounds the question: a first start from a slow disk takes seconds.
const askTime = 30 * time.Second

// ask starts an interpreter. The error wraps ErrPython.
func ask(ctx context.Context, path string) (python, error) {
	limited, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("no answer within %v", askTime))
	defer cancel()
	var p python
	out, err := job{what: "asking " + path + " for its version", class: ErrPython}.run(limited, path, "-I", "-c", question)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, ErrPython) {
			err = fmt.Errorf("%w: %w", ErrPython, err)
		}
		return p, err
	}
	if json.Unmarshal([]byte(out), &p) != nil || p.Version == "" || p.Path == "" {
		return p, fmt.Errorf("%w: %s is not a Python interpreter: its version command answered %q", ErrPython, path, tail(out))
	}
	return p, nil
}

// matches reports whether a version is the wanted one, "3.11" or "3.11.7".
func (p python) matches(want string) bool {
	return want == "" || p.Version == want || strings.HasPrefix(p.Version, want+".")
}

// minor is "3.11" of "3.11.7".
func (p python) minor() string {
	parts := strings.SplitN(p.Version, ".", 3)
	return parts[0] + "." + parts[min(1, len(parts)-1)]
}

// leastPython is the oldest that runs rewards/python.
const leastPython = "3.10"

// find returns the interpreter of a Spec: the one whose path it names, else the first of that
// version among those on PATH and those that uv knows.
func (s Store) find(ctx context.Context, want string) (python, error) {
	var names []string
	minor := want
	if parts := strings.Split(want, "."); len(parts) == 3 {
		minor = parts[0] + "." + parts[1]
	}
	switch {
	case strings.Contains(want, "/"):
		names, want = []string{want}, ""
	case want == "" && s.Python != "":
		names = []string{s.Python}
	case want == "":
		names = []string{"python3"}
	default:
		names = []string{"python" + minor, "python3", "python"}
		if s.Python != "" {
			names = append([]string{s.Python}, names...)
		}
	}
	var tried []string
	try := func(name string) (python, bool) {
		path, err := exec.LookPath(name)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			tried = append(tried, name+" is not there")
			return python{}, false
		}
		p, err := ask(ctx, path)
		switch {
		case err != nil:
			tried = append(tried, path+" does not start")
		case !p.matches(want):
			tried = append(tried, path+" is "+p.Version)
		case older(p.Version, leastPython):
			tried = append(tried, path+" is "+p.Version+", and reward functions need "+leastPython+" or newer")
		default:
			return p, true
		}
		return p, false
	}
	for _, name := range names {
		if p, ok := try(name); ok {
			return p, nil
		}
		if ctx.Err() != nil {
			return python{}, context.Cause(ctx)
		}
	}
	advice := "install it, or name the path of an interpreter"
	if uv, err := exec.LookPath("uv"); err == nil && want != "" {
		at, err := job{what: "uv python find", class: ErrPython}.run(ctx, uv, "python", "find", "--no-project", want)
		if err == nil {
			if p, ok := try(strings.TrimSpace(at)); ok {
				return p, nil
			}
		}
		advice = "`uv python install " + want + "` installs it"
	}
	wanted := "Python"
	if want != "" {
		wanted += " " + want
	}
	return python{}, fmt.Errorf("%w: %s is not on this machine (%s): %s", ErrPython, wanted, strings.Join(tried, ", "), advice)
}
