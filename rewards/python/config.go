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

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/rewards"
)

// Config is what processes are made from, for all functions of a server. The zero value of a
// field means its default. What Keys lists is set by the configuration file, and Keys says what
// it means; the rest is the program's.
type Config struct {
	// Interpreter defaults to python3 on PATH, MemoryBytes to a quarter of the memory of the
	// machine or container.
	Interpreter  string
	Processes    int
	Concurrency  int
	MemoryBytes  int64
	FileBytes    int64
	Files        int
	StartTimeout time.Duration
	StallTimeout time.Duration

	// CallTimeout bounds one call besides the caller's context, which may only be
	// shorter; default 120 s.
	CallTimeout time.Duration

	// CancelGrace is how long a cancelled call of an async process has to end before
	// the process is killed; default 2 s.
	CancelGrace time.Duration
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

// Keys implements keys.Described: the section pool.python.
func (c *Config) Keys(k *keys.Set) {
	k.Text(&c.Interpreter, "interpreter", "", "Path of Python 3.10 or newer, such as .venv/bin/python. Empty: REWARDLOOP_PYTHON, else python3 on PATH.")
	k.Int(&c.Processes, "processes", 0, "Maximum number of processes of a function: 1 of its own, the others started on demand and shared by all functions. 0: one per CPU, but 1 for a function that is async or sets concurrency.").Max(1024)
	k.Int(&c.Concurrency, "concurrency", 256, "Maximum number of calls to an async function that one process runs at a time, unless the component sets concurrency.").Between(1, 65536)
	k.Size(&c.MemoryBytes, "memory", 0, "Maximum resident memory of one process, child processes included, unless the component sets memory. 0: a quarter of the memory of the machine or the container.")
	k.Size(&c.FileBytes, "file_bytes", 1<<30, "Maximum size of a file that a function may write.").Min(1 << 10)
	k.Int(&c.Files, "files", 1024, "Maximum number of open files and sockets of a process.").Between(16, 1<<20)
	k.Duration(&c.StartTimeout, "start_timeout", 2*time.Minute, "Time limit for starting one process: import of the module and creation of the class. A Python model has load_timeout instead.").Min(time.Millisecond)
	k.Duration(&c.StallTimeout, "stall_timeout", 10*time.Second, "Time for which a call to an async function may block the other calls of the process. After this time the process is killed.").Min(time.Millisecond)
}

// WithDefaults fills what is not set, except Processes, whose default depends on the
// function.
func (c Config) WithDefaults() Config {
	keys.Fill(&c)
	c.Interpreter = cmp.Or(c.Interpreter, "python3")
	if c.MemoryBytes == 0 {
		c.MemoryBytes = defaultMemory()
	}
	c.CallTimeout = cmp.Or(c.CallTimeout, rewards.DefaultComponentTimeout)
	c.CancelGrace = cmp.Or(c.CancelGrace, 2*time.Second)
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
	errs := []error{keys.Validate("python", &c)}
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("python: "+format, args...))
		}
	}
	bad(c.MemoryBytes < minMemory, "memory of %d bytes, want %d or more", c.MemoryBytes, minMemory)
	bad(c.CallTimeout < 0 || c.CancelGrace < 0 || c.IdleTimeout < 0, "a timeout is negative")
	bad(c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin, "backoff from %v to %v", c.BackoffMin, c.BackoffMax)
	return errors.Join(errs...)
}

// Options names one function: the options of the scorer "python".
type Options struct {
	// Path is a file (my_reward.py, file://…) or a module (pkg://package.module); with a Source it is
	// the name that this has, scorer://NAME.
	Path string `json:"path"`
	// Source is the text of a module that is no file; "": there is one at Path. It is a model.
	Source string `json:"source,omitempty"`
	// Inputs are what each sample must have, of InputWords; one that lacks some is BadInput and does
	// not reach the process.
	Inputs []string `json:"inputs,omitempty"`
	// Name is the function or class in it; default compute_score. A class is made
	// once in each process, without arguments; its compute_score is called, else the
	// object itself, and its log, where it has one, after each call.
	Name string `json:"name,omitempty"`
	// Kwargs are handed to every call by keyword; they win over the sample's own.
	Kwargs map[string]any `json:"kwargs,omitempty"`
	// ExtraKeys declares the scalars besides score that the function returns, name to
	// number, bool or string; nil: those of the first success.
	ExtraKeys map[string]rewards.FieldKind `json:"extra_keys,omitempty"`
	// Pixels is numpy, torch, pil (PIL.Image; of a video a list), path (a file: PNG, AVI, WAV, NPY,
	// removed after the call) or auto (default): torch if the function's module has imported it,
	// else numpy.
	Pixels string `json:"pixels,omitempty"`
	// Frames chooses the frames of a video that the function is given; the zero value: all.
	Frames rewards.FrameChoice `json:"frames,omitzero"`
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
	// Signature is the form in which the function is called, one of Signatures; "": it scores one
	// sample, or as a model batches. Unless Placement.Batch is set it is called with whole prompt
	// groups, and Functions makes a GroupFunction of it.
	Signature string `json:"signature,omitempty"`
	// Reference is where the reference answer stands that takes part in the groups of the
	// validation split: ground_truth, extra_info.y.0.content; "": none takes part.
	Reference string `json:"reference,omitempty"`
	// Placement makes a model of it, which runs in batches on devices; nil: it is a function.
	Placement *Placement `json:"placement,omitempty"`
	// Interpreter is a Python of its own; "": Config.Interpreter.
	Interpreter string `json:"interpreter,omitempty"`
	// Timeout is that of the component, from which the time of a model's runs follows; 0: that of
	// the pool.
	Timeout time.Duration `json:"timeout,omitempty"`
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
	if o.Placement != nil {
		p := o.Placement.WithDefaults()
		o.Placement = &p
	}
	return o
}

// Validate names everything that is wrong with options whose defaults are filled.
// A file must exist; a module is looked for by the process.
func (o Options) Validate() error {
	var errs []error
	if problem := checkPath(o.Path); problem != "" && o.Source == "" {
		errs = append(errs, fmt.Errorf("python: path %q: %s", o.Path, problem))
	}
	if forms := PixelForms(); !slices.Contains(forms, o.Pixels) {
		errs = append(errs, fmt.Errorf("python: pixels %q, want one of %s", o.Pixels, strings.Join(forms, ", ")))
	}
	if o.Source != "" && (o.Placement == nil || o.Signature != "") {
		errs = append(errs, fmt.Errorf("python: %s is a model with a placement, which excludes a signature", o.Path))
	}
	for _, input := range o.Inputs {
		if !slices.Contains(InputWords(), input) {
			errs = append(errs, fmt.Errorf("python: inputs: %q, want %s", input, strings.Join(InputWords(), ", ")))
		}
	}
	errs = append(errs, o.checkForm())
	if o.Placement != nil {
		errs = append(errs, o.Placement.Validate())
		if o.Concurrency > 0 {
			errs = append(errs, errors.New("python: concurrency has no effect with the keys of a model: num_replicas and max_batch_size set how many samples run at a time"))
		}
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

// PixelForms are what Options.Pixels may be.
func PixelForms() []string { return []string{"auto", "numpy", "torch", "pil", "path"} }

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
	if o.Source != "" {
		return path
	}
	if !strings.HasPrefix(path, "pkg://") {
		path = filepath.Base(path)
	}
	return path + ":" + o.Name
}
