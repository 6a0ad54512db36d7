package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/cards"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// Devices are the devices of a process for ONNX models and models in Python, and the folder of the
// ONNX models. All scorers share one Devices. Nothing starts before a model is loaded.
type Devices struct {
	cfg   config.Pool
	store models.Store
	log   *slog.Logger // nil: nothing is logged
	// book says which cards there are and who has which. It asks the machine once, when a model
	// is first wanted of which it may be that it runs on a card: with plan any.
	book func() (Book, error)
	plan bool // book is that of a configuration, and asks for nothing where no model needs a card

	mu     sync.Mutex // guards what follows
	closed bool
	opener *ort.Opener // nil: no ONNX model was asked for
	pool   *pool.Pool

	python entries
}

// entries are the models in Python that were asked for, each on each of its devices, by the name
// that the pool has for it: "<device>/<entry>".
type entries struct {
	mu   sync.Mutex // taken after Devices.mu
	made map[string]func() *python.Runner
	open map[string]*python.Runner // the newest of each
}

// openers are how the pool opens devices: for ONNX models with ONNX Runtime, and those of a model in
// Python each by itself.
type openers struct{ *Devices }

// Open implements pool.Opener.
func (o openers) Open(ctx context.Context, device string) (pool.Runner, error) {
	if run := o.python.start(device); run != nil {
		return run, nil
	}
	o.mu.Lock()
	opener := o.opener
	o.mu.Unlock()
	return opener.Open(ctx, device)
}

// Slots implements pool.Foreseer.
func (o openers) Slots(device string) int { return o.cfg.ONNX.WithDefaults().SlotsOf(device) }

// start makes what runs a model in Python; nil: the device is no such model's.
func (e *entries) start(device string) *python.Runner {
	e.mu.Lock()
	defer e.mu.Unlock()
	open := e.made[device]
	if open == nil {
		return nil
	}
	e.open[device] = open()
	return e.open[device]
}

var (
	_ infer.Nets          = (*Devices)(nil)
	_ localmodel.Foreseer = (*Devices)(nil)
	_ python.Devices      = (*Devices)(nil)
	_ pool.Foreseer       = openers{}
)

// newDevices makes them of a configuration's section pool.
func newDevices(cfg config.Pool) (*Devices, error) {
	store, err := Models(cfg)
	if err != nil {
		return nil, err
	}
	return &Devices{
		cfg: cfg, store: store, book: sync.OnceValues(everyCard),
		python: entries{made: map[string]func() *python.Runner{}, open: map[string]*python.Runner{}},
	}, nil
}

// Net implements infer.Nets.
func (d *Devices) Net(m infer.Model) (infer.Net, error) {
	net, err := d.model(m)
	if err != nil {
		return nil, fmt.Errorf("%w: model %s: %w", infer.ErrUnavailable, m.Name, err)
	}
	return net, nil
}

