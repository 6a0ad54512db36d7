package timing_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/internal/timing"
)

func TestTimesOfTheSameStageAddUp(t *testing.T) {
	t.Parallel()
	ctx, stages := timing.WithStages(t.Context())
	assert.Nil(t, stages.Took())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			timing.Spent(ctx, timing.Decode, time.Millisecond)
			timing.Spent(ctx, timing.Infer, 2*time.Millisecond)
		})
	}
	all.Wait()
	assert.Equal(t, map[string]time.Duration{timing.Decode: 8 * time.Millisecond, timing.Infer: 16 * time.Millisecond}, stages.Took())
	timing.Spent(t.Context(), timing.Decode, time.Hour)
	assert.Len(t, stages.Took(), 2, "a context without stages keeps nothing")
}
