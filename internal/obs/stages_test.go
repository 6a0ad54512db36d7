package obs_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/internal/obs"
)

func TestTimesOfTheSameStageAddUp(t *testing.T) {
	t.Parallel()
	ctx, stages := obs.WithStages(t.Context())
	assert.Nil(t, stages.Took())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			obs.Spent(ctx, obs.Decode, time.Millisecond)
			obs.Spent(ctx, obs.Infer, 2*time.Millisecond)
		})
	}
	all.Wait()
	assert.Equal(t, map[string]time.Duration{obs.Decode: 8 * time.Millisecond, obs.Infer: 16 * time.Millisecond}, stages.Took())
	obs.Spent(t.Context(), obs.Decode, time.Hour)
	assert.Len(t, stages.Took(), 2, "a context without stages keeps nothing")
}
