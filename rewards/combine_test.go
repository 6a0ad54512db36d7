package rewards_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

var errBroken = errors.New("broken")

func TestAFailedComponentOfAGroupMemberWaitsForTheGroupsMean(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"", "group_mean"} {
		m := newManager(t, rewards.ManagerConfig{
			Components:  []rewards.Component{{Key: "a", Weight: 2, Scorer: constant(3)}, on(policy, "b", failing(errBroken))},
			Aggregation: rewards.WeightedMean,
		})
		r := score(t, m, member)
		assert.Equal(t, rewards.Scored, r.Outcome)
		require.NotNil(t, r.Pending)
		assert.Equal(t, &rewards.Pending{
			Aggregation: rewards.WeightedMean,
			Have:        []rewards.WeightedValue{{Key: "a", Weight: 2, Value: 3}},
			Want:        []rewards.WeightedValue{{Key: "b", Weight: 1}},
		}, r.Pending)
		assert.Nil(t, r.Extra["reward/b"], "absence is not zero")
		assert.Equal(t, false, r.Extra["reward/b/imputed"])
		assert.Nil(t, r.Extra["reward/combined"])
		require.Len(t, r.Errors, 1)
		assert.Equal(t, rewards.Internal, r.Errors[0].Class)
	}
}

func TestWithoutAGroupAFailedComponentFailsTheSample(t *testing.T) {
	t.Parallel()
	samples := map[string]rewards.Sample{
		"no group":          alone,
		"group of one":      {ID: "x", UID: "prompt", GroupSize: 1},
		"size unknown":      {ID: "x", UID: "prompt"},
		"size but no group": {ID: "x", GroupSize: 4},
	}
	for name, s := range samples {
		for _, policy := range []string{"", "group_mean", "fail"} {
			r := score(t, manager(t, component("a", constant(3)), on(policy, "b", failing(errBroken))), s)
			assert.Equal(t, rewards.Failed, r.Outcome, "%s, policy %q", name, policy)
			assert.Nil(t, r.Pending)
			assert.Equal(t, rewards.Internal, r.Class())
			assert.InDelta(t, 3, r.Extra["reward/a"], 0, "what there is stays visible")
			assert.Nil(t, r.Extra["reward/b"])
			assert.Nil(t, r.Extra["reward/combined"])
		}
	}
}

func TestPolicyFailFailsAGroupMemberToo(t *testing.T) {
	t.Parallel()
	r := score(t, manager(t, component("a", constant(3)), on("fail", "b", failing(errBroken))), member)
	assert.Equal(t, rewards.Failed, r.Outcome)
	assert.Nil(t, r.Pending)
}

func TestAValueOfTheConfigurationStandsInAndIsFlagged(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]float64{"zero": 0, "value:-2.5": -2.5} {
		for _, s := range []rewards.Sample{alone, member} {
			b := on(policy, "b", failing(errBroken))
			b.Weight = 2
			r := score(t, manager(t, component("a", constant(3)), b), s)
			assert.Equal(t, rewards.Scored, r.Outcome)
			assert.InDelta(t, 3+2*want, r.Score, 0)
			assert.Equal(t, map[string]any{
				"reward/a": 3.0, "reward/a/imputed": false,
				"reward/b": want, "reward/b/imputed": true,
				"reward/combined": 3 + 2*want,
			}, r.Extra)
			assert.Equal(t, rewards.StatusImputed, componentOf(t, r, "b").Status)
			require.Len(t, r.Errors, 1, "the failure is still told")
			assert.Equal(t, "b", r.Errors[0].Component)
		}
	}
}

func TestTheFailureThatDecidedGivesTheSampleItsClass(t *testing.T) {
	t.Parallel()
	r := score(t, manager(t,
		on("zero", "imputed", broken(rewards.BadInput)), on("fail", "decides", broken(rewards.Internal)),
	), alone)
	assert.Equal(t, rewards.Failed, r.Outcome)
	require.Len(t, r.Errors, 2)
	assert.Equal(t, rewards.Internal, r.Class(), "not that of the component whose failure was made good")

	r = score(t, manager(t, on("zero", "imputed", broken(rewards.BadInput)), required("decides", broken(rewards.Panicked))), alone)
	assert.Equal(t, rewards.Panicked, r.Class())
}

