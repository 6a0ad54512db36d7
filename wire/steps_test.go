package wire_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// drawn is a component of a drawn profile; it answers what was drawn.
func drawn(r *rand.Rand, key string, steps int) rewards.Component {
	t := rewards.Component{Key: key, Weight: []float64{0, -0.5, 1, 1, r.Float64() * 3, r.Float64() * 3}[r.IntN(6)]}
	score := rewards.Score{Value: r.NormFloat64()}
	if r.IntN(3) > 0 {
		if r.IntN(20) == 0 {
			steps++ // it counts otherwise than the rest
		}
		for range steps {
			score.Steps = append(score.Steps, r.NormFloat64()*2)
		}
		if t.Weight > 0 {
			t.Steps = r.IntN(2) == 0
		}
		if r.IntN(2) == 0 {
			score.Value = added(score.Steps)
		}
	}
	if r.IntN(3) == 0 {
		t.Scale = []float64{10, -0.1, r.NormFloat64()}[r.IntN(3)]
	}
	if r.IntN(4) == 0 {
		t.Clip = &[2]float64{-r.Float64(), r.Float64()}
	}
	var err error
	if r.IntN(4) == 0 {
		err = fmt.Errorf("%w: as drawn", rewards.BadInput)
		t.OnFailure, _ = rewards.ParseComponentPolicy([]string{"", "group_mean", "zero", "value:0.3", "value:-7"}[r.IntN(5)])
	}
	t.Scorer = rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) { return score, err })
	return t
}

// added is the sum of step scores from the first to the last, as a reader has it.
func added(steps []float64) (sum float64) {
	for _, v := range steps {
		sum += v
	}
	return sum
}

// finished scores a sample of a group, hands the result over as a worker does to a gateway on
// another machine, and has the gateway finish it with drawn means. ok is false where the
// profile gives no reward.
func finished(t *testing.T, r *rand.Rand, m *rewards.Manager) (score float64, steps []float64, pending, ok bool) {
	t.Helper()
	s := &rewards.Sample{ID: "s", UID: "u", GroupSize: 2}
	run := m.Run(t.Context(), s)
	<-run.Done()
	res := wire.Result{
		ID: s.ID, Outcome: run.Result.Outcome, StepScores: run.Result.Steps, Pending: run.Result.Pending,
		Errors: run.Result.Errors, Worker: "w", Attempt: wire.AttemptKey{ID: s.ID, Attempt: 1},
	}
	if res.Outcome != rewards.Scored {
		return 0, nil, false, false
	}
	if res.Pending == nil {
		res.RewardScore = &run.Result.Score
	}
	raw, err := wire.EncodeClaimResult(1, "token", &res)
	require.NoError(t, err)
	message, err := wire.DecodeClaim(raw)
	require.NoError(t, err)
	got := message.(*wire.ClaimResult).Result //nolint:forcetypeassert // it was encoded as one
	if got.Pending == nil {
		return *got.RewardScore, got.StepScores, false, true
	}
	require.Nil(t, got.StepScores)
	done, ok := got.Pending.Resolve(nil, func(string) (float64, bool) { return r.NormFloat64(), r.IntN(3) > 0 })
	return done.Score, done.Steps, true, ok
}

func TestStepScoresOfDrawnProfilesSumToTheirReward(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(19, 1))
	with, pending := 0, 0
	for with < 10_000 {
		cfg := rewards.ManagerConfig{Aggregation: []rewards.Aggregation{rewards.WeightedSum, rewards.WeightedMean}[r.IntN(2)]}
		n := 1 + r.IntN(8)
		for i := range 1 + r.IntN(4) {
			cfg.Components = append(cfg.Components, drawn(r, fmt.Sprint("c", i), n))
		}
		m, err := rewards.NewManager(cfg)
		if err != nil {
			require.ErrorContains(t, err, "needs a positive sum")
			continue
		}
		score, steps, waited, ok := finished(t, r, m)
		if !ok || len(steps) == 0 {
			continue
		}
		with++
		if waited {
			pending++
		}
		size := max(1, math.Abs(score))
		require.InDelta(t, score, added(steps), 1e-9*size, "%+v", cfg)
		// A float32 as large as the largest step has no finer digits.
		var single float32
		for _, v := range steps {
			single += float32(v)
			size = max(size, math.Abs(v))
		}
		require.InDelta(t, score, float64(single), 1e-6*size, "%+v", cfg)
	}
	assert.Greater(t, pending, 1000, "rewards that a group's end finished")
}
