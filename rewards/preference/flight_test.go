package preference_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/preference"
)

func TestAComputationOutlivesTheCallerWhoBeganIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, runs, goOn := preference.NewCache(8, 1<<20), 0, make(chan struct{})
		work := func(ctx context.Context) ([]float32, error) {
			runs++
			select {
			case <-goOn:
				return []float32{7}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := c.Get(first, "k", work)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		for range 5 {
			all.Go(func() {
				v, err := c.Get(t.Context(), "k", work)
				if assert.NoError(t, err) {
					assert.InDelta(t, 7, v, 0)
				}
			})
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		close(goOn)
		all.Wait()
		v, err := c.Get(t.Context(), "k", nil) // kept
		require.NoError(t, err)
		assert.InDelta(t, 7, v, 0)
		assert.Equal(t, 1, runs)
	})
}

func TestWorkEndsWithTheLastWhoWaitsAndBeforeItReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, over := preference.NewCache(8, 1<<20), 0
		work := func(ctx context.Context) ([]float32, error) {
			<-ctx.Done()
			over++
			return []float32{9}, ctx.Err()
		}
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := c.Get(ctx, "k", work)
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		leave()
		all.Wait()
		require.Equal(t, 1, over)
		v, err := c.Get(t.Context(), "k", func(context.Context) ([]float32, error) { return []float32{1}, nil })
		require.NoError(t, err, "whoever comes later begins anew")
		assert.InDelta(t, 1, v, 0)
	})
}

func TestFailuresAndPanicsAreNotKept(t *testing.T) {
	t.Parallel()
	c, broken := preference.NewCache(8, 1<<20), errors.New("broken")
	_, err := c.Get(t.Context(), "k", func(context.Context) ([]float32, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	_, err = c.Get(t.Context(), "k", func(context.Context) ([]float32, error) { panic("oh") })
	require.ErrorIs(t, err, rewards.Panicked)
	v, err := c.Get(t.Context(), "k", func(context.Context) ([]float32, error) { return []float32{2}, nil })
	require.NoError(t, err)
	assert.InDelta(t, 2, v, 0)
}

func TestTheCacheStaysWithinItsBoundsAndDropsTheOldest(t *testing.T) {
	t.Parallel()
	const each = 200 + 2 + 4*100
	c := preference.NewCache(4, 10*each)
	runs := map[string]int{}
	get := func(k string) {
		_, err := c.Get(t.Context(), k, func(context.Context) ([]float32, error) {
			runs[k]++
			return make([]float32, 100), nil
		})
		require.NoError(t, err)
	}
	for i := range 4 {
		get(fmt.Sprintf("k%d", i))
	}
	get("k0")
	get("k4") // k1 goes: k0 was used since
	get("k0")
	get("k1")
	entries, bytes := c.Size()
	assert.Equal(t, 4, entries)
	assert.Equal(t, 4*each, bytes)
	assert.Equal(t, map[string]int{"k0": 1, "k1": 2, "k2": 1, "k3": 1, "k4": 1}, runs)

	small := preference.NewCache(1000, 3*each)
	for i := range 100 {
		_, err := small.Get(t.Context(), fmt.Sprintf("k%d", i%10), func(context.Context) ([]float32, error) { return make([]float32, 100), nil })
		require.NoError(t, err)
		_, bytes := small.Size()
		require.LessOrEqual(t, bytes, 3*each)
	}
	_, err := small.Get(t.Context(), "huge", func(context.Context) ([]float32, error) { return make([]float32, 1e5), nil })
	require.NoError(t, err, "what is larger than the cache is answered and not kept")
	entries, _ = small.Size()
	assert.Equal(t, 3, entries)
}
