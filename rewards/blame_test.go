package rewards_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// What a Manager blames for what a scorer does; services, children and Python processes
// have their rows where they are.
func TestTheManagerSaysWhoseFailureItIs(t *testing.T) {
	t.Parallel()
	fails := func(err error) rewards.ScorerFunc {
		return func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{}, err }
	}
	says := func(v float64) rewards.ScorerFunc {
		return func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{Value: v}, nil }
	}
	for name, row := range map[string]struct {
		scorer    rewards.Scorer
		class     rewards.Class
		blame     rewards.Blame
		permanent bool
	}{
		"bad input":            {scorer: fails(fmt.Errorf("%w: no picture", rewards.BadInput)), class: rewards.BadInput, blame: rewards.BlameSample},
		"too large":            {scorer: fails(fmt.Errorf("%w: 9 GB", rewards.TooLarge)), class: rewards.TooLarge, blame: rewards.BlameSample},
		"an error of no class": {scorer: fails(errors.New("ValueError")), class: rewards.Internal, blame: rewards.BlameReward},
		"NaN":                  {scorer: says(math.NaN()), class: rewards.InvalidScore, blame: rewards.BlameReward},
		"infinite":             {scorer: says(math.Inf(-1)), class: rewards.InvalidScore, blame: rewards.BlameReward},
		"an invalid value":     {scorer: says(-999), class: rewards.InvalidScore, blame: rewards.BlameReward},
		"no score":             {scorer: fails(fmt.Errorf("%w: the answer has none", rewards.NoScore)), class: rewards.NoScore, blame: rewards.BlameReward},
		"a panic": {
			scorer: rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) { panic("nil map") }),
			class:  rewards.Panicked, blame: rewards.BlameReward,
		},
		"a goroutine that ends itself": {scorer: rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
			runtime.Goexit()
			return rewards.Score{}, nil
		}), class: rewards.Panicked, blame: rewards.BlameReward},
		"a time-out that the scorer heeds": {scorer: rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
			<-ctx.Done()
			return rewards.Score{}, ctx.Err()
		}), class: rewards.Timeout, blame: rewards.BlameReward},
		"a time-out that the scorer ignores": {scorer: rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
			<-time.After(time.Hour)
			return rewards.Score{}, nil
		}), class: rewards.Timeout, blame: rewards.BlameReward},
		"a service that is away": {scorer: fails(fmt.Errorf("%w: refused", rewards.Unavailable)), class: rewards.Unavailable, blame: rewards.BlameDependency},
		"a key that is refused": {
			scorer: fails(fmt.Errorf("judge: %w", rewards.Permanent(rewards.BlameDependency, fmt.Errorf("%w: 401", rewards.Unavailable)))),
			class:  rewards.Unavailable, blame: rewards.BlameDependency, permanent: true,
		},
		"a lost device":            {scorer: fails(rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: CUDA 999", rewards.Unavailable))), class: rewards.Unavailable, blame: rewards.BlameWorker},
		"time in a queue":          {scorer: fails(rewards.Blamed(rewards.BlameNobody, fmt.Errorf("%w: no place", rewards.Timeout))), class: rewards.Timeout, blame: rewards.BlameNobody},
		"the outermost blame wins": {scorer: fails(rewards.Blamed(rewards.BlameSample, rewards.Permanent(rewards.BlameWorker, rewards.Crashed))), class: rewards.Crashed, blame: rewards.BlameSample},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				one := required("t", row.scorer)
				one.Timeout, one.InvalidValues = time.Minute, []float64{-999}
				r := score(t, manager(t, one), alone)
				require.Equal(t, rewards.Failed, r.Outcome)
				require.Len(t, r.Errors, 1)
				e := r.Errors[0]
				assert.Equal(t, []any{row.class, row.blame, row.permanent, 1}, []any{e.Class, e.Blame, e.Permanent, e.Attempts}, e.Message)
			})
		})
	}
}

func TestEveryClassHasABlame(t *testing.T) {
	t.Parallel()
	for _, c := range []rewards.Class{
		rewards.BadInput, rewards.Timeout, rewards.Crashed, rewards.Unavailable, rewards.Panicked, rewards.InvalidScore, rewards.Internal,
		rewards.Cancelled, rewards.Malformed, rewards.TooLarge, rewards.OverCredit, rewards.Draining, rewards.IDReused,
		rewards.UnknownReward, rewards.Expired, rewards.Lost, rewards.NoScore,
	} {
		blame, permanent := rewards.BlameOf(fmt.Errorf("%w: x", c))
		assert.Contains(t, rewards.Blames(), blame, c)
		assert.False(t, permanent)
	}
	blame, _ := rewards.BlameOf(nil)
	assert.Empty(t, blame)
	require.NoError(t, rewards.Blamed(rewards.BlameReward, nil))
	require.NoError(t, rewards.Permanent(rewards.BlameReward, nil))
}
