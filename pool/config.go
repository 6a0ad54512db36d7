package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/config/keys"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// Config is what a Pool is made from. The zero value of a field means its default.
type Config struct {
	// MaxBatch bounds the items of a batch; default 32. What a batch queue really uses is
	// learned, and is 1 where batching does not pay.
	MaxBatch int
	// BatchBytes bounds the inputs of a batch; default 128 MiB, half of what a slot's
	// shared memory takes. An item that is larger by itself runs alone.
	BatchBytes int
	// MaxWait bounds how long an item waits for others to share its batch while a
	// slot is free; default 5 ms. It is a bound, not a window: how long is worth it
	// is computed. Negative: never wait.
	MaxWait time.Duration
	// QueueItems and QueueBytes bound what is queued on a device, not counting what
	// runs; defaults 4,096 items and 1 GiB of inputs. Infer waits for room when
	// either is full. An item larger than QueueBytes is let in when nothing else is
	// queued.
	QueueItems int
	QueueBytes int
	// BatchTimeout bounds one run of a batch; default 60 s.
	BatchTimeout time.Duration
	// LoadTimeout bounds the opening of a device, and the load of a model; default 120 s.
	LoadTimeout time.Duration
	// Memory is how many bytes the models of a device may take together, by the device's
	// name. Absent or 0: it is not bounded.
	Memory map[string]int64
}

// largestBatch is the most that MaxBatch may be: batch queues keep what they measured by size.
const largestBatch = 1024

// limits have the defaults and bounds.
func (c *Config) limits(k *keys.Set) {
	k.Int(&c.MaxBatch, "max_batch", 32, "").Between(1, largestBatch)
	k.Int(&c.BatchBytes, "batch_bytes", 128<<20, "").Between(1, math.MaxInt)
	k.Int(&c.QueueItems, "queue_items", 4096, "").Min(1)
	k.Int(&c.QueueBytes, "queue_bytes", 1<<30, "").Between(1, math.MaxInt)
	k.Duration(&c.BatchTimeout, "batch_timeout", time.Minute, "").Min(time.Millisecond)
	k.Duration(&c.LoadTimeout, "load_timeout", 2*time.Minute, "").Min(time.Millisecond)
}

// WithDefaults fills what is not set.
func (c Config) WithDefaults() Config {
	keys.Fill(keys.Func(c.limits))
	c.MaxWait = cmp.Or(c.MaxWait, 5*time.Millisecond)
	return c
}

// Validate lists everything that is wrong with a configuration that has its defaults.
func (c Config) Validate() error {
	faults := rewards.Faults{keys.Validate("pool", keys.Func(c.limits))}
	faults.Add(c.MaxWait > time.Second, "pool: max_wait is %s, want at most 1s", c.MaxWait)
	for name, bytes := range c.Memory {
		faults.Add(bytes < 0, "pool: memory of %s is %d, want 1 byte or more, or 0 for no bound", name, bytes)
	}
	return errors.Join(faults...)
}

// ModelOptions are what may differ between the models of a pool.
type ModelOptions struct {
	// MaxBatch bounds the items of a batch of this model; 0, or more than the pool's:
	// the pool's. A model whose file fixes the batch axis at 1 has batches of 1.
	MaxBatch int
	// Devices are those that the model runs on, each with the whole model, when the
	// model's own Device is "cuda". Empty: the one device that the model names. Those of a model in
	// Python are any.
	Devices []string

	// What follows is for models in Python (infer.Model.Entry) alone, each of which has
	// processes, slots and a policy of its own on a device. 0: as the pool's Config has it.

	// BatchBytes and MaxWait are those of Config; a negative MaxWait: never wait.
	BatchBytes int
	MaxWait    time.Duration
	// BatchTimeout and LoadTimeout are those of Config.
	BatchTimeout, LoadTimeout time.Duration
	// LongestBatch is the most that a batch of several items may be expected to take; 0: not bounded.
	LongestBatch time.Duration
	// Slots are the processes that it will have on each device.
	Slots int
	// Memory is how many bytes of a card's memory each of them is taken to need; 0: it is not
	// known before they were started.
	Memory int64
}

// alike says whether two handles of a model would be the same.
func (o ModelOptions) alike(p ModelOptions) bool {
	devices := slices.Equal(o.Devices, p.Devices)
	o.Devices, p.Devices = nil, nil
	return devices && reflect.DeepEqual(o, p)
}

// check says what is wrong with the options of a model.
func (o ModelOptions) check(entry bool) error {
	own := o
	own.MaxBatch, own.Devices = 0, nil
	switch {
	case o.MaxBatch < 0 || o.MaxBatch > largestBatch:
		return fmt.Errorf("%w: max_batch is %d, want 0 to %d", infer.ErrModel, o.MaxBatch, largestBatch)
	case !entry && !own.alike(ModelOptions{}):
		return fmt.Errorf("%w: options that are for models in Python only: %+v", infer.ErrModel, own)
	case o.BatchBytes < 0 || o.BatchTimeout < 0 || o.LoadTimeout < 0 || o.LongestBatch < 0 || o.Memory < 0 || o.MaxWait > time.Second:
		return fmt.Errorf("%w: an option is negative, or max_wait above 1s: %+v", infer.ErrModel, own)
	}
	return nil
}

// config is that of the device of a model in Python.
func (o ModelOptions) config(c Config) Config {
	c.MaxBatch = cmp.Or(o.MaxBatch, c.MaxBatch)
	c.BatchBytes = cmp.Or(o.BatchBytes, c.BatchBytes)
	c.MaxWait = cmp.Or(o.MaxWait, c.MaxWait)
	c.BatchTimeout = cmp.Or(o.BatchTimeout, c.BatchTimeout)
	c.LoadTimeout = cmp.Or(o.LoadTimeout, c.LoadTimeout)
	return c
}

// Opener makes the runner of a device. It is asked once per device, when the
// device is first used, and again only after it failed.
type Opener interface {
	// Open brings up the device named "cpu" or "cuda:<n>". ctx bounds the opening
	// only: the runner lives until its Close. The error wraps a sentinel of
	// internal/infer; one that wraps none counts as infer.ErrUnavailable.
	Open(ctx context.Context, device string) (Runner, error)
}

// Runner runs models on one device. Its methods may be called at the same time
// from several goroutines, Run at most Slots() times at once.
type Runner interface {
	// Slots is the number of batches it can run at the same time, 1 or more. It is
	// asked once.
	Slots() int
	// Load makes a model ready. It may be called twice for one model, and is called
	// again when a first load failed.
	Load(ctx context.Context, m infer.Model) (infer.Info, error)
	// Unload gives back what a model takes of the device. The model is not running; it may not
	// be loaded. The next Load or Run loads it again.
	Unload(ctx context.Context, m infer.Model) error
	// Restart replaces what holds the device's memory, such as a child process, by one that
	// holds nothing, once the runs that go on there are over. It returns when all slots have
	// what is new.
	Restart(ctx context.Context) error
	// Run answers a batch: every output has the batch axis first, of as many rows
	// as the batch has names. Errors wrap a sentinel of internal/infer or are the
	// context's. It keeps neither the batch nor the answer after it returned. It calls the
	// batch's Began when the batch has what it runs on, and before that no run counts as
	// begun: the items still wait, and only what bounds their wait ends them.
	Run(ctx context.Context, m infer.Model, b infer.Batch) ([]infer.Tensor, error)
	// Close ends the runner; no method is called after it.
	Close(ctx context.Context) error
}
