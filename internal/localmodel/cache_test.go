package localmodel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// cache keeps lists of numbers, of 4 bytes each.
func cache(entries, bytes int) *localmodel.Cache[[]float32] {
	return localmodel.NewCache(entries, bytes, func(v []float32) int { return 4 * len(v) })
}

func TestAComputationOutlivesTheCallerWhoBeganIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, runs, goOn := cache(8, 1<<20), 0, make(chan struct{})
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
					assert.Equal(t, []float32{7}, v)
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
		assert.Equal(t, []float32{7}, v)
		assert.Equal(t, 1, runs)
	})
}

func TestWorkEndsWithTheLastWhoWaitsAndBeforeItReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, over := cache(8, 1<<20), 0
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
		assert.Equal(t, []float32{1}, v)
	})
}

func TestFailuresAndPanicsAreNotKept(t *testing.T) {
	t.Parallel()
	c, broken := cache(8, 1<<20), errors.New("broken")
	_, err := c.Get(t.Context(), "k", func(context.Context) ([]float32, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	_, err = c.Get(t.Context(), "k", func(context.Context) ([]float32, error) { panic("oh") })
	require.ErrorIs(t, err, rewards.Panicked)
	_, err = c.Get(t.Context(), "k", func(context.Context) ([]float32, error) { runtime.Goexit(); return nil, nil })
	require.ErrorIs(t, err, rewards.Panicked, "whoever waits is not left waiting")
	_, ok := c.Peek("k")
	require.False(t, ok)
	v, err := c.Get(t.Context(), "k", func(context.Context) ([]float32, error) { return []float32{2}, nil })
	require.NoError(t, err)
	assert.Equal(t, []float32{2}, v)
	v, ok = c.Peek("k")
	assert.True(t, ok)
	assert.Equal(t, []float32{2}, v)
}

func TestTheCacheStaysWithinItsBoundsAndDropsTheOldest(t *testing.T) {
	t.Parallel()
	const each = localmodel.Overhead + 2 + 4*100
	c := cache(4, 10*each)
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

	small := cache(1000, 3*each)
	for i := range 100 {
		_, err := small.Get(t.Context(), fmt.Sprintf("k%d", i%10), func(context.Context) ([]float32, error) { return make([]float32, 100), nil })
		require.NoError(t, err)
		_, bytes := small.Size()
		require.LessOrEqual(t, bytes, 3*each)
	}
	_, err := small.Get(t.Context(), "huge", func(context.Context) ([]float32, error) { return make([]float32, 1e5), nil })
	require.NoError(t, err, "what is larger than the cache is answered and not kept")
	entries, _ = small.Size()
	assert.Equal(t, 3, entries, "and nothing goes for it")
}

func TestWhatIsPutIsKeptInPlaceOfWhatWasThere(t *testing.T) {
	t.Parallel()
	const bytes = 2 * (localmodel.Overhead + 1 + 4)
	c := cache(8, bytes)
	c.Put("a", []float32{1})
	c.Put("a", []float32{2})
	c.Put("b", []float32{3})
	v, ok := c.Peek("a")
	require.True(t, ok)
	assert.Equal(t, []float32{2}, v)
	entries, spent := c.Size()
	assert.Equal(t, 2, entries)
	assert.Equal(t, bytes, spent)
	c.Put("c", []float32{4}) // b goes: a was looked at since
	_, ok = c.Peek("b")
	assert.False(t, ok)
	c.Put("a", make([]float32, 1000))
	_, ok = c.Peek("a")
	assert.False(t, ok, "the value of before is not the key's any more")
}
