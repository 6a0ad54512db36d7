package pool

import (
	"context"

	"github.com/rewardloop/rewardloop/internal/infer"
)

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
