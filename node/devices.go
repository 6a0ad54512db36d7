package node

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
)

// Devices are what ONNX models of a process run on, and the folder they lie in. All
// scorers share them. Nothing is started before a model is loaded.
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
	opener *ort.Opener
	pool   *pool.Pool
}

var (
	_ infer.Nets          = (*Devices)(nil)
	_ localmodel.Foreseer = (*Devices)(nil)
)

// newDevices makes them of a configuration's section pool.
func newDevices(cfg config.Pool) (*Devices, error) {
	store, err := Models(cfg)
	if err != nil {
		return nil, err
	}
	return &Devices{cfg: cfg, store: store, book: sync.OnceValues(everyCard)}, nil
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
		return nil, fmt.Errorf("%w: the devices are closed", rewards.Unavailable)
	}
	if err := d.open(book); err != nil {
		return nil, err
	}
	return d.pool.Model(m, pool.ModelOptions{Devices: on})
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

// open makes the pool. The caller holds mu.
func (d *Devices) open(book Book) error {
	if d.pool != nil {
		return nil
	}
	c := d.cfg.ONNX
	if _, err := ort.Find(c.Library); err != nil {
		return err
	}
	c.Python, c.Isolation, c.Cards, c.Loaded = d.cfg.Python.Interpreter, ort.Isolation(d.cfg.Isolation), book.visible(), d.loaded
	opener, err := ort.NewOpener(c)
	if err != nil {
		return err
	}
	p, err := pool.New(pool.Config{MaxBatch: c.MaxBatch, BatchTimeout: c.RunTimeout, Memory: book.memory()}, opener)
	if err != nil {
		return err
	}
	d.opener, d.pool = opener, p
	return nil
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
	d.log.Info("a model is loaded", what...)
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

// Folder is where a model lies: a name of the catalogue, or a folder.
func (d *Devices) Folder(model string) (string, error) { return d.store.Resolve(model) }

// Children says how the child processes are, by what they run: "onnx cpu" or another
// device. What was not started is not in it.
func (d *Devices) Children() map[string]subprocess.Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]subprocess.Stats)
	if d.opener != nil {
		for device, stats := range d.opener.Stats() {
			out["onnx "+device] = stats
		}
	}
	return out
}

// Stats is what the devices are doing and have done.
func (d *Devices) Stats() pool.Stats {
	if p := d.made(); p != nil {
		return p.Stats()
	}
	return pool.Stats{}
}

// Flush tells the devices that no more is coming for now: what waits for company to
// fill a batch is run.
func (d *Devices) Flush() {
	if p := d.made(); p != nil {
		p.Flush()
	}
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

// Close ends the pool; no model is opened after it.
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
