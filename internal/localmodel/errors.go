package localmodel

import (
	"context"
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// Classify gives an error of a model its class, and keeps the one it has. The end of the
// caller's own context, which ctx is, is no fault of the model and gets none.
func Classify(ctx context.Context, err error) error {
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
