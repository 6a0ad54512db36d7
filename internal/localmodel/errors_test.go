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
