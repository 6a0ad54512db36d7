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

// Config configures the processes of all functions of a server. A zero field means its default. The
// fields listed in Keys are set by the configuration file and documented there; the program sets
// the others.
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

	// CallTimeout is the maximum duration of one call; the caller's context can only shorten it.
	// The default is 120 s.
	CallTimeout time.Duration

	// CancelGrace is the time that a cancelled call of an async function has to end before its
	// process is killed. The default is 2 s.
	CancelGrace time.Duration
	// BackoffMin and BackoffMax are the limits of the pause before a start, after failed starts or
	// after calls that ended their process. The default is 100 ms, which doubles up to 5 s.
	BackoffMin, BackoffMax time.Duration
	// IdleTimeout is the time after which an idle process beyond a function's first is ended. The
	// default is 60 s.
	IdleTimeout time.Duration
	// HiddenEnv contains the names of the environment variables that hold the server's own secrets.
	// A function gets them only if its Options.Env contains their names.
	HiddenEnv []string
	// Log gets a line when the calls of a function have to wait. If nil, nothing is logged.
	Log *slog.Logger
}

// Keys implements keys.Described for the section pool.python.
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

// WithDefaults returns a copy of c with the default for each zero field, except Processes, whose
// default depends on the function.
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

// Validate returns an error that contains every fault of c. The defaults must be filled in.
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

// Options are the options of the scorer "python", which describe one function.
type Options struct {
	// Path is a file (my_reward.py, file://…) or a module (pkg://package.module). With Source, Path
	// is the name of the source, scorer://NAME.
	Path string `json:"path"`
	// Source is the text of a module that is not a file. If it is empty, the module is at Path. A
	// Source is always a model.
	Source string `json:"source,omitempty"`
	// Inputs are the inputs that each sample must have, from InputWords. A sample that lacks one
	// fails with the class BadInput and is not sent to the process.
	Inputs []string `json:"inputs,omitempty"`
	// Name is the name of the function or class in the module. The default is compute_score. A
	// class is instantiated once in each process, without arguments. Its compute_score is called,
	// or the object itself if it has no compute_score; its method log, if it has one, is called
	// after each call.
	Name string `json:"name,omitempty"`
	// Kwargs are passed to every call as keyword arguments. They take precedence over the arguments
	// from the sample.
	Kwargs map[string]any `json:"kwargs,omitempty"`
	// ExtraKeys declares the scalars that the function returns in addition to score: names, each
	// with the kind number, bool or string. If nil, the scalars of the first success are used.
	ExtraKeys map[string]rewards.FieldKind `json:"extra_keys,omitempty"`
	// Pixels is the form of pictures and videos: numpy, torch, pil (PIL.Image; a list for a video),
	// path (a file: PNG, AVI, WAV, NPY, removed after the call) or auto (the default): torch if the
	// function's module has imported it, otherwise numpy.
	Pixels string `json:"pixels,omitempty"`
	// Frames selects the frames of a video that the function gets. The zero value selects all
	// frames.
	Frames rewards.FrameChoice `json:"frames,omitzero"`
	// Concurrency is how many calls one process runs at the same time: in the event loop for an
	// async function (default Config.Concurrency), in threads for a synchronous function (default
	// 1, on the main thread).
	Concurrency int `json:"concurrency,omitempty"`
	// AgentConcurrency is used in place of an unset Concurrency for a class whose compute_score is
	// synchronous, because the recipe async_reward_agent calls such a class in threads. The default
	// is 1.
	AgentConcurrency int `json:"agent_concurrency,omitempty"`
	// Memory is the maximum resident memory of a process and all processes that it starts, in
	// bytes. The default is Config.MemoryBytes.
	Memory int64 `json:"memory,omitempty"`
	// Signature is the form in which the function is called, one of Signatures. If it is empty, a
	// function scores one sample, and a model scores a batch of samples. With a Signature, the
	// function is called with whole prompt groups and becomes a GroupFunction, unless
	// Placement.Batch is set.
	Signature string `json:"signature,omitempty"`
	// Reference is the field of the sample that contains the reference answer, such as ground_truth
	// or extra_info.y.0.content. The reference answer becomes a member of the groups of the
	// validation split. If it is empty, there is no reference answer.
	Reference string `json:"reference,omitempty"`
	// Placement makes the function a model, which runs in batches on devices. If nil, it is a
	// function.
	Placement *Placement `json:"placement,omitempty"`
	// Interpreter is the Python interpreter of this function. The default is Config.Interpreter.
	Interpreter string `json:"interpreter,omitempty"`
	// Timeout is the timeout of the component, from which the timeout of a model's runs is derived.
	// The default is rewards.DefaultComponentTimeout.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Env contains the names of the environment variables that the function gets, in addition to
	// those of Python, its accelerators and its thread pools. If nil, the function gets all
	// variables except Config.HiddenEnv and variables with secrets of the server.
	Env []string `json:"env"`
	// Probe contains the kinds of known samples (see Kinds) with which TryKnown calls the function.
	// If nil, the kinds follow from the function's parameters; if empty, no calls are made.
	Probe []string `json:"probe"`
}

// minMemory is less than any Python needs.
const minMemory = 16 << 20

// functionName is the default of Options.Name.
const functionName = "compute_score"

// WithDefaults returns a copy of o with the default for each zero field.
func (o Options) WithDefaults() Options {
	o.Name = cmp.Or(o.Name, functionName)
	o.Pixels = cmp.Or(o.Pixels, "auto")
	if o.Placement != nil {
		p := o.Placement.WithDefaults()
		o.Placement = &p
	}
	return o
}

// Validate returns an error that contains every fault of o. The defaults must be filled in. A file
// must exist; whether a module exists is checked later by the process.
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

// PixelForms returns the values of Options.Pixels.
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
