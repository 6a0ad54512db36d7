package preference

import (
	"context"
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// classify gives an error of the models its class, and keeps the one it has.
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

// lasting tells whether another try would only meet the same error.
func lasting(err error) bool {
	switch rewards.ClassOf(classify(context.Background(), err)) {
	case rewards.Internal, rewards.BadInput, rewards.InvalidScore, rewards.Panicked:
		return true
	}
	return false
}
