package localmodel_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/localmodel"
)

func TestAFailureIsRememberedAsLongAsItIsSaidAndASuccessForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lasting, passing := errors.New("lasting"), errors.New("passing")
		o := localmodel.NewOnce[int](func(err error) time.Duration {
			if errors.Is(err, lasting) {
				return 5 * time.Second
			}
			return 0
		})
		tries, says := 0, lasting
		get := func() (int, error) {
			return o.Get(t.Context(), func(context.Context) (int, error) { tries++; return tries, says })
		}
		for range 3 {
			_, err := get()
			require.ErrorIs(t, err, lasting)
		}
		require.Equal(t, 1, tries)
		time.Sleep(5 * time.Second) // of the bubble's time
		says = passing
		for range 3 {
			_, err := get()
			require.ErrorIs(t, err, passing)
		}
		require.Equal(t, 4, tries)
		says = nil
		v, err := get()
		require.NoError(t, err)
		require.Equal(t, 5, v)
		time.Sleep(time.Hour)
		v, err = get()
		require.NoError(t, err)
		require.Equal(t, 5, v)
	})
}

func TestTheImpatienceOfOneIsNotToldToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := localmodel.NewOnce[int](func(error) time.Duration { return time.Hour })
		work := func(ctx context.Context) (int, error) {
			select {
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(time.Second):
				return 3, nil
			}
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := o.Get(ctx, work)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		all.Wait()
		v, err := o.Get(t.Context(), work)
		require.NoError(t, err)
		require.Equal(t, 3, v)
	})
}