func TestASkippedComponentIsNeitherAFailureNorAZero(t *testing.T) {
	t.Parallel()
	skip := failing(rewards.Skip("not a video"))
	cfg := rewards.ManagerConfig{Aggregation: rewards.Min}
	for _, s := range []rewards.Sample{alone, member} {
		for _, skipped := range []rewards.Component{component("b", skip), required("b", skip), on("value:9", "b", skip)} {
			cfg.Components = []rewards.Component{component("a", constant(3)), skipped}
			r := score(t, newManager(t, cfg), s)
			assert.Equal(t, rewards.Scored, r.Outcome)
			assert.Nil(t, r.Pending)
			assert.InDelta(t, 3, r.Score, 0)
			assert.Empty(t, r.Errors)
			assert.Nil(t, r.Extra["reward/b"])
			assert.Equal(t, false, r.Extra["reward/b/imputed"])
			assert.Equal(t, "not a video", componentOf(t, r, "b").Reason)
			assert.Equal(t, rewards.StatusSkipped, componentOf(t, r, "b").Status)
		}
	}
}

func TestWhereAllComponentsAreSkippedThereIsNoScore(t *testing.T) {
	t.Parallel()
	for _, a := range rewards.Aggregations() {
		m := newManager(t, rewards.ManagerConfig{
			Components: []rewards.Component{component("a", failing(rewards.Skip("text"))), component("b", failing(rewards.Skip("text")))}, Aggregation: a,
		})
		r := score(t, m, member)
		assert.Equal(t, rewards.Failed, r.Outcome)
		assert.Equal(t, rewards.NoScore, r.Class())
		assert.Contains(t, r.Errors[0].Message, string(a))
		assert.Nil(t, r.Extra["reward/combined"])
	}
}

func TestACombinationThatIsNotFiniteIsNoScore(t *testing.T) {
	t.Parallel()
	r := score(t, manager(t,
		component("a", constant(math.MaxFloat64)), component("b", constant(math.MaxFloat64)), on("zero", "c", broken(rewards.BadInput)),
	), alone)
	assert.Equal(t, rewards.Failed, r.Outcome)
	assert.Equal(t, rewards.NoScore, r.Class(), "and not the class of the imputed component")
	assert.Len(t, r.Errors, 2)
	assert.Nil(t, r.Extra["reward/combined"])
	assert.InDelta(t, math.MaxFloat64, r.Extra["reward/a"], 0)
}

func TestDetailsStandUnderTheKeyOfTheirComponent(t *testing.T) {
	t.Parallel()
	detailed := bySample(func(s *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: 1, Details: map[string]any{"lines": []string{s.ID}}}, nil
	})
	want := map[string]any{"lines": []string{"alone"}}

	r := score(t, manager(t, component("a", detailed), component("b", detailed), component("c", constant(0))), alone)
	assert.Equal(t, map[string]any{"a": want, "b": want}, r.Details)

	single := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{component("a", detailed)}, Single: true})
	assert.Equal(t, want, score(t, single, alone).Details, "a single reward's own")
}

func TestTheResultCarriesTheProfilesPolicyForFailedSamples(t *testing.T) {
	t.Parallel()
	policy := rewards.SamplePolicy{Policy: rewards.PolicyValue, Value: -1}
	for _, sc := range []rewards.Scorer{constant(1), failing(errBroken)} {
		m := newManager(t, rewards.ManagerConfig{Components: []rewards.Component{required("a", sc)}, OnSampleFailure: policy})
		assert.Equal(t, policy, score(t, m, alone).OnFailure)
	}
	assert.Equal(t, rewards.SamplePolicy{Policy: rewards.PolicyNone}, score(t, manager(t, component("a", constant(1))), alone).OnFailure)
}

func TestAResultWithoutErrorsHasNoClass(t *testing.T) {
	t.Parallel()
	r := score(t, manager(t, component("a", constant(1))), alone)
	assert.Empty(t, r.Class())
}