// model is a file on a device; the pool is made when the first is asked for.
func (d *Devices) model(m infer.Model) (*pool.Model, error) {
	book, on, err := d.places(m.Device)
	if err != nil {
		return nil, infer.Marked(infer.ErrMissing, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%w: the devices are closed, because the process is stopping", rewards.Unavailable)
	}
	if err := d.openRuntime(book); err != nil {
		return nil, err
	}
	if err := d.open(book); err != nil {
		return nil, err
	}
	return d.pool.Model(m, pool.ModelOptions{Devices: on})
}

// Python implements python.Devices.
func (d *Devices) Python(m infer.Model, o pool.ModelOptions, share float64, open func(visible string) *python.Runner) (*pool.Model, error) {
	var book Book
	var devices []string
	for _, device := range o.Devices {
		b, on, err := d.places(device)
		if err != nil {
			return nil, fmt.Errorf("%w: model %s: %w", infer.ErrUnavailable, m.Name, infer.Marked(infer.ErrMissing, err))
		}
		if on == nil {
			on = []string{device}
		}
		book, devices = b, append(devices, on...)
	}
	o.Devices = devices
	memory, visible := book.memory(), book.visible()
	for _, device := range devices {
		if need := int64(share*float64(memory[device])) / int64(max(1, o.Slots)); need > 0 && (o.Memory == 0 || need < o.Memory) {
			o.Memory = need // of the smallest card
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("%w: the devices are closed, because the process is stopping", rewards.Unavailable)
	}
	if err := d.open(book); err != nil {
		return nil, err
	}
	d.python.mu.Lock()
	for _, device := range devices {
		card := ""
		if n, err := strconv.Atoi(strings.TrimPrefix(device, "cuda:")); err == nil {
			if card = strconv.Itoa(n); n < len(visible) {
				card = visible[n]
			}
		}
		if name := device + "/" + m.Entry; d.python.made[name] == nil {
			d.python.made[name] = func() *python.Runner { return open(card) }
		}
	}
	d.python.mu.Unlock()
	return d.pool.Model(m, o)
}

// places are the devices that cuda stands for, nil for any other device, and the book that
// says so. The error says why nothing can run on the device.
func (d *Devices) places(device string) (book Book, on []string, err error) {
	if device != infer.CPU || d.plan {
		book, err = d.book()
	}
	if device == infer.CPU {
		return book, nil, nil
	}
	if device == infer.Pool {
		if on = book.Plan.Pool; len(on) == 0 && err == nil {
			err = book.usable(cards.Device(0))
		}
		if len(on) > 0 {
			err = nil // it is another model that does not fit
		}
		return book, on, err
	}
	if err != nil && book.Plan.Cards == nil {
		return book, nil, err
	}
	return book, nil, book.usable(device)
}

// openRuntime finds ONNX Runtime. The caller holds mu.
func (d *Devices) openRuntime(book Book) error {
	if d.opener != nil {
		return nil
	}
	c := d.cfg.ONNX
	if _, err := ort.Find(c.Library); err != nil {
		return err
	}
	c.Python, c.Isolation, c.Cards, c.Loaded = d.cfg.Python.Interpreter, ort.Isolation(d.cfg.Isolation), book.visible(), d.loaded
	opener, err := ort.NewOpener(c)
	d.opener = opener
	return err
}

// open makes the pool. The caller holds mu.
func (d *Devices) open(book Book) (err error) {
	if d.pool == nil {
		c := d.cfg.ONNX
		d.pool, err = pool.New(pool.Config{MaxBatch: c.MaxBatch, BatchTimeout: c.RunTimeout, Memory: book.memory()}, openers{d})
	}
	return err
}

// loaded logs which file runs where, and in which types.
func (d *Devices) loaded(m infer.Model, info infer.Info) {
	if d.log == nil {
		return
	}
	what := []any{"model", m.Name, "file", m.Path, "device", m.Device, "provider", info.Provider, "inputs", infer.Types(info.Inputs), "outputs", infer.Types(info.Outputs)}
	if m.Embed != "" {
		what = append(what, "embed", m.Embed)
	}
	d.log.Info("a model was loaded on a device", what...)
}

// On implements localmodel.Foreseer.
func (d *Devices) On(device string) any {
	slots := d.cfg.ONNX.WithDefaults().SlotsOf(device)
	has := pool.Executors{Device: device, Slots: slots, MaxBatch: d.cfg.ONNX.MaxBatch}
	_, on, err := d.places(device)
	if device != infer.Pool || err != nil {
		return has
	}
	all := make(pool.Fleet, len(on))
	for i, card := range on {
		has.Device = card
		all[i] = has
	}
	return all
}

// Folder returns the folder of a model. model is a name of the catalogue or a folder.
func (d *Devices) Folder(model string) (string, error) { return d.store.Resolve(model) }

// Children returns the state of the child processes that have been started, by name: "onnx cpu" or
// another device, and "python cpu/" or another device with an entry.
func (d *Devices) Children() map[string]subprocess.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]subprocess.Stats)
	if d.opener != nil {
		for device, stats := range d.opener.Stats() {
			out["onnx "+device] = stats
		}
	}
	d.python.mu.Lock()
	defer d.python.mu.Unlock()
	for device, run := range d.python.open {
		out["python "+device] = run.Stats()
	}
	return out
}

// Stats returns the current state and the counters of the devices.
func (d *Devices) Stats() pool.Stats {
	if p := d.made(); p != nil {
		return p.Stats()
	}
	return pool.Stats{}
}

// Flush announces that no more samples arrive for now: waiting calls run without waiting for a full
// batch.
func (d *Devices) Flush() {
	if p := d.made(); p != nil {
		p.Flush()
	}
}

// Rest unloads models on GPUs, so that their memory is free; see pool.Pool.Rest.
func (d *Devices) Rest(ctx context.Context) error {
	if p := d.made(); p != nil {
		return p.Rest(ctx)
	}
	return nil
}

func (d *Devices) made() *pool.Pool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pool
}

// uses names the devices in use, and the models on them.
func (d *Devices) uses() (devices, names []string) {
	for _, x := range d.Stats().Devices {
		devices = append(devices, x.Device)
		for _, m := range x.Models {
			names = append(names, m.Model.Name)
		}
	}
	slices.Sort(names)
	return devices, slices.Compact(names)
}

// closeTimeout bounds the closing of the pool: its children are killed after it.
const closeTimeout = 10 * time.Second

// Close ends the pool. No model can be opened afterwards.
func (d *Devices) Close() error {
	d.mu.Lock()
	p, closed := d.pool, d.closed
	d.closed = true
	d.mu.Unlock()
	if p == nil || closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return p.Close(ctx)
}
