package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/server"
)

func TestAnswersAreRememberedForAMinuteAndWithinBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		j := server.NewJoiner(ctx, server.Config{RememberAnswers: 3, RememberBytes: 100}.WithDefaults())
		calls := 0
		ask := func(key string, size int, transient bool) (begun bool) {
			_, begun, err := j.Do(t.Context(), key, func(context.Context) ([]byte, bool) {
				calls++
				return make([]byte, size), transient
			})
			require.NoError(t, err)
			return begun
		}
		assert.True(t, ask("a", 1, false))
		<-time.After(59 * time.Second)
		assert.False(t, ask("a", 1, false))
		<-time.After(time.Second)
		assert.True(t, ask("a", 1, false), "60 s after it was given")

		assert.True(t, ask("t", 1, true))
		assert.True(t, ask("t", 1, true), "transient answers are not kept")

		assert.True(t, ask("huge", 101, false))
		assert.True(t, ask("huge", 101, false), "beyond the bytes")
		ask("b", 50, false)
		ask("c", 49, false)
		assert.False(t, ask("a", 1, false))
		ask("d", 1, false)
		assert.True(t, ask("a", 1, false), "the oldest of four goes")
		assert.False(t, ask("d", 1, false))
		cancel()
		require.NoError(t, j.Wait(t.Context()))
	})
}

func TestAFlightThatEverybodyLeftIsNotJoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := server.NewJoiner(t.Context(), server.Config{}.WithDefaults())
		ctx, cancel := context.WithCancel(t.Context())
		hang := make(chan struct{})
		first := func(ctx context.Context) ([]byte, bool) {
			<-ctx.Done()
			<-hang // it takes its time to end
			return []byte("old"), false
		}
		left := make(chan error)
		go func() {
			_, _, err := j.Do(ctx, "k", first)
			left <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		got, begun, err := j.Do(t.Context(), "k", func(context.Context) ([]byte, bool) { return []byte("new"), false })
		require.NoError(t, err)
		assert.True(t, begun)
		assert.Equal(t, "new", string(got))
		close(hang)
		synctest.Wait()
		got, begun, err = j.Do(t.Context(), "k", nil)
		require.NoError(t, err)
		assert.False(t, begun)
		assert.Equal(t, "new", string(got), "the late answer of the old flight replaces nothing")
		require.NoError(t, j.Wait(t.Context()))
	})
}
