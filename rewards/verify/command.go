package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// commandOptions are those of the kind command.
type commandOptions struct {
	// Argv is the program and its arguments. No shell reads them.
	Argv []string `json:"argv"`
	// Output says what stdout holds: json, or text, which becomes a JSON string.
	Output string `json:"output"`
	// Env names the variables of the server that the program gets.
	Env []string `json:"env"`
	// RunTimeout bounds a run, besides the verifier's own timeout.
	RunTimeout service.Duration `json:"run_timeout"`
	// MaxConcurrent is the most runs at a time.
	MaxConcurrent int `json:"max_concurrent"`
	// The limits of each process: address space, CPU time in seconds, open files, size
	// of a file, and how many processes and threads more than there are now.
	MemoryMB   int `json:"memory_mb"`
	CPUSeconds int `json:"cpu_seconds"`
	Files      int `json:"files"`
	FileMB     int `json:"file_mb"`
	Processes  int `json:"processes"`
}

func commandDefaults() commandOptions {
	return commandOptions{
		Output: "json", Env: []string{"PATH"}, RunTimeout: service.Duration(DefaultTimeout), MaxConcurrent: runtime.NumCPU(),
		MemoryMB: 4096, Files: 256, FileMB: 64, Processes: 256,
	}
}

func commandDocumentation() []rewards.Option {
	return []rewards.Option{
		{Name: "argv", Type: "list", Default: "required", Doc: "program (full path or a name on PATH) and its arguments; no shell interprets them"},
		{Name: "output", Type: "string", Default: "json", Doc: "format of the program's standard output: json or text"},
		{Name: "env", Type: "list", Default: "[PATH]", Doc: "names of the environment variables that the program gets from the server"},
		{Name: "run_timeout", Type: "duration", Default: "30s", Doc: "timeout of one run; after the timeout the program and all its child processes are killed"},
		{Name: "max_concurrent", Type: "int", Default: "number of CPUs", Doc: "maximum number of runs at a time; further samples wait"},
		{Name: "memory_mb", Type: "int", Default: "4096", Doc: "maximum address space of a process in MB (RLIMIT_AS)"},
		{Name: "cpu_seconds", Type: "int", Default: "run_timeout times CPUs", Doc: "maximum CPU time of a process in seconds (RLIMIT_CPU)"},
		{Name: "files", Type: "int", Default: "256", Doc: "maximum number of open files of a process (RLIMIT_NOFILE)"},
		{Name: "file_mb", Type: "int", Default: "64", Doc: "maximum size in MB of a file that the program writes (RLIMIT_FSIZE)"},
		{Name: "processes", Type: "int", Default: "256", Doc: "maximum number of processes and threads, in addition to those of the machine at the program's start (RLIMIT_NPROC); not enforced for root"},
	}
}

// parseCommandOptions reads the options and finds the program.
func parseCommandOptions(raw json.RawMessage) (o commandOptions, program string, err error) {
	o = commandDefaults()
	err = decode(raw, &o, commandDocumentation())
	var f service.Faults
	if len(o.Argv) == 0 {
		f.Add(true, "argv", "is missing: give the program and its arguments as a list")
	} else {
		var wrong error
		program, wrong = findProgram(o.Argv[0])
		f.Check("argv[0]", wrong)
	}
	for i, arg := range o.Argv {
		f.Add(strings.ContainsRune(arg, 0), fmt.Sprintf("argv[%d]", i), "contains a zero byte")
	}
	f.Add(o.Output != "json" && o.Output != "text", "output", "%q is unknown, want json or text", service.Clip(o.Output, 40))
	for i, name := range o.Env {
		at := fmt.Sprintf("env[%d]", i)
		_, set := os.LookupEnv(name)
		f.Add(name == "" || strings.ContainsAny(name, "=\x00"), at, "%q is not the name of an environment variable; name variables of the server, whose values are passed on", service.Clip(name, 40))
		f.Add(!set && name != "PATH" && name != "", at, "%s is not set in the server's environment", service.Clip(name, 40))
	}
	f.Time("run_timeout", o.RunTimeout)
	f.Between("max_concurrent", o.MaxConcurrent, 1, 4096)
	f.Between("memory_mb", o.MemoryMB, 1, 1<<24)
	if o.CPUSeconds == 0 {
		o.CPUSeconds = int(math.Ceil(time.Duration(o.RunTimeout).Seconds())) * runtime.NumCPU()
	}
	f.Between("cpu_seconds", o.CPUSeconds, 1, 1<<30)
	f.Between("files", o.Files, 3, 1<<20)
	f.Between("file_mb", o.FileMB, 0, 1<<24)
	f.Between("processes", o.Processes, 1, 1<<20)
	return o, program, errors.Join(err, f.Err())
}

