package rewards_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// queuing is a scorer whose calls wait for something to execute them.
type queuing struct {
	score func(ctx context.Context) (rewards.Score, error)
}

func (q queuing) Score(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
	return q.score(ctx)
}

func (queuing) Queues() {}

func queued(t *testing.T, timeout time.Duration, score func(ctx context.Context) (rewards.Score, error)) *rewards.Manager {
	t.Helper()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "k", Weight: 1, Timeout: timeout, Scorer: queuing{score}}}})
	require.NoError(t, err)
	return m
}

func TestAComponentThatIsExecutedWaitsForItsSecondCallNoLongerThanItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := queued(t, 10*time.Second, func(ctx context.Context) (rewards.Score, error) {
			var all sync.WaitGroup
			var second error
			all.Go(func() { // waits for what executes the first
				<-ctx.Done()
				second = ctx.Err()
			})
			time.Sleep(time.Hour)
			assert.False(t, rewards.Overdue(ctx))
			first, cancel := rewards.Start(ctx)
			defer cancel()
			<-first.Done()
			all.Wait()
			assert.True(t, rewards.Overdue(ctx))
			end, _ := ctx.Deadline()
			assert.False(t, time.Now().Before(end))
			return rewards.Score{}, errors.Join(first.Err(), second)
		})
		start := time.Now()
		r := m.Run(t.Context(), &rewards.Sample{ID: "s"})
		<-r.Done()
		require.Len(t, r.Result.Errors, 1)
		assert.Equal(t, rewards.Timeout, r.Result.Errors[0].Class)
		assert.Equal(t, "context deadline exceeded\ncontext deadline exceeded", r.Result.Errors[0].Message)
		assert.Equal(t, time.Hour+10*time.Second, time.Since(start))
	})
}

func TestWorkThatSeveralWaitForStartsTheTimeOfEachAndEndsWithNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		work, began := rewards.Joined(ctx)
		leave()
		require.NoError(t, work.Err())
		done := make(chan struct{})
		wait := func(ctx context.Context) (rewards.Score, error) {
			executing, err := rewards.Await(ctx, began, done)
			if err != nil {
				return rewards.Score{}, err
			}
			assert.True(t, executing)
			return rewards.Score{Value: 1}, nil
		}
		var all sync.WaitGroup
		for timeout, outcome := range map[time.Duration]rewards.Outcome{time.Second: rewards.Failed, time.Minute: rewards.Scored} {
			all.Go(func() {
				r := queued(t, timeout, wait).Run(t.Context(), &rewards.Sample{ID: "s"})
				<-r.Done()
				assert.Equal(t, outcome, r.Result.Outcome, "timeout of %v", timeout)
			})
		}
		time.Sleep(time.Hour)
		run, cancel := rewards.Start(work)
		defer cancel()
		_, bounded := run.Deadline()
		assert.False(t, bounded)
		time.Sleep(30 * time.Second)
		close(done)
		all.Wait()

		gone, leave := context.WithCancel(t.Context())
		leave()
		executing, err := rewards.Await(gone, make(chan struct{}), make(chan struct{}))
		require.ErrorIs(t, err, context.Canceled)
		assert.False(t, executing)
	})
}
