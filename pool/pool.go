package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

const (
	// closeGrace is how long Close waits for runs and runners to end after its
	// context has.
	closeGrace = 5 * time.Second
	// A device that did not open, and a model that did not load, are tried again
	// after a pause between these.
	reopenMin, reopenMax = time.Second, 30 * time.Second
	reloadMin, reloadMax = 5 * time.Second, time.Minute
)

// Pool owns the devices that run models.
type Pool struct {
	cfg  Config
	open Opener
	// A run or a load is given a context that ends with the time it has, and when the
	// pool ends it.
	runContext, loadContext func(time.Duration) (context.Context, context.CancelFunc)
	endRuns, endLoads       context.CancelCauseFunc

	loads sync.WaitGroup // goroutines that open or load; none is added once closed is set

	mu       sync.Mutex         // guards what follows
	memories map[string]*memory // by card
	models   map[infer.Model]*Model
	replicas map[infer.Model]*replica // by the model with the device's name
	devices  map[string]*device
	closed   bool

	closing  sync.Once
	closeErr error // guarded by closing
}

// New returns a pool. It opens and loads nothing. A pool must be closed.
func New(cfg Config, open Opener) (*Pool, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if open == nil {
		return nil, errors.New("pool: no opener of devices")
	}
	p := &Pool{
		cfg: cfg, open: open, memories: make(map[string]*memory),
		models: make(map[infer.Model]*Model), replicas: make(map[infer.Model]*replica), devices: make(map[string]*device),
	}
	p.runContext, p.endRuns = contexts()
	p.loadContext, p.endLoads = contexts()
	return p, nil
}

// contexts makes contexts of limited time that can all be ended together.
func contexts() (func(time.Duration) (context.Context, context.CancelFunc), context.CancelCauseFunc) {
	all, end := context.WithCancelCause(context.Background())
	return func(d time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(all, d)
	}, end
}

// Model returns the handle of a model; equal models have the same handle. It loads nothing; the
// first Info or Infer does. The options of equal models must be equal too. The error wraps
// infer.ErrModel, or infer.ErrUnavailable after the pool is closed.
func (p *Pool) Model(m infer.Model, o ModelOptions) (*Model, error) {
	if m.Name == "" || m.Path == "" || m.Device == "" {
		return nil, fmt.Errorf("pool: %w: name %q, path %q and device %q must be set", infer.ErrModel, m.Name, m.Path, m.Device)
	}
	if err := o.check(m.Entry != ""); err != nil {
		return nil, fmt.Errorf("pool: model %s: %w", m.Name, err)
	}
	if len(o.Devices) == 0 {
		o.Devices = []string{m.Device}
	}
	o.Devices = slices.Clone(o.Devices)
	if n := len(slices.Compact(slices.Sorted(slices.Values(o.Devices)))); n < len(o.Devices) || slices.Contains(o.Devices, "") {
		return nil, fmt.Errorf("pool: model %s: %w: devices are %q, want each name once", m.Name, infer.ErrModel, o.Devices)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("pool: model %s: %w", m.Name, errClosed)
	}
	if h := p.models[m]; h != nil {
		if !h.options.alike(o) {
			return nil, fmt.Errorf("pool: model %s on %s: %w: asked for with options %+v and %+v", m.Name, m.Device, infer.ErrModel, h.options, o)
		}
		return h, nil
	}
	h := &Model{model: m, options: o, chosen: make(map[*replica]int)}
	for _, device := range o.Devices {
		on := m
		on.Device = device
		r := p.replica(on, o)
		if r.most != o.MaxBatch {
			return nil, fmt.Errorf("pool: model %s on %s: %w: asked for with max_batch %d and %d", m.Name, device, infer.ErrModel, r.most, o.MaxBatch)
		}
		h.replicas = append(h.replicas, r)
	}
	p.models[m] = h
	return h, nil
}

// replica finds or makes a model on a device. Called with mu held.
func (p *Pool) replica(m infer.Model, o ModelOptions) *replica {
	if r := p.replicas[m]; r != nil {
		return r
	}
	r := &replica{model: m, most: o.MaxBatch, memory: o.Memory, device: p.device(m, o), account: &account{model: m, top: o.MaxBatch}}
	r.account.on, r.account.forget = r.device, r.load.forget
	r.load.what = "loading " + m.Path
	r.load.do, r.load.start, r.load.look = r.bringUp, p.starter(r.device.cfg), r.fileState
	r.load.after = func() { p.joined(r) }
	r.load.min, r.load.max = reloadMin, reloadMax
	p.replicas[m] = r
	return r
}

// opened has a device load the models that were asked for before it was open. Who asked may have
// been served by another device meanwhile.
func (p *Pool) opened(d *device) {
	var all []*replica
	p.mu.Lock()
	for _, r := range p.replicas {
		if r.device == d {
			all = append(all, r)
		}
	}
	p.mu.Unlock()
	for _, r := range all {
		if r.asked() {
			_, _ = r.load.poll() // who needs it hears of a failure
		}
	}
}

// joined has what waits for a model on other devices choose again, now that one more has it.
func (p *Pool) joined(r *replica) {
	var others []*replica
	p.mu.Lock()
	for _, m := range p.models {
		if slices.Contains(m.replicas, r) {
			others = append(others, m.replicas...)
		}
	}
	p.mu.Unlock()
	for _, o := range others {
		if o != r {
			o.device.disperse(o.account)
		}
	}
}

