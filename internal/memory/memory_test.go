package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/memory"
)

func TestTheLimitIsNoMoreThanTheMachineHas(t *testing.T) {
	t.Parallel()
	total, available, limit := memory.Read()
	require.Positive(t, memory.Limit())
	if total > 0 {
		require.LessOrEqual(t, memory.Limit(), total)
		require.LessOrEqual(t, available, total)
	}
	if limit > 0 {
		require.LessOrEqual(t, memory.Limit(), limit)
	}
}
