package ppocr

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"unicode"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// classify gives an error of the models its class, and keeps the one it has.
func classify(ctx context.Context, err error) error {
	class := rewards.Internal
	var has rewards.Class
	switch {
	case errors.As(err, &has):
		return fmt.Errorf("ppocr: %w", err)
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return fmt.Errorf("ppocr: %w", err)
	case errors.Is(err, infer.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		class = rewards.Timeout
	case errors.Is(err, infer.ErrCrashed):
		class = rewards.Crashed
	case errors.Is(err, infer.ErrUnavailable), errors.Is(err, infer.ErrMemory), errors.Is(err, infer.ErrFault):
		// Another replica, or a moment later, may do.
		class = rewards.Unavailable
	}
	return fmt.Errorf("%w: ppocr: %w", class, err)
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

// isSpace is what Python's str.strip takes off: Unicode's white space and the
// separators U+001C to U+001F.
func isSpace(r rune) bool { return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f) }
