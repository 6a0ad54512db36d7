package python

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
)

//go:embed model.py
var modelSource []byte

// bootstrap is what the interpreter is started with: it reads the first frame, which brings the
// text of process.py, model.py and forms.py.
const bootstrap = `import json, socket, sys, types
s = socket.socket(fileno=3)
def take(n):
    b = bytearray()
    while len(b) < n:
        p = s.recv(n - len(b))
        if not p: sys.exit(0)
        b += p
    return bytes(b)
h, b = [int.from_bytes(take(4), "little") for _ in range(2)]
header, init = json.loads(take(h)), json.loads(take(b))
for name in ("rewardloop_process", "rewardloop_model", "rewardloop_forms"):
    m = sys.modules[name] = types.ModuleType(name)
    exec(compile(init["sources"][name], "<stdin>", "exec"), m.__dict__)
sys.modules["rewardloop_model"].main(s, header, init["spec"])
`

// modelSpec is what a process of a model is told to load.
type modelSpec struct {
	load

	Device string  `json:"device"` // cpu, or cuda:0: it sees its own card alone
	Warmup *warmup `json:"warmup,omitempty"`
}

// warmup is the batch of known samples that a process scores when it has loaded its model: the first of
// Kinds, nil: of the kinds that its parameters name.
type warmup struct {
	Samples int                    `json:"samples"`
	Kinds   []string               `json:"kinds"`
	Grouped bool                   `json:"grouped,omitempty"` // one group of so many samples
	Known   map[string]knownOnWire `json:"known"`
}

type knownOnWire struct {
	Head json.RawMessage `json:"head"`
	Body []byte          `json:"body"` // what the tensors of Head lie in
}

// warmupOf is the warm-up of a model; nil: it has none.
func warmupOf(opts Options) (*warmup, error) {
	w := &warmup{Samples: opts.Placement.Warmup, Kinds: opts.Probe, Grouped: opts.Grouped(), Known: map[string]knownOnWire{}}
	if w.Samples == 0 {
		return nil, nil //nolint:nilnil // it says so
	}
	if f, _ := opts.form(); f.probe != "" && w.Kinds == nil {
		w.Kinds = []string{f.probe}
	}
	for _, kind := range Kinds() {
		sample := KnownSample(kind, true)
		t := &payload{}
		media, err := t.add(context.Background(), sample) // raw pixels: nothing is decoded
		if err != nil {
			return nil, err
		}
		js, err := json.Marshal(head{sample, media})
		if err != nil {
			return nil, err
		}
		w.Known[kind] = knownOnWire{js, bytes.Join(t.body, nil)}
	}
	return w, nil
}

// aboutKey is the entry of infer.Info.Metadata that holds an about.
const aboutKey = "python.about"

// about is what a process says of its model.
type about struct {
	PID    int    `json:"pid"`
	Python string `json:"python"`
	Form   string `json:"form"`
	Sleeps bool   `json:"sleeps"`
	Bytes  int64  `json:"bytes"`  // of the card's memory
	Warmup string `json:"warmup"` // why the warm-up failed; "": it did not

	takes
}

// Runner runs one model on one device, in its own processes. It implements pool.Runner.
type Runner struct {
	cfg  Config
	opts Options
	card string // CUDA_VISIBLE_DEVICES of the processes; "" on the CPU

	mu     sync.Mutex
	pool   *subprocess.Pool // guarded by mu; nil: it is not loaded
	asleep bool             // guarded by mu
	about  about            // guarded by mu; of the newest process
}

var _ pool.Runner = (*Runner)(nil)

// Slots returns the number of processes.
func (r *Runner) Slots() int { return r.opts.Placement.Replicas }

