package rewards_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func TestAProfileIsRefusedWithAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := rewards.NewManager(rewards.ManagerConfig{
		Components: []rewards.Component{
			{Key: "a", Weight: math.NaN(), Scorer: constant(1)},
			{Key: "a", Weight: 1, Scorer: constant(1), Timeout: -1},
			{Key: "a/b", Weight: 1, Retries: -1},
			{Key: "", Weight: 1, Scorer: constant(1), Timeout: 25 * time.Hour},
			{Key: "combined", Weight: 1, Scorer: constant(1), OnFailure: rewards.ComponentPolicy{Policy: rewards.PolicyNone}},
		},
		Single: true, Aggregation: "sum", Backoff: -1,
		OnSampleFailure: rewards.SamplePolicy{Policy: rewards.PolicyValue, Value: math.Inf(1)},
	})
	require.Error(t, err)
	for _, text := range []string{
		"one component, not 5", `aggregation "sum"`, `"a" is used twice`, `"a/b": want a name`, `"a/b" has no scorer`,
		`component "a": weight NaN`, `component "a": timeout, retries and concurrency`, `component "a/b": timeout, retries and concurrency`, `component key ""`,
		`component "": timeout, retries and concurrency cannot be negative, nor the timeout over 24h`, "timeout, backoff and concurrency cannot be negative",
		"on_sample_failure: policy value:<number>: want a finite number", `component "combined": on_failure: policy "none"`,
	} {
		require.ErrorContains(t, err, text)
	}

	_, err = rewards.NewManager(rewards.ManagerConfig{})
	require.ErrorContains(t, err, "at least one component")
}

func TestAComponentCannotTakeTheColumnOfTheSum(t *testing.T) {
	t.Parallel()
	cfg := rewards.ManagerConfig{Components: []rewards.Component{component("combined", constant(1))}}
	_, err := rewards.NewManager(cfg)
	require.ErrorContains(t, err, "reward/combined")
	cfg.Single = true
	_, err = rewards.NewManager(cfg)
	require.NoError(t, err, "a single reward has no such column")
}

func TestTheWeightsOfASumNeedAPositiveSum(t *testing.T) {
	t.Parallel()
	weigh := func(a rewards.Aggregation, ws ...float64) error {
		cfg := rewards.ManagerConfig{Aggregation: a}
		for i, w := range ws {
			cfg.Components = append(cfg.Components, rewards.Component{Key: string(rune('a' + i)), Weight: w, Scorer: constant(1)})
		}
		_, err := rewards.NewManager(cfg)
		return err
	}
	for _, a := range []rewards.Aggregation{rewards.WeightedSum, rewards.WeightedMean} {
		require.ErrorContains(t, weigh(a, 1, -1), "the weights sum to 0", a)
		require.ErrorContains(t, weigh(a, 0), "needs a positive sum", a)
		require.ErrorContains(t, weigh(a, -2, 1), "the weights sum to -1", a)
		require.NoError(t, weigh(a, 2, -1), "%s: a penalty is fine beside a greater weight", a)
	}
	for _, a := range []rewards.Aggregation{rewards.Min, rewards.Max, rewards.Product} {
		require.NoError(t, weigh(a, 0, -1), "%s does not look at weights", a)
	}
}

func TestADeclaredComponentWithStepsNeedsAWeightedAggregation(t *testing.T) {
	t.Parallel()
	steps := rewards.Component{Key: "steps", Weight: 1, Scorer: stepping(1, 0.5, 0.5), Steps: true}
	for _, a := range rewards.Aggregations() {
		_, err := rewards.NewManager(rewards.ManagerConfig{Aggregation: a, Components: []rewards.Component{steps, component("whole", constant(1))}})
		if a == rewards.WeightedSum || a == rewards.WeightedMean {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, `component "steps" returns step scores: `+string(a)+" cannot split the reward into steps; write "+
			"aggregation weighted_sum or weighted_mean, or leave steps out for the whole reward on the last step")
	}
}

func TestAPolicyWrittenInGoIsHeldToTheSameWords(t *testing.T) {
	t.Parallel()
	for _, p := range []rewards.ComponentPolicy{{"mean", 0}, {rewards.PolicyZero, 5}, {"", 1}, {rewards.PolicyValue, math.NaN()}} {
		_, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "t", Weight: 1, Scorer: constant(1), OnFailure: p}}})
		require.ErrorContains(t, err, `component "t": on_failure`, "%+v", p)
	}
}

func TestTheDefaultsDoNotReachIntoTheCallersProfile(t *testing.T) {
	t.Parallel()
	cfg := rewards.ManagerConfig{Components: []rewards.Component{component("t", constant(1)), component("u", constant(1))}, Timeout: time.Second}
	cfg.Components[1].Timeout = time.Minute
	filled := cfg.WithDefaults()
	assert.Zero(t, cfg.Components[0].Timeout)
	assert.Equal(t, time.Second, filled.Components[0].Timeout)
	assert.Equal(t, time.Minute, filled.Components[1].Timeout)
	assert.Equal(t, rewards.DefaultBackoff, filled.Backoff)
	assert.Equal(t, rewards.WeightedSum, filled.Aggregation)
	assert.Equal(t, rewards.DefaultComponentTimeout, rewards.ManagerConfig{}.WithDefaults().Timeout)

	m := newManager(t, cfg)
	cfg.Components[0].Key = "changed"
	assert.Equal(t, []string{"t", "u"}, m.Components())
}

// held is a scorer that is warmed and closed.
type held struct {
	rewards.Scorer
	warm, shut error
	calls      []string
}

func (h *held) Warm(context.Context) error { h.calls = append(h.calls, "warm"); return h.warm }
func (h *held) Close() error               { h.calls = append(h.calls, "close"); return h.shut }

func TestAllScorersAreWarmedAndClosedWhateverOneSays(t *testing.T) {
	t.Parallel()
	bad := &held{Scorer: constant(1), warm: errBroken, shut: errBroken}
	good := &held{Scorer: constant(1)}
	m := manager(t, component("bad", bad), component("plain", constant(1)), component("good", good))
	err := m.Warm(t.Context())
	require.ErrorIs(t, err, errBroken)
	require.ErrorContains(t, err, `component "bad"`)
	require.ErrorIs(t, m.Close(), errBroken)
	for _, h := range []*held{bad, good} {
		assert.Equal(t, []string{"warm", "close"}, h.calls)
	}
	fine := manager(t, component("good", &held{Scorer: constant(1)}))
	require.NoError(t, fine.Warm(t.Context()))
	require.NoError(t, fine.Close())
}

func TestTheTimeoutOfTheProfileHoldsForComponentsWithoutOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own := on("zero", "own", slow(time.Hour, 1))
		own.Timeout = 3 * time.Second
		m := newManager(t, rewards.ManagerConfig{
			Components: []rewards.Component{on("zero", "profile", slow(time.Hour, 1)), own}, Timeout: 5 * time.Second,
		})
		r := score(t, m, alone)
		assert.Equal(t, 5*time.Second, componentOf(t, r, "profile").Took)
		assert.Equal(t, 3*time.Second, componentOf(t, r, "own").Took)
	})
}
