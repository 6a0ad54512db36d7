package python

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Config is what hosts are made from, for all functions of a process. The zero
// value of a field means its default.
type Config struct {
	// Interpreter is the Python that runs the functions, 3.10 or newer, such as that
	// of a virtual environment; default python3 on PATH.
	Interpreter string
	// Processes bounds how many processes run the functions: each function has one of its
	// own, and all of them together Processes − 1 more, which are started when calls wait
	// and end when they are idle. Default: one for each CPU, of synchronous functions with
	// one call at a time; others have one process unless Processes is set.
	Processes int
	// Concurrency is how many calls of an async function one process runs at a time,
	// unless Options say it; default 256.
	Concurrency int
	// MemoryBytes bounds the resident memory of a process and all that it starts, unless
	// Options say it; default a quarter of the memory of the machine or container.
	MemoryBytes int64
	// FileBytes bounds each file a host writes (RLIMIT_FSIZE); default 1 GiB.
	FileBytes int64
	// Files bounds the descriptors of a host (RLIMIT_NOFILE); default 1024.
	Files int
	// StartTimeout bounds the start of a host, imports and constructor included;
	// default 120 s.
	StartTimeout time.Duration
	// CallTimeout bounds one call besides the caller's context, which may only be
	// shorter; default 120 s.
	CallTimeout time.Duration
	// CancelGrace is how long a cancelled call of an async host has to end before
	// the host is killed; default 2 s.
	CancelGrace time.Duration
	// StallTimeout is how long a call of an async function may block the event loop
	// of the others before its host is killed; default 10 s.
	StallTimeout time.Duration
	// BackoffMin and BackoffMax bound the pause before a start that follows failed ones, or
	// calls that ended their process; default 100 ms doubling up to 5 s.
	BackoffMin, BackoffMax time.Duration
	// IdleTimeout is how long a process beyond a function's first may have nothing to do
	// before it is ended; default 60 s.
	IdleTimeout time.Duration
	// HiddenEnv names the variables of the server's environment that hold its own secrets.
	// No function sees them, unless its Options name them.
	HiddenEnv []string
	// Log gets a line when the calls of a function have to wait; nil: nothing is logged.
	Log *slog.Logger
}

// WithDefaults fills what is not set, except Processes, whose default depends on the
// function.
func (c Config) WithDefaults() Config {
	c.Interpreter = cmp.Or(c.Interpreter, "python3")
	c.Concurrency = cmp.Or(c.Concurrency, 256)
	if c.MemoryBytes == 0 {
		c.MemoryBytes = defaultMemory()
	}
	c.FileBytes = cmp.Or(c.FileBytes, 1<<30)
	c.Files = cmp.Or(c.Files, 1024)
	c.StartTimeout = cmp.Or(c.StartTimeout, 2*time.Minute)
	c.CallTimeout = cmp.Or(c.CallTimeout, rewards.DefaultTermTimeout)
	c.CancelGrace = cmp.Or(c.CancelGrace, 2*time.Second)
	c.StallTimeout = cmp.Or(c.StallTimeout, 10*time.Second)
	c.BackoffMin = cmp.Or(c.BackoffMin, 100*time.Millisecond)
	c.BackoffMax = cmp.Or(c.BackoffMax, 5*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, time.Minute)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate names everything that is wrong with a configuration whose defaults
// are filled.
func (c Config) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("python: "+format, args...))
		}
	}
	bad(c.Processes < 0 || c.Processes > 1024, "%d processes, want 1 to 1024, or 0 for the default", c.Processes)
	bad(c.Concurrency < 1 || c.Concurrency > 65536, "%d calls at a time, want 1 to 65536", c.Concurrency)
	bad(c.MemoryBytes < minMemory, "memory of %d bytes, want %d or more", c.MemoryBytes, minMemory)
	bad(c.FileBytes < 0, "files of %d bytes are negative", c.FileBytes)
	bad(c.Files < 16, "%d descriptors, want 16 or more", c.Files)
	bad(c.StartTimeout < 0 || c.CallTimeout < 0 || c.CancelGrace < 0 || c.StallTimeout < 0 || c.IdleTimeout < 0, "a timeout is negative")
	bad(c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin, "backoff from %v to %v", c.BackoffMin, c.BackoffMax)
	return errors.Join(errs...)
}

