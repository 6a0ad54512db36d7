package demo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/examples/demo"
)

func sixteenGroups() []string {
	var uids []string
	for g := range 16 {
		for range 8 {
			uids = append(uids, fmt.Sprintf("g%02d", g))
		}
	}
	return uids
}

func TestTheSameSeedGivesTheSameRolloutAndAnotherSeedAnother(t *testing.T) {
	t.Parallel()
	a, b := demo.NewPlan(sixteenGroups(), 4, 7), demo.NewPlan(sixteenGroups(), 4, 7)
	assert.Equal(t, a, b)
	assert.NotEqual(t, a.Finished, demo.NewPlan(sixteenGroups(), 4, 8).Finished)
}

func TestAGPUMakesWholeGroupsOneAfterTheOtherAndNoTwoSamplesFinishTogether(t *testing.T) {
	t.Parallel()
	uids := sixteenGroups()
	p := demo.NewPlan(uids, 4, 1)
	perGPU, last := make([]int, 4), make([]float64, 4)
	home := map[string]int{}
	for i, gpu := range p.GPU {
		perGPU[gpu]++
		assert.Greater(t, p.Finished[i], last[gpu], "sample %d", i)
		last[gpu] = p.Finished[i]
		if before, ok := home[uids[i]]; ok {
			assert.Equal(t, before, gpu, "group %s is on two GPUs", uids[i])
		}
		home[uids[i]] = gpu
	}
	assert.Equal(t, []int{32, 32, 32, 32}, perGPU)
	assert.InDelta(t, 1, slices.Max(p.Finished), 0, "the last one ends the rollout")
	sorted := slices.Sorted(slices.Values(p.Finished))
	assert.Equal(t, sorted, slices.Compact(slices.Clone(sorted)), "no two at once")
}

func TestARolloutFinishesEachSampleAtItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := demo.NewPlan(sixteenGroups(), 4, 1)
		const length = 10 * time.Second
		var mu sync.Mutex
		got := make([]time.Duration, len(p.Finished))
		start := time.Now()
		require.NoError(t, p.Play(t.Context(), start, length, func(_ context.Context, i int) error {
			mu.Lock()
			defer mu.Unlock()
			got[i] = time.Since(start)
			return nil
		}))
		for i, share := range p.Finished {
			assert.Equal(t, time.Duration(share*float64(length)), got[i], "sample %d", i)
		}
		assert.Equal(t, length, time.Since(start))
	})
}

func TestARolloutEndsWithItsFirstErrorAndWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := demo.NewPlan(sixteenGroups(), 4, 1)
		broken := errors.New("broken")
		start := time.Now()
		err := p.Play(t.Context(), start, time.Hour, func(_ context.Context, i int) error {
			if i == 3 {
				return broken
			}
			return nil
		})
		require.ErrorIs(t, err, broken)
		assert.Less(t, time.Since(start), 30*time.Minute)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = p.Play(ctx, time.Now(), time.Hour, func(context.Context, int) error { return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
