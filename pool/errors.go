package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// classed says whether an error wraps a sentinel of internal/infer.
func classed(err error) bool {
	for _, class := range []error{
		infer.ErrModel, infer.ErrInput, infer.ErrMemory, infer.ErrFault,
		infer.ErrCrashed, infer.ErrTimeout, infer.ErrUnavailable,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// lost says whether an error of a run tells of a device that does not serve, whatever it is
// asked to run.
func lost(err error) bool {
	host := errors.Is(err, infer.ErrUnavailable) || errors.Is(err, infer.ErrHost)
	return host && !errors.Is(err, infer.ErrMemory) && !errors.Is(err, errClosed)
}

// gaveUp is the answer to a caller whose context has ended: that context's error,
// and infer.ErrTimeout with it if it was the deadline.
func gaveUp(ctx context.Context) error {
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", infer.ErrTimeout, context.DeadlineExceeded)
}

// caught makes an error of a panic in a runner. To be deferred.
func caught(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: panic: %v\n%s", infer.ErrFault, r, debug.Stack())
	}
}
