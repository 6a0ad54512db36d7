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

// Config configures a Pool. A zero field means its default.
type Config struct {
	// MaxBatch is the maximum number of items in a batch. The default is 32. Each batch queue
	// learns its batch size from measurements; the size is 1 if batching has no benefit.
	MaxBatch int
	// BatchBytes is the maximum size of the inputs of a batch. The default is 128 MiB, half of the
	// shared memory of a slot. A larger item runs alone.
	BatchBytes int
	// MaxWait is the maximum time that an item waits for others to share its batch while a slot is
	// free. The default is 5 ms. The actual wait is computed and may be shorter. If negative, items
	// never wait.
	MaxWait time.Duration
	// QueueItems and QueueBytes are the maximum number and total size of the inputs of the items
	// that are queued on a device, without the running items. The defaults are 4,096 items and 1
	// GiB. Infer waits for room if either limit is reached. An item larger than QueueBytes is
	// admitted when no other item is queued.
	QueueItems int
	QueueBytes int
	// BatchTimeout is the maximum duration of one run of a batch. The default is 60 s.
	BatchTimeout time.Duration
	// LoadTimeout is the maximum duration of opening a device, and of loading a model. The default
	// is 120 s.
	LoadTimeout time.Duration
	// Memory is the maximum number of bytes that the models of a device may use together, by the
	// name of the device. If absent or 0, there is no limit.
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

// WithDefaults returns a copy of c with the default for each zero field.
func (c Config) WithDefaults() Config {
	keys.Fill(keys.Func(c.limits))
	c.MaxWait = cmp.Or(c.MaxWait, 5*time.Millisecond)
	return c
}

// Validate returns an error that contains every fault of c. The defaults must be filled in.
func (c Config) Validate() error {
	faults := rewards.Faults{keys.Validate("pool", keys.Func(c.limits))}
	faults.Add(c.MaxWait > time.Second, "pool: max_wait is %s, want at most 1s", c.MaxWait)
	for name, bytes := range c.Memory {
		faults.Add(bytes < 0, "pool: memory of %s is %d, want 1 byte or more, or 0 for no bound", name, bytes)
	}
	return errors.Join(faults...)
}

// ModelOptions are the options that may differ between the models of a pool.
type ModelOptions struct {
	// MaxBatch is the maximum number of items in a batch of this model. If it is 0 or larger than
	// the pool's MaxBatch, the pool's value applies. A model whose file fixes the batch axis at 1
	// has batches of 1.
	MaxBatch int
	// Devices are the devices on which the model runs if the model's own Device is "cuda", each
	// with the whole model. If empty, the model runs only on its own Device. A model in Python may
	// run on any devices.
	Devices []string

	// The following fields are only for models in Python (infer.Model.Entry). Each of these models
	// has its own processes, slots and policy on a device. 0 means the value of the pool's Config.

	// BatchBytes and MaxWait override the fields of Config; if MaxWait is negative, items never
	// wait.
	BatchBytes int
	MaxWait    time.Duration
	// BatchTimeout and LoadTimeout override the fields of Config.
	BatchTimeout, LoadTimeout time.Duration
	// LongestBatch is the maximum expected duration of a batch of several items. 0 means no limit.
	LongestBatch time.Duration
	// Slots is the number of processes of the model on each device.
	Slots int
	// Memory is the assumed amount of a card's memory that each process needs, in bytes. 0 means
	// unknown until the processes have started.
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

// Opener creates the runner of a device. It is called once for each device, when the device is
// first used, and again only after a failure.
type Opener interface {
	// Open opens the device "cpu" or "cuda:<n>". ctx limits only the opening; the runner lives
	// until its Close. The error wraps a sentinel of internal/infer; any other error counts as
	// infer.ErrUnavailable.
	Open(ctx context.Context, device string) (Runner, error)
}

// Runner runs models on one device. Its methods may be called concurrently, but Run at most Slots()
// times at the same time.
type Runner interface {
	// Slots returns the number of batches that the runner can run at the same time, at least 1. It
	// is called once.
	Slots() int
	// Load loads a model. It may be called twice for one model, and is called again after a failed
	// load.
	Load(ctx context.Context, m infer.Model) (infer.Info, error)
	// Unload frees the memory of a model on the device. The model is not running, and may not be
	// loaded. The next Load or Run loads it again.
	Unload(ctx context.Context, m infer.Model) error
	// Restart waits for the current runs and replaces everything that holds memory of the device,
	// such as child processes. It returns when all slots are usable again.
	Restart(ctx context.Context) error
	// Run computes the outputs of a batch. The first axis of every output is the batch axis, with
	// as many rows as the batch has names. Errors wrap a sentinel of internal/infer or are errors
	// of the context. Run keeps neither the batch nor the outputs after it has returned. Run calls
	// the batch's Began when the batch starts to execute. Until then the run has not begun: the
	// items still wait, and only the limits of their wait end them.
	Run(ctx context.Context, m infer.Model, b infer.Batch) ([]infer.Tensor, error)
	// Close ends the runner. No method is called after Close.
	Close(ctx context.Context) error
}
