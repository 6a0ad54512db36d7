package localmodel

import (
	"context"
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// Classify returns err with a class, unless it has one already, and with the party to blame. If err
// is the cancellation of ctx, the caller's context, Classify returns it unchanged.
func Classify(ctx context.Context, err error) error {
	var has rewards.Class
	if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil && !errors.As(err, &has) {
		return err
	}
	classed := err
	if !errors.As(err, &has) {
		classed = fmt.Errorf("%w: %w", classOf(err), err)
	}
	is := func(mark error) bool { return errors.Is(err, mark) }
	switch {
	case is(infer.ErrLoad) && passes(err):
		return rewards.Blamed(rewards.BlameWorker, classed)
	case is(infer.ErrLoad), is(infer.ErrModel), is(infer.ErrMissing):
		return rewards.Permanent(rewards.BlameWorker, classed)
	case is(infer.ErrHost), is(infer.ErrUnavailable):
		return rewards.Blamed(rewards.BlameWorker, classed)
	case is(infer.ErrTimeout):
		return rewards.Ended(ctx, !is(infer.ErrWaiting), rewards.BlameReward, classed)
	case is(infer.ErrInput), is(infer.ErrMemory), is(infer.ErrCrashed): // at batch 1, and twice
		return rewards.Blamed(rewards.BlameSample, classed)
	case is(infer.ErrFault):
		return rewards.Blamed(rewards.BlameReward, classed)
	}
	return classed
}

// classOf is the class of an error that has none.
func classOf(err error) rewards.Class {
	switch {
	case errors.Is(err, infer.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return rewards.Timeout
	case errors.Is(err, infer.ErrCrashed):
		return rewards.Crashed
	case errors.Is(err, infer.ErrNumbers):
		return rewards.InvalidScore
	case errors.Is(err, infer.ErrUnavailable), errors.Is(err, infer.ErrMemory), errors.Is(err, infer.ErrFault):
		return rewards.Unavailable
	}
	return rewards.Internal
}

// passes tells whether another attempt to load may succeed.
func passes(err error) bool {
	for _, e := range []error{
		context.Canceled, context.DeadlineExceeded, infer.ErrTimeout, infer.ErrMemory, infer.ErrFault, infer.ErrCrashed, infer.ErrUnavailable,
	} {
		if errors.Is(err, e) {
			return !errors.Is(err, infer.ErrMissing) && !errors.Is(err, infer.ErrModel)
		}
	}
	return false
}
