package vlm

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// errLoad is wrapped by what a judge says that cannot be loaded: trying again helps
// only after the folder was put right.
var errLoad = errors.New("the judge cannot be loaded")

// classify gives an error of the networks its class, and keeps the one it has.
func classify(ctx context.Context, err error) error {
	class := rewards.Internal
	var has rewards.Class
	switch {
	case err == nil:
		return nil
	case errors.As(err, &has):
		return err
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return err
	case errors.Is(err, infer.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		class = rewards.Timeout
	case errors.Is(err, infer.ErrCrashed):
		class = rewards.Crashed
	case errors.Is(err, infer.ErrUnavailable), errors.Is(err, infer.ErrMemory), errors.Is(err, infer.ErrFault):
		// Another replica, or a moment later, may do.
		class = rewards.Unavailable
	}
	return fmt.Errorf("%w: %w", class, err)
}

// guarded calls do, and makes an error of a panic. It stands in each goroutine: a fault
// of this package fails a picture, not the process.
func guarded(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", rewards.Panicked, p, debug.Stack())
		}
	}()
	return do()
}
