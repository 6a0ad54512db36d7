package localmodel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestErrorsOfAModelHaveTheirClass(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want rewards.Class
	}{
		{errors.New("a bug"), rewards.Internal},
		{infer.ErrModel, rewards.Internal},
		{infer.ErrInput, rewards.Internal},
		{infer.ErrTimeout, rewards.Timeout},
		{context.DeadlineExceeded, rewards.Timeout},
		{infer.ErrCrashed, rewards.Crashed},
		{infer.ErrUnavailable, rewards.Unavailable},
		{infer.ErrMemory, rewards.Unavailable},
		{infer.ErrFault, rewards.Unavailable},
		{context.Canceled, rewards.Internal}, // by whom? not by the caller
		{fmt.Errorf("%w: %w", rewards.BadInput, infer.ErrTimeout), rewards.BadInput},
	} {
		err := localmodel.Classify(t.Context(), fmt.Errorf("of the model: %w", tt.err))
		var got rewards.Class
		require.ErrorAs(t, err, &got, tt.err)
		require.Equal(t, tt.want, got, tt.err)
		require.ErrorIs(t, err, tt.err)
	}
	require.NoError(t, localmodel.Classify(t.Context(), nil))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var class rewards.Class
	require.NotErrorAs(t, localmodel.Classify(ctx, ctx.Err()), &class, "the caller's own end has none")
	require.ErrorIs(t, localmodel.Classify(ctx, infer.ErrCrashed), rewards.Crashed)
}

func TestErrorsOfAModelHaveTheirBlame(t *testing.T) {
	t.Parallel()
	mark := func(mark, err error) error { return fmt.Errorf("of the model: %w", infer.Marked(mark, err)) }
	for _, tt := range []struct {
		err       error
		blame     rewards.Blame
		permanent bool
	}{
		{infer.ErrModel, rewards.BlameWorker, true},
		{infer.ErrInput, rewards.BlameSample, false},
		{infer.ErrMemory, rewards.BlameSample, false},
		{mark(infer.ErrHost, infer.ErrMemory), rewards.BlameWorker, false},
		{infer.ErrCrashed, rewards.BlameSample, false},
		{mark(infer.ErrHost, infer.ErrCrashed), rewards.BlameWorker, false},
		{infer.ErrNumbers, rewards.BlameReward, false},
		{infer.ErrFault, rewards.BlameReward, false},
		{mark(infer.ErrHost, infer.ErrFault), rewards.BlameWorker, false},
		{infer.ErrTimeout, rewards.BlameReward, false},
		{mark(infer.ErrWaiting, infer.ErrTimeout), rewards.BlameNobody, false},
		{mark(infer.ErrHost, infer.ErrTimeout), rewards.BlameWorker, false},
		{infer.ErrUnavailable, rewards.BlameWorker, false},
		{mark(infer.ErrMissing, infer.ErrUnavailable), rewards.BlameWorker, true},
		{mark(infer.ErrLoad, infer.ErrMemory), rewards.BlameWorker, false},
		{mark(infer.ErrLoad, infer.ErrTimeout), rewards.BlameWorker, false},
		{mark(infer.ErrLoad, infer.ErrInput), rewards.BlameWorker, true},
		{mark(infer.ErrLoad, errors.New("wrong vocabulary")), rewards.BlameWorker, true},
		{mark(infer.ErrLoad, rewards.BadInput), rewards.BlameWorker, true},
		{errors.New("a bug"), rewards.BlameReward, false},
		{rewards.BadInput, rewards.BlameSample, false},
	} {
		blame, permanent := rewards.BlameOf(localmodel.Classify(t.Context(), tt.err))
		require.Equal(t, tt.blame, blame, tt.err)
		require.Equal(t, tt.permanent, permanent, tt.err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	blame, _ := rewards.BlameOf(localmodel.Classify(ctx, ctx.Err()))
	require.Equal(t, rewards.BlameNobody, blame)
}