// device finds or makes the device of a model: that of its name for ONNX models, which share it;
// one of its own, "<name>/<entry>", for a model in Python. All that are on one card share the book
// of its memory. Called with mu held.
func (p *Pool) device(m infer.Model, o ModelOptions) *device {
	name, cfg := m.Device, p.cfg
	if m.Entry != "" {
		name, cfg = m.Device+"/"+m.Entry, o.config(p.cfg)
	}
	if d := p.devices[name]; d != nil {
		return d
	}
	d := &device{name: name, cfg: cfg, policy: newPolicy(cfg, name), bounded: p.runContext}
	d.policy.eager, d.policy.longest = m.Entry != "", o.LongestBatch.Seconds()
	d.memory, d.relief.seed = p.book(m.Device, name), maphash.MakeSeed()
	if f, ok := p.open.(Foreseer); ok && m.Entry == "" {
		d.foreseen = f.Slots(name)
	} else {
		d.foreseen = o.Slots
	}
	d.timer = time.AfterFunc(time.Hour, d.wake)
	d.timer.Stop()
	d.open.what = "opening device " + m.Device
	d.open.do = func(ctx context.Context) (*opened, error) { return d.bringUp(ctx, p.open) }
	d.open.start, d.open.look = p.starter(cfg), func() string { return "" }
	d.open.after = func() { p.opened(d) }
	d.open.min, d.open.max = reopenMin, reopenMax
	p.devices[name] = d
	return d
}

// book is the memory that a device's models are in: a card's, which all devices on it share, or
// that of a device on the CPU, where the processes of each model have a limit of their own. Called
// with mu held.
func (p *Pool) book(on, device string) *memory {
	if on == cpu {
		on = device
	}
	m := p.memories[on]
	if m == nil {
		m = &memory{budget: p.cfg.Memory[on]}
		p.memories[on] = m
	}
	return m
}

// starter runs work that opens or loads on a goroutine of the pool, with a context
// that ends when its time is up or the pool closes. It does not when the pool is
// closed.
func (p *Pool) starter(cfg Config) func(func(context.Context)) (context.Context, bool) {
	return func(work func(context.Context)) (context.Context, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed {
			return nil, false
		}
		ctx, cancel := p.loadContext(cfg.LoadTimeout)
		p.loads.Go(func() {
			defer cancel()
			work(ctx)
		})
		return ctx, true
	}
}

// Flush reports that the last sample of a step has arrived. For the next second no item waits to
// share a batch, and the queued items are divided evenly among the idle slots.
func (p *Pool) Flush() {
	for _, d := range p.sorted() {
		d.flush()
	}
}

// Rest unloads every unneeded model on the cards, so that the memory of the cards is free for other
// programs. The next sample loads a model again. Rest waits for models that were just loaded.
func (p *Pool) Rest(ctx context.Context) error {
	var errs []error
	for _, d := range p.sorted() {
		if d.name != infer.CPU {
			_, err := d.clear(ctx, nil)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sorted are the devices, by name.
func (p *Pool) sorted() []*device {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*device, 0, len(p.devices))
	for _, d := range p.devices {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b *device) int { return cmp.Compare(a.name, b.name) })
	return out
}

// Close ends the pool. Queued items, and callers that wait for a device or a model, immediately get
// infer.ErrUnavailable. Runs may end as long as ctx lasts. Then the runners are closed. Close
// returns when no goroutine of the pool is left. If runs ignore the end of their contexts, their
// runners are closed 5 s after ctx ends; if a call still has not returned up to 10 s after that,
// Close returns an error and leaves the call. A second call waits for the first and returns the
// same error.
func (p *Pool) Close(ctx context.Context) error {
	p.closing.Do(func() { p.closeErr = p.close(ctx) })
	return p.closeErr
}

func (p *Pool) close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.endLoads(errClosed)
	devices := p.sorted()
	for _, d := range devices {
		d.refuse()
	}
	quiet := make(chan struct{})
	go func() { // ends with what it waits for
		defer close(quiet)
		for _, d := range devices {
			d.runs.Wait()
		}
		p.loads.Wait()
	}()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	p.endRuns(errClosed)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	select {
	case <-quiet:
	case <-grace.Done():
	}
	err := p.closeRunners(ctx, devices)
	select {
	case <-quiet:
		return err
	case <-time.After(closeGrace):
		return errors.Join(err, errors.New("pool: a run or a load continues although its context has ended and its runner is closed"))
	}
}

// closeRunners closes all runners at once.
func (p *Pool) closeRunners(ctx context.Context, devices []*device) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
	}
	errs := make([]error, len(devices))
	var all sync.WaitGroup
	for i, d := range devices {
		all.Go(func() { errs[i] = d.end(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Stats returns the current state of the pool and its counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	models := make(map[*device][]*replica)
	for _, r := range p.replicas {
		models[r.device] = append(models[r.device], r)
	}
	p.mu.Unlock()
	var s Stats
	for _, d := range p.sorted() {
		s.Devices = append(s.Devices, d.stats(models[d]))
	}
	return s
}