// findProgram returns the full path of a program. A path relative to some folder is
// refused: the program runs in a folder of its own.
func findProgram(name string) (string, error) {
	if !filepath.IsAbs(name) && strings.ContainsRune(name, filepath.Separator) {
		return "", fmt.Errorf("%q: give the full path", service.Clip(name, 200))
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("no such program: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("%q: %w", service.Clip(name, 200), err)
	}
	return path, nil
}

// commandVerifier runs a program.
type commandVerifier struct {
	options commandOptions
	program string
	env     []string
	running chan struct{} // one place per run
}

func newCommand(raw json.RawMessage) (rewards.Verifier, error) {
	o, program, err := parseCommandOptions(raw)
	if err = errors.Join(errNoProcesses, err); err != nil {
		return nil, err
	}
	c := &commandVerifier{options: o, program: program, running: make(chan struct{}, o.MaxConcurrent)}
	for _, name := range o.Env {
		if value, set := os.LookupEnv(name); set {
			c.env = append(c.env, name+"="+value)
		}
	}
	return c, nil
}

// Concurrency is how many runs there are at a time.
func (c *commandVerifier) Concurrency() int { return c.options.MaxConcurrent }

// ConcurrencyReason names the program.
func (c *commandVerifier) ConcurrencyReason() string {
	return rewards.Count(c.options.MaxConcurrent, "run") + " of " + c.program + " at a time"
}

// maxInput bounds what a program is given, in bytes.
const maxInput = 16 << 20

// killWait bounds how long what was killed may take to end.
const killWait = 5 * time.Second

// Verify runs the program once, with the sample as JSON on its standard input, and
// returns when nothing of it is left.
func (c *commandVerifier) Verify(ctx context.Context, s *rewards.Sample) (json.RawMessage, error) {
	input, err := encode(s)
	if err != nil {
		return nil, fmt.Errorf("%w: the sample: %w", rewards.BadInput, err)
	}
	if len(input) > maxInput {
		return nil, fmt.Errorf("%w: the sample has %d bytes, over %d", rewards.BadInput, len(input), maxInput)
	}
	select {
	case c.running <- struct{}{}:
	case <-ctx.Done():
		return nil, rewards.Blamed(rewards.BlameNobody, ended(ctx, "waiting for one of %d runs of %s to end", c.options.MaxConcurrent, c.program))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.options.RunTimeout))
	defer cancel()
	done := make(chan ending, 1)
	go func() { // ends with the process; Verify waits for it, unless the kernel does not let the process go
		began := time.Now()
		e := c.inOwnFolder(ctx, input)
		e.took = time.Since(began)
		<-c.running
		done <- e
	}()
	var e ending
	select {
	case e = <-done:
	case <-ctx.Done():
		select {
		case e = <-done:
		case <-time.After(killWait + killWait/2):
			return nil, rewards.Blamed(rewards.BlameWorker, ended(ctx, "%s cannot be killed", c.program))
		}
	}
	return c.judge(ctx, e)
}

// inOwnFolder makes the folder that is the program's own, runs it and removes the
// folder.
func (c *commandVerifier) inOwnFolder(ctx context.Context, input []byte) (e ending) {
	folder, err := os.MkdirTemp("", "rewardloop-verify-")
	if err != nil {
		return ending{failed: rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: a folder for %s: %w", rewards.Unavailable, c.program, err))}
	}
	defer func() {
		if err := removeAll(folder); err != nil && e.failed == nil {
			e.failed = fmt.Errorf("%w: the files that %s left in its folder cannot be removed: %w", rewards.Internal, c.program, err)
		}
	}()
	p := &process{
		program: c.program, argv: c.options.Argv, folder: folder, input: input, limits: c.options.limits(),
		env: slices.Concat([]string{"HOME=" + folder, "TMPDIR=" + folder, "LANG=C.UTF-8"}, c.env),
	}
	return p.run(ctx)
}

// removeAll removes a folder, also one with folders in it that were made read-only.
func removeAll(folder string) error {
	if os.RemoveAll(folder) == nil {
		return nil
	}
	_ = filepath.WalkDir(folder, func(path string, d os.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // a folder must be entered to be emptied
		}
		return nil
	})
	return os.RemoveAll(folder) // names the path
}

// ending is how a run ended.
type ending struct {
	// failed is why there was no run to speak of, or why it was ended.
	failed error
	// signal ended the program by its own fault; "": none did.
	signal string
	code   int
	stdout []byte
	stderr string
	took   time.Duration
}

// judge makes a result or a failure of an ending.
func (c *commandVerifier) judge(ctx context.Context, e ending) (json.RawMessage, error) {
	told := ""
	if e.stderr != "" {
		told = "; stderr: " + service.Quote([]byte(e.stderr))
	}
	fail := func(class rewards.Class, format string, args ...any) (json.RawMessage, error) {
		return nil, fmt.Errorf("%w: %s %s%s", class, c.program, fmt.Sprintf(format, args...), told)
	}
	switch {
	case errors.Is(e.failed, errLate):
		return nil, fmt.Errorf("%w%s", ended(ctx, "%s was killed after %v", c.program, e.took.Round(time.Millisecond)), told)
	case e.failed != nil:
		return nil, fmt.Errorf("%w%s", e.failed, told)
	case e.signal == signalCPU:
		return fail(rewards.Timeout, "used more than cpu_seconds = %d", c.options.CPUSeconds)
	case e.signal == signalFile:
		return fail(rewards.Internal, "wrote a file larger than file_mb = %d", c.options.FileMB)
	case e.signal != "":
		return fail(rewards.Crashed, "was ended by the signal %s", e.signal)
	case e.code != 0:
		return fail(rewards.Internal, "ended with status %d", e.code)
	case c.options.Output == "text":
		return quoted(strings.ToValidUTF8(string(e.stdout), "\uFFFD")), nil
	}
	result := bytes.TrimSpace(e.stdout)
	if !json.Valid(result) {
		return fail(rewards.Internal, "wrote %s on stdout, want JSON", service.Quote(result))
	}
	return result, nil
}

// errLate is the ending of a run whose context ended.
var errLate = errors.New("the time limit of the program has passed")

// errTooMuch ends the copying of an output that is over its bound.
var errTooMuch = errors.New("too much output")

// bounded keeps an output up to MaxResult bytes. The first byte beyond closes over.
type bounded struct {
	kept []byte
	full bool
	over chan struct{}
}

// Write is called by one goroutine.
func (b *bounded) Write(p []byte) (int, error) {
	if b.full || len(b.kept)+len(p) > maxResult {
		if !b.full {
			b.full = true
			close(b.over)
		}
		return 0, errTooMuch
	}
	b.kept = append(b.kept, p...)
	return len(p), nil
}
