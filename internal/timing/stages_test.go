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
	zero := time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			timing.Spent(ctx, timing.Decode, zero, zero.Add(time.Millisecond))
			timing.Spent(ctx, timing.Infer, zero, zero.Add(2*time.Millisecond))
		})
	}
	all.Wait()
	assert.Equal(t, map[string]time.Duration{timing.Decode: 8 * time.Millisecond, timing.Infer: 16 * time.Millisecond}, stages.Took())
	timing.Spent(t.Context(), timing.Decode, zero, zero.Add(time.Hour))
	assert.Len(t, stages.Took(), 2, "a context without stages keeps nothing")
}

func TestIntervalsAreKeptOnRequestUpToABound(t *testing.T) {
	t.Parallel()
	ctx, stages := timing.WithStages(t.Context())
	zero := time.Now()
	timing.Spent(ctx, timing.Decode, zero, zero.Add(1))
	assert.Empty(t, stages.Kept(), "nobody has asked")
	stages.Keep()
	for i := range timing.MaxKept + 1 {
		timing.Spent(ctx, timing.Infer, zero, zero.Add(time.Duration(i)))
	}
	kept := stages.Kept()
	assert.Len(t, kept, timing.MaxKept)
	assert.Equal(t, timing.Interval{Stage: timing.Infer, From: zero, To: zero.Add(1)}, kept[1])
}
