package ort

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/pool"
)

// kindName is the hidden argument of a child: "rewardloop child ort".
const kindName = "ort"

// Opener creates the runners of devices. It is safe for concurrent use.
type Opener struct {
	cfg Config

	// tune, where a test sets it, changes what a device's children are started with.
	tune func(*subprocess.Config)

	mu   sync.Mutex
	open map[string]procs // guarded by mu; by device, those that did not start among them
}

var (
	_ pool.Opener   = (*Opener)(nil)
	_ pool.Foreseer = (*Opener)(nil)
	_ pool.Runner   = (*runner)(nil)
)

// NewOpener checks the configuration and returns an Opener. It searches for nothing and starts
// nothing.
func NewOpener(cfg Config) (*Opener, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Opener{cfg: cfg, open: make(map[string]procs)}, nil
}

// procs is what subprocess.Pool and subprocess.Inline have in common.
type procs interface {
	Start(ctx context.Context) error
	Do(ctx context.Context, req subprocess.Request) (subprocess.Response, error)
	Take(ctx context.Context, t fair.Tenant) (subprocess.Lease, error)
	Restart(ctx context.Context) error
	Stop(ctx context.Context) error
	Stats() subprocess.Stats
}

// childConfig is what a child is told at its start.
type childConfig struct {
	Library     Library       `json:"library"`
	Device      string        `json:"device"`
	Ordinal     int           `json:"ordinal"`
	LoadTimeout time.Duration `json:"load_timeout"`
	RunTimeout  time.Duration `json:"run_timeout"`
	Grace       time.Duration `json:"grace"`
	CUDA        CUDA          `json:"cuda"`
	// Warm is the largest batch that is tried when a model was loaded, 0: none; WarmBytes bounds
	// its inputs.
	Warm      int `json:"warm"`
	WarmBytes int `json:"warm_bytes"`
	// Language bounds language models.
	Language LanguageLimits `json:"language"`
	// Fresh: every answer needs memory of its own.
	Fresh bool `json:"fresh"`
}

// Open starts the processes of a device: "cpu", or "cuda:<n>", the nth device that is visible to
// this process through CUDA_VISIBLE_DEVICES. Open returns when each process has run the canary. Its
// errors wrap infer.ErrUnavailable and describe what is missing.
func (o *Opener) Open(ctx context.Context, device string) (pool.Runner, error) {
	n, err := parseDevice(device)
	if err != nil {
		return nil, err
	}
	if err := built(); err != nil {
		return nil, err
	}
	var lib Library
	var provider Provider
	seen := ""
	if n < 0 {
		lib, err = Find(o.cfg.Library)
	} else if lib, provider, err = FindCUDA(o.cfg.Library, o.cfg.Python); err == nil {
		seen, err = o.cfg.visible(n)
	}
	if err != nil {
		return nil, err
	}
	slots := o.cfg.SlotsOf(device)
	p, err := o.procs(lib, device, slots, environment(provider.Folders, visibleEnv+"="+seen))
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	o.open[device] = p
	o.mu.Unlock()
	if err := p.Start(ctx); err != nil {
		err = unavailable(fmt.Errorf("%w: starting ONNX Runtime for %s: %w", infer.ErrUnavailable, device, err))
		if remedy := provider.Remedy(); remedy != "" {
			err = fmt.Errorf("%w; the CUDA provider is %v: %s", err, provider, remedy)
		}
		return nil, err
	}
	return &runner{
		cfg: o.cfg, device: device, procs: checked{p}, slots: slots, lenience: loadLenience,
		infos: make(map[infer.Model]infer.Info), has: make(map[int][]infer.Model), alone: make(chan struct{}, 1),
	}, nil
}

// checked looks at every answer: a child that answers garbage is replaced, and what it was asked is
// asked once more.
type checked struct{ procs }

// Do is that of the processes.
func (c checked) Do(ctx context.Context, req subprocess.Request) (subprocess.Response, error) {
	req.Check = readable
	return c.procs.Do(ctx, req)
}

// readable says what is wrong with an answer.
func readable(body []byte) error {
	_, _, err := decodeAnswer(body)
	return err
}

// Slots implements pool.Foreseer.
func (o *Opener) Slots(device string) int { return o.cfg.SlotsOf(device) }

// procs makes the processes of a device without starting them.
func (o *Opener) procs(lib Library, device string, slots int, env []string) (procs, error) {
	child := childConfig{
		Library: lib, Device: device, LoadTimeout: o.cfg.LoadTimeout, RunTimeout: o.cfg.RunTimeout, Grace: o.cfg.Grace,
		CUDA: o.cfg.CUDA, Language: o.cfg.Language, WarmBytes: o.cfg.MaxBatchBytes / 2,
	}
	n, err := parseDevice(device)
	if err != nil {
		return nil, err
	}
	if n >= 0 || o.cfg.WarmCPU {
		child.Warm = o.cfg.MaxBatch
	}
	if o.cfg.Isolation == Inline {
		child.Fresh = true
		child.Ordinal = max(n, 0)
	}
	init, err := json.Marshal(child)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", infer.ErrUnavailable, err)
	}
	canary, err := canary()
	if err != nil {
		return nil, err
	}
	cfg := subprocess.Config{
		Kind:      kindName,
		Env:       env,
		Slots:     slots,
		Init:      init,
		MaxPixels: o.cfg.MaxBatchBytes + maxPorts*alignment,
		Canary:    canary,
		Recycle:   o.cfg.Recycle,
		// Every request is bounded more tightly, see patience. This is for those whose
		// caller has left.
		RequestTimeout: o.cfg.LoadTimeout + o.cfg.RunTimeout + o.cfg.Grace,
		StartTimeout:   o.cfg.LoadTimeout,
	}
	if n >= 0 {
		cfg.Device = &subprocess.Device{Name: device, Suspect: suspicious}
	}
	if o.tune != nil {
		o.tune(&cfg)
	}
	if o.cfg.Isolation == Inline {
		return subprocess.NewInline(cfg, Kinds()[0])
	}
	return subprocess.New(cfg)
}

// Stats returns the state of the processes of every opened device, by the name of the device.
func (o *Opener) Stats() map[string]subprocess.Stats {
	o.mu.Lock()
	open := maps.Clone(o.open)
	o.mu.Unlock()
	out := make(map[string]subprocess.Stats, len(open))
	for device, p := range open {
		out[device] = p.Stats()
	}
	return out
}

// canary is the request that every new child must answer correctly.
func canary() (*subprocess.Canary, error) {
	req, err := encodeRun(infer.Model{Name: "canary"}, infer.Batch{Inputs: []infer.Tensor{infer.Floats("x", []float32{1, 2, 3, 4, 2, 0, 0, 0}, 2, 4)}})
	if err != nil {
		return nil, err
	}
	if req.Meta, err = json.Marshal(request{Op: opCanary, Inputs: []port{{Name: "x", DType: infer.F32, Shape: []int{2, 4}}}}); err != nil {
		return nil, err
	}
	return &subprocess.Canary{Request: req, Check: func(body []byte) error {
		_, out, err := decodeAnswer(body)
		if err != nil {
			return err
		}
		want := []float32{30, 0, 13, 2, 3, 6}
		if len(out) != 1 || !slices.Equal(out[0].F32, want) {
			return fmt.Errorf("the canary gave %v, want %v", out, want)
		}
		return nil
	}}, nil
}