// Options names one function: the options of the scorer "python".
type Options struct {
	// Path is a file (my_reward.py, file://…) or a module (pkg://package.module).
	Path string `json:"path"`
	// Name is the function or class in it; default compute_score. A class is made
	// once in each host, without arguments; its compute_score is called, else the
	// object itself, and its log, where it has one, after each call.
	Name string `json:"name,omitempty"`
	// Kwargs are handed to every call by keyword; they win over the sample's own.
	Kwargs map[string]any `json:"kwargs,omitempty"`
	// ExtraKeys declares the scalars besides score that the function returns, name to
	// number, bool or string; nil: those of the first success.
	ExtraKeys map[string]rewards.FieldKind `json:"extra_keys,omitempty"`
	// Pixels is numpy, torch or auto (default): torch if the function's module has
	// imported it.
	Pixels string `json:"pixels,omitempty"`
	// Concurrency is how many calls one process runs at a time: of an async function in
	// its event loop (default Config.Concurrency), of a synchronous one in threads
	// (default 1, on the main thread).
	Concurrency int `json:"concurrency,omitempty"`
	// AgentConcurrency is Concurrency of a class whose compute_score is synchronous, where
	// that is not set: such a class is that of the recipe async_reward_agent, which calls
	// it in threads. Default 1.
	AgentConcurrency int `json:"agent_concurrency,omitempty"`
	// Memory bounds the resident memory of a process and all that it starts, in bytes;
	// default Config.MemoryBytes.
	Memory int64 `json:"memory,omitempty"`
	// Env names the variables that the function sees besides what Python itself, its
	// accelerators and its thread pools read; nil: all but Config.HiddenEnv.
	Env []string `json:"env"`
	// Probe names the kinds of known sample, of Kinds, that TryKnown calls the function with;
	// nil: those that its parameters name, empty: none.
	Probe []string `json:"probe"`
}

// minMemory is less than any Python needs.
const minMemory = 16 << 20

// functionName is the default of Options.Name.
const functionName = "compute_score"

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	o.Name = cmp.Or(o.Name, functionName)
	o.Pixels = cmp.Or(o.Pixels, "auto")
	return o
}

// Validate names everything that is wrong with options whose defaults are filled.
// A file must exist; a module is looked for by the host.
func (o Options) Validate() error {
	var errs []error
	if problem := checkPath(o.Path); problem != "" {
		errs = append(errs, fmt.Errorf("python: path %q: %s", o.Path, problem))
	}
	if !slices.Contains([]string{"auto", "numpy", "torch"}, o.Pixels) {
		errs = append(errs, fmt.Errorf("python: pixels %q, want auto, numpy or torch", o.Pixels))
	}
	if o.Concurrency < 0 || o.Concurrency > 65536 || o.AgentConcurrency < 0 || o.AgentConcurrency > 65536 {
		errs = append(errs, fmt.Errorf("python: concurrency %d, want 1 to 65536, or 0 for the default", o.Concurrency))
	}
	if o.Memory != 0 && o.Memory < minMemory {
		errs = append(errs, fmt.Errorf("python: memory of %d bytes, want %d or more", o.Memory, minMemory))
	}
	for _, kind := range o.Probe {
		if !slices.Contains(Kinds(), kind) {
			errs = append(errs, fmt.Errorf("python: probe: %q, want %s", kind, strings.Join(Kinds(), ", ")))
		}
	}
	for name, kind := range o.ExtraKeys {
		if kind != rewards.Number && kind != rewards.Bool && kind != rewards.String {
			errs = append(errs, fmt.Errorf("python: extra_keys: %s is %q, want number, bool or string", name, kind))
		}
	}
	if _, err := json.Marshal(o.Kwargs); err != nil {
		errs = append(errs, fmt.Errorf("python: kwargs: %w", err))
	}
	return errors.Join(errs...)
}

func checkPath(path string) string {
	if module, ok := strings.CutPrefix(path, "pkg://"); ok {
		if module == "" {
			return "want pkg:// and the name of a module"
		}
		return ""
	}
	file := strings.TrimPrefix(path, "file://")
	if filepath.Ext(file) != ".py" {
		return "want a .py file or pkg:// and the name of a module"
	}
	if info, err := os.Stat(file); err != nil {
		return "cannot be read: " + err.Error()
	} else if info.IsDir() {
		return "is a folder"
	}
	return ""
}

// label stands for the function in messages: its file or module, and its name.
func (o Options) label() string {
	path := o.Path
	if !strings.HasPrefix(path, "pkg://") {
		path = filepath.Base(path)
	}
	return path + ":" + o.Name
}
