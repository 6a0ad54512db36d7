package rewards_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// tried fails with a class so often and then answers 1; it notes when it was called.
type tried struct {
	class rewards.Class
	fails int
	at    []time.Time
}

func (s *tried) Score(context.Context, *rewards.Sample) (rewards.Score, error) {
	s.at = append(s.at, time.Now())
	if len(s.at) <= s.fails {
		return rewards.Score{}, fmt.Errorf("%w: attempt %d", s.class, len(s.at))
	}
	return rewards.Score{Value: 1}, nil
}

func retrying(sc rewards.Scorer, retries int, timeout time.Duration) rewards.Component {
	t := required("t", sc)
	t.Retries, t.Timeout = retries, timeout
	return t
}

func TestRetriesAreForFailuresOfTheRewardAndOfWhatItAsks(t *testing.T) {
	t.Parallel()
	again := map[rewards.Class]bool{
		rewards.Crashed: true, rewards.Unavailable: true, rewards.Timeout: true, rewards.Panicked: true,
		rewards.InvalidScore: true, rewards.Internal: true, rewards.NoScore: true,
	}
	classes := []rewards.Class{
		rewards.BadInput, rewards.Timeout, rewards.Crashed, rewards.Unavailable, rewards.Panicked, rewards.InvalidScore,
		rewards.Internal, rewards.Cancelled, rewards.TooLarge, rewards.Lost, rewards.NoScore,
	}
	for _, c := range classes {
		t.Run(string(c), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sc := &tried{class: c, fails: 1}
				r := score(t, manager(t, retrying(sc, 3, time.Minute)), alone)
				if again[c] {
					assert.Equal(t, rewards.Scored, r.Outcome)
					assert.Equal(t, 2, r.Components[0].Attempts)
					assert.Empty(t, r.Errors)
					return
				}
				assert.Len(t, sc.at, 1)
				assert.Equal(t, rewards.Failed, r.Outcome)
				assert.Equal(t, c, r.Class())
			})
		})
	}
}

func TestTheRetryBudgetIsWhatTheComponentSays(t *testing.T) {
	t.Parallel()
	for retries := range 4 {
		synctest.Test(t, func(t *testing.T) {
			sc := &tried{class: rewards.Unavailable, fails: 99}
			r := score(t, manager(t, retrying(sc, retries, time.Minute)), alone)
			assert.Len(t, sc.at, retries+1)
			require.Len(t, r.Errors, 1)
			assert.Equal(t, retries+1, r.Errors[0].Attempts)
			assert.Contains(t, r.Errors[0].Message, fmt.Sprintf("attempt %d", retries+1), "the last failure is the final one")
		})
	}
}

func TestThePauseDoublesAndIsJittered(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			sc := &tried{class: rewards.Crashed, fails: 3}
			m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{retrying(sc, 3, time.Hour)}, Backoff: time.Second})
			r := score(t, m, alone)
			require.Equal(t, rewards.Scored, r.Outcome)
			for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
				pause := sc.at[i+1].Sub(sc.at[i])
				assert.GreaterOrEqual(t, pause, want/2, "pause %d", i)
				assert.LessOrEqual(t, pause, want*3/2, "pause %d", i)
				seen[pause] = true
			}
		})
	}
	assert.Greater(t, len(seen), 30, "sixty pauses, hardly two alike")
}

func TestRetriesEndWithTheComponentsTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sc := &tried{class: rewards.Unavailable, fails: 99}
		start := time.Now()
		r := score(t, manager(t, retrying(sc, 50, 10*time.Second)), alone)
		assert.Equal(t, 10*time.Second, time.Since(start), "in the middle of a pause")
		require.Len(t, r.Errors, 1)
		assert.Equal(t, rewards.Unavailable, r.Errors[0].Class, "what the scorer said, not that time was up")
		assert.Equal(t, len(sc.at), r.Errors[0].Attempts)
		assert.Greater(t, len(sc.at), 3)
		assert.Less(t, len(sc.at), 10)
		assert.Equal(t, 10*time.Second, r.Components[0].Took)
	})
}

// The timeout is the component's, not each attempt's.
func TestASlowRetryDoesNotGetANewTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		sc := rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
			calls++
			if calls == 1 {
				return rewards.Score{}, rewards.Crashed
			}
			return slow(time.Hour, 1).Score(ctx, s)
		})
		start := time.Now()
		r := score(t, manager(t, retrying(sc, 9, 5*time.Second)), alone)
		assert.Equal(t, 5*time.Second, time.Since(start))
		assert.Equal(t, rewards.Timeout, r.Class())
		assert.Equal(t, 2, r.Errors[0].Attempts)
	})
}

func TestAScorerGivenUpOnItsSecondAttemptSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		sc := rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
			calls++
			if calls == 1 {
				return rewards.Score{}, rewards.Crashed
			}
			return uncancellable(time.Hour, 1).Score(ctx, s)
		})
		run := manager(t, retrying(sc, 9, 5*time.Second)).Run(t.Context(), &alone)
		assert.Equal(t, rewards.Timeout, run.Result.Class())
		assert.Equal(t, 2, run.Result.Errors[0].Attempts)
		<-run.Done()
	})
}

func TestACancelledSampleIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sc := &tried{class: rewards.Unavailable, fails: 99}
		m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{retrying(sc, 9, time.Hour)}, Backoff: time.Minute})
		start := time.Now()
		run := m.Run(ctx, &alone)
		<-run.Done()
		assert.Equal(t, rewards.OutcomeCancelled, run.Result.Outcome)
		assert.Equal(t, time.Second, time.Since(start), "the pause ends with the context")
		assert.Len(t, sc.at, 1)
	})
}