// Load starts the processes, or wakes them if they sleep.
func (r *Runner) Load(ctx context.Context, _ infer.Model) (infer.Info, error) {
	r.mu.Lock()
	p, asleep := r.pool, r.asleep
	r.mu.Unlock()
	var err error
	switch {
	case p == nil:
		err = r.start(ctx)
	case asleep:
		if err = r.everywhere(ctx, p, "wake"); err != nil && ctx.Err() == nil {
			r.end(ctx, p) // what does not wake up is started again
			err = r.start(ctx)
		}
	}
	if err != nil {
		return infer.Info{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asleep = false
	said, err := json.Marshal(r.about)
	if err != nil {
		return infer.Info{}, fmt.Errorf("%w: %w", infer.ErrFault, err)
	}
	return infer.Info{Provider: "Python " + r.about.Python, Bytes: r.about.Bytes, Metadata: map[string]string{aboutKey: string(said)}}, nil
}

// start starts the processes.
func (r *Runner) start(ctx context.Context) error {
	cfg, err := r.config()
	if err != nil {
		return err
	}
	p, err := subprocess.New(cfg)
	if err != nil {
		return fmt.Errorf("%w: %w", infer.ErrUnavailable, err)
	}
	if err := p.Start(ctx); err != nil {
		return r.startError(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pool = p
	return nil
}

// config is what the processes are made from.
func (r *Runner) config() (subprocess.Config, error) {
	cfg, opts := r.cfg, r.opts
	interpreter, err := exec.LookPath(cfg.interpreter(opts))
	if err != nil {
		return subprocess.Config{}, infer.Marked(infer.ErrMissing, fmt.Errorf("%w: %s: its Python: %w", infer.ErrUnavailable, opts.label(), err))
	}
	device := infer.CPU
	if r.card != "" {
		device = "cuda:0"
	}
	first, err := warmupOf(opts)
	if err != nil {
		return subprocess.Config{}, fmt.Errorf("%w: the warm-up of %s: %w", infer.ErrModel, opts.label(), err)
	}
	init, err := json.Marshal(map[string]any{
		"sources": map[string]string{"rewardloop_process": string(processSource), "rewardloop_model": string(modelSource), "rewardloop_forms": string(formsSource)},
		"spec": modelSpec{
			load: load{
				Protocol: protocol, Path: opts.Path, Source: opts.Source, Name: opts.Name, Pixels: opts.Pixels, Kwargs: opts.Kwargs,
				Limits: map[string]int64{"FSIZE": cfg.FileBytes, "NOFILE": int64(cfg.Files)}, Model: true, Columns: opts.Placement.Batch,
				Signature: opts.Signature, Reference: opts.Reference != "",
			},
			Device: device, Warmup: first,
		},
	})
	if err != nil {
		return subprocess.Config{}, fmt.Errorf("%w: %w", infer.ErrModel, err)
	}
	return subprocess.Config{
		Kind: "model", Command: []string{interpreter, "-u", "-c", bootstrap}, Env: r.environment(),
		Slots: r.Slots(), Init: init, MaxPixels: math.MaxInt32, StartTimeout: opts.Placement.LoadTimeout,
		RequestTimeout: opts.runTimeout(), PingEvery: 30 * time.Second, Recycle: math.MaxInt,
		Keeper: true, Started: r.started, Final: func(class string) bool { return class == "missing" || class == "refused" },
		Memory: cfg.memory(opts), Resident: resident,
	}, nil
}

// environment is that of a function, with the model's card, and with a thread for each CPU that the
// model's processes share.
func (r *Runner) environment() []string {
	replicas := r.Slots() * len(r.opts.Placement.Devices)
	threads := strconv.Itoa(max(1, runtime.NumCPU()/replicas))
	env := slices.DeleteFunc(environment(r.opts.Env, r.cfg.HiddenEnv), func(pair string) bool {
		return strings.HasPrefix(pair, "CUDA_VISIBLE_DEVICES=")
	})
	for _, name := range threadVariables() {
		if _, set := os.LookupEnv(name); !set {
			env = append(env, name+"="+threads) // of two the last one counts
		}
	}
	return append(env, "CUDA_VISIBLE_DEVICES="+r.card)
}

// started takes in what a new process says.
func (r *Runner) started(body []byte) {
	var a about
	if json.Unmarshal(body, &a) != nil {
		return // its first answer to a batch will be as wrong
	}
	if a.Warmup != "" {
		r.cfg.Log.Warn("the warm-up of a Python model failed", "function", r.opts.label(), "samples", r.opts.Placement.Warmup, "error", a.Warmup)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.about = a
}

// startError is why the processes do not start, in the words of internal/infer.
func (r *Runner) startError(err error) error {
	said := &subprocess.Error{}
	if errors.As(err, &said) {
		switch said.Class {
		case "missing":
			return infer.Marked(infer.ErrMissing, fmt.Errorf("%w: %s: %s", infer.ErrUnavailable, r.opts.label(), said.Message))
		case "refused":
			return fmt.Errorf("%w: %s: %s", infer.ErrModel, r.opts.label(), said.Message)
		case memoryClass:
			return fmt.Errorf("%w: %s: %s", infer.ErrMemory, r.opts.label(), said.Message)
		}
		return fmt.Errorf("%w: %s: %s", infer.ErrUnavailable, r.opts.label(), said.Message)
	}
	return fmt.Errorf("%w: %s with %s: %w", infer.ErrUnavailable, r.opts.label(), r.cfg.interpreter(r.opts), err)
}

// memoryClass is the class of the error of a device without memory.
const memoryClass = "memory"

// running are the processes; nil: the model is not loaded.
func (r *Runner) running() *subprocess.Pool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pool
}

// Unload frees the card's memory: the processes sleep if the class has the methods sleep and wake,
// and end otherwise.
func (r *Runner) Unload(ctx context.Context, _ infer.Model) error {
	r.mu.Lock()
	p, sleeps := r.pool, r.about.Sleeps
	r.mu.Unlock()
	if p == nil {
		return nil
	}
	if sleeps && r.everywhere(ctx, p, "sleep") == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asleep = true
		return nil
	}
	r.end(ctx, p)
	return nil
}

// end ends the processes.
func (r *Runner) end(ctx context.Context, p *subprocess.Pool) {
	r.mu.Lock()
	r.pool, r.asleep = nil, false
	r.mu.Unlock()
	_ = p.Stop(ctx) // what had to be killed has ended, too
}

// everywhere has every process do something that is not for a sample.
func (r *Runner) everywhere(ctx context.Context, p *subprocess.Pool, op string) error {
	_, err := r.each(ctx, p, func(int) any { return map[string]string{"op": op} })
	return err
}

// each asks every process something that is not for a sample, with its number from 0, and returns their answers.
func (r *Runner) each(ctx context.Context, p *subprocess.Pool, what func(process int) any) ([][]byte, error) {
	leases := make([]subprocess.Lease, 0, r.Slots())
	defer func() {
		for _, l := range leases {
			l.Release()
		}
	}()
	for range r.Slots() {
		l, err := p.Take(ctx, fair.Tenant{})
		if err != nil {
			return nil, incoming(ctx, 1, err)
		}
		leases = append(leases, l)
	}
	answers := make([][]byte, len(leases))
	for i, l := range leases {
		meta, err := json.Marshal(what(i))
		if err != nil {
			return nil, err
		}
		answer, err := l.Do(ctx, subprocess.Request{Name: "all processes", Meta: meta})
		if err != nil {
			return nil, incoming(ctx, 1, err)
		}
		answers[i] = answer.Body
	}
	return answers, nil
}

// Restart replaces all processes.
func (r *Runner) Restart(ctx context.Context) error {
	p := r.running()
	if p == nil {
		return nil
	}
	if err := p.Restart(ctx); err != nil {
		return incoming(ctx, 1, err)
	}
	return nil
}

// batchItem is a sample of a batch for a process: where its tensors begin in the shared memory.
type batchItem struct {
	Base int             `json:"base"`
	Head json.RawMessage `json:"head"`
}

// Run scores a batch in one of the processes. The result is one Text tensor with a reply for each
// message.
func (r *Runner) Run(ctx context.Context, m infer.Model, b infer.Batch) ([]infer.Tensor, error) {
	p := r.running()
	if p == nil { // it was unloaded and is wanted again
		if _, err := r.Load(ctx, m); err != nil {
			return nil, err
		}
		p = r.running()
	}
	items, size := make([]batchItem, len(b.Messages)), 0
	var blobs [][]byte
	for i, msg := range b.Messages {
		items[i] = batchItem{size, msg.Head}
		for _, blob := range msg.Blobs {
			blobs, size = append(blobs, blob), size+len(blob)
		}
		if pad := -size & 15; pad > 0 { // tensors begin at multiples of 16 bytes
			blobs, size = append(blobs, make([]byte, pad)), size+pad
		}
	}
	// A batch that raises has half of its time to be taken apart where it is.
	meta, err := json.Marshal(map[string]any{"op": "run", "items": items, "seconds": r.opts.runTimeout().Seconds() / 2})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", infer.ErrInput, err)
	}
	name := b.Names[0]
	if len(b.Names) > 1 {
		name = fmt.Sprintf("%s and %d more", name, len(b.Names)-1)
	}
	answer, err := p.Do(ctx, subprocess.Request{Name: name, Meta: meta, Pixels: blobs, Began: b.Began, Once: len(items) > 1})
	if err != nil {
		return nil, incoming(ctx, len(items), err)
	}
	var out struct {
		Replies []json.RawMessage `json:"replies"`
	}
	if err := json.Unmarshal(answer.Body, &out); err != nil || len(out.Replies) != len(items) {
		return nil, fmt.Errorf("%w: %d replies to %d samples (%w)", infer.ErrFault, len(out.Replies), len(items), errors.Join(err, errFrame))
	}
	texts := make([]string, len(out.Replies))
	for i, reply := range out.Replies {
		texts[i] = string(reply)
	}
	return []infer.Tensor{{Name: "reply", DType: infer.Text, Shape: []int{len(texts)}, Texts: texts}}, nil
}

// Close ends the processes.
func (r *Runner) Close(ctx context.Context) error {
	r.mu.Lock()
	p := r.pool
	r.pool = nil
	r.mu.Unlock()
	if p != nil {
		_ = p.Stop(ctx) // what had to be killed has ended, too
	}
	return nil
}

// Stats returns the state of the processes.
func (r *Runner) Stats() subprocess.Stats {
	if p := r.running(); p != nil {
		return p.Stats()
	}
	return subprocess.Stats{Slots: r.Slots()}
}

// callError is a batch's failure that the process reports.
type callError struct {
	class           rewards.Class
	module, message string
}

// Error implements error.
func (e *callError) Error() string { return e.message }

// Unwrap returns the class.
func (e *callError) Unwrap() error { return e.class }

// incoming puts what a process came to into the words of internal/infer; items is how many samples
// the batch had.
func incoming(ctx context.Context, items int, err error) error {
	said := &subprocess.Error{}
	known := errors.As(err, &said)
	switch {
	case errors.Is(err, subprocess.ErrCrashed):
		out := fmt.Errorf("%w: %w", infer.ErrCrashed, err)
		if errors.Is(err, subprocess.ErrHost) {
			return infer.Marked(infer.ErrHost, out)
		}
		return out
	case errors.Is(err, subprocess.ErrTooLarge) || known && said.Class == subprocess.TooLong:
		if items > 1 { // half of it may fit
			return fmt.Errorf("%w: %w", infer.ErrMemory, err)
		}
		return fmt.Errorf("%w: %w", infer.ErrInput, err)
	case errors.Is(err, subprocess.ErrUnavailable):
		return fmt.Errorf("%w: %w", infer.ErrUnavailable, err)
	case errors.Is(err, subprocess.ErrHandler) && said.Class == memoryClass:
		return fmt.Errorf("%w: %s", infer.ErrMemory, reported(said).message)
	case errors.Is(err, subprocess.ErrHandler):
		return fmt.Errorf("%w: %w", infer.ErrInput, reported(said))
	case errors.Is(err, subprocess.ErrTimeout) && errors.Is(err, subprocess.ErrWaiting):
		return infer.Marked(infer.ErrHost, fmt.Errorf("%w: %w", infer.ErrTimeout, err))
	case errors.Is(err, subprocess.ErrTimeout):
		return infer.Marked(infer.ErrHung, fmt.Errorf("%w: %w", infer.ErrTimeout, err))
	case ctx.Err() != nil:
		return err // it wraps the context's
	}
	return fmt.Errorf("%w: %w", infer.ErrUnavailable, err)
}

// reported reads an error of model.py: its class, the module that is missing and the message.
func reported(said *subprocess.Error) *callError {
	e := &callError{class: rewards.Class(said.Class), message: said.Message}
	var parts [2]string
	if json.Unmarshal([]byte(said.Message), &parts) == nil {
		e.module, e.message = parts[0], parts[1]
	}
	if !slices.Contains(classes, e.class) {
		e.class = rewards.Internal
	}
	return e
}
