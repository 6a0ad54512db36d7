package rewards_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func values(pairs ...float64) []rewards.WeightedValue {
	var vs []rewards.WeightedValue
	for i := 0; i < len(pairs); i += 2 {
		vs = append(vs, rewards.WeightedValue{Weight: pairs[i], Value: pairs[i+1]})
	}
	return vs
}

func TestTheFiveAggregations(t *testing.T) {
	t.Parallel()
	// 2 × 3 and 0.5 × −1.
	vs := values(2, 3, 0.5, -1)
	want := map[rewards.Aggregation]float64{
		rewards.WeightedSum:  5.5,
		rewards.WeightedMean: 5.5 / 2.5,
		rewards.Min:          -1,
		rewards.Max:          3,
		rewards.Product:      -3,
	}
	require.Len(t, want, len(rewards.Aggregations()))
	for _, a := range rewards.Aggregations() {
		got, ok := a.Combine(vs)
		require.True(t, ok, a)
		assert.InDelta(t, want[a], got, 1e-15, a)

		got, ok = a.Combine(values(2, 7))
		require.True(t, ok, a)
		if a == rewards.WeightedSum {
			assert.InDelta(t, 14, got, 0)
		} else {
			assert.InDelta(t, 7, got, 0, "%s of one value", a)
		}

		_, ok = a.Combine(nil)
		assert.False(t, ok, "%s of nothing", a)
	}
}

func TestWhatIsNotFiniteIsNoReward(t *testing.T) {
	t.Parallel()
	for _, a := range rewards.Aggregations() {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			got, ok := a.Combine(values(1, 1, 1, v))
			assert.False(t, ok, "%s with %v", a, v)
			assert.Zero(t, got)
		}
	}
	overflows := map[rewards.Aggregation][]rewards.WeightedValue{
		rewards.WeightedSum:  values(1, math.MaxFloat64, 1, math.MaxFloat64),
		rewards.WeightedMean: values(2, math.MaxFloat64, 2, math.MaxFloat64),
		rewards.Product:      values(1, 1e200, 1, 1e200),
	}
	for a, vs := range overflows {
		got, ok := a.Combine(vs)
		assert.False(t, ok, a)
		assert.Zero(t, got)
	}
}

// Left with the penalty alone, a mean would divide it by its own negative weight
// and reward what it is to punish.
func TestAMeanOverWeightsWithoutAPositiveSumIsNoReward(t *testing.T) {
	t.Parallel()
	for _, vs := range [][]rewards.WeightedValue{
		values(-1, 5), values(1, 5, -1, 3), values(0, 5), values(math.MaxFloat64, 0.5, math.MaxFloat64, 0.5),
	} {
		_, ok := rewards.WeightedMean.Combine(vs)
		assert.False(t, ok, "%v", vs)
	}
	got, ok := rewards.WeightedSum.Combine(values(-1, 5))
	assert.True(t, ok)
	assert.InDelta(t, -5, got, 0)
}

func means(m map[string]float64) func(string) (float64, bool) {
	return func(key string) (float64, bool) { v, ok := m[key]; return v, ok }
}

// pendingResult is a member with a: 3 (weight 2), and b and c failed (1 and 0.5).
func pendingResult(t *testing.T) rewards.Result {
	t.Helper()
	c := on("", "c", failing(errBroken))
	c.Weight = 0.5
	r := score(t, manager(t,
		rewards.Component{Key: "a", Weight: 2, Scorer: constant(3)}, on("", "b", failing(errBroken)), c,
	), member)
	require.NotNil(t, r.Pending)
	return r
}

func TestResolveImputesTheGroupsMeansAndWritesTheColumns(t *testing.T) {
	t.Parallel()
	r := pendingResult(t)
	done, ok := r.Pending.Resolve(r.Extra, means(map[string]float64{"a": 99, "b": 4, "c": 10}))
	assert.True(t, ok)
	assert.InDelta(t, 2*3+4+5, done.Score, 0)
	assert.Equal(t, map[string]any{
		"reward/a": 3.0, "reward/a/imputed": false,
		"reward/b": 4.0, "reward/b/imputed": true,
		"reward/c": 10.0, "reward/c/imputed": true,
		"reward/combined": 15.0,
	}, r.Extra)
}

func TestAComponentThatFailedForTheWholeGroupIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, none := range []map[string]float64{{"b": 4}, {"b": 4, "c": math.NaN()}, {"b": 4, "c": math.Inf(1)}} {
		r := pendingResult(t)
		done, ok := r.Pending.Resolve(r.Extra, means(none))
		assert.True(t, ok)
		assert.InDelta(t, 2*3+4, done.Score, 0)
		assert.Nil(t, r.Extra["reward/c"])
		assert.Equal(t, false, r.Extra["reward/c/imputed"])
	}
}

// Two members with the same values and different failures get the same reward if
// the failed values are the mean: the imputed component carries no signal.
func TestResolveLeavesThePendingRewardAsItWas(t *testing.T) {
	t.Parallel()
	r := pendingResult(t)
	before, err := json.Marshal(r.Pending)
	require.NoError(t, err)
	first, _ := r.Pending.Resolve(r.Extra, means(map[string]float64{"b": 1, "c": 1}))
	second, _ := r.Pending.Resolve(r.Extra, means(map[string]float64{"b": 1, "c": 1}))
	assert.Equal(t, first, second)
	after, err := json.Marshal(r.Pending)
	require.NoError(t, err)
	assert.JSONEq(t, string(before), string(after))
}

func TestAPendingRewardSurvivesTheWayToTheGateway(t *testing.T) {
	t.Parallel()
	r := pendingResult(t)
	raw, err := json.Marshal(r.Pending)
	require.NoError(t, err)
	var p rewards.Pending
	require.NoError(t, json.Unmarshal(raw, &p))
	assert.Equal(t, *r.Pending, p)
	done, ok := p.Resolve(nil, means(map[string]float64{"b": 4}))
	assert.True(t, ok, "without columns to write to")
	assert.InDelta(t, 10, done.Score, 0)
}

func TestAPendingRewardWithoutAnyValueStaysWithoutOne(t *testing.T) {
	t.Parallel()
	r := score(t, manager(t, component("b", failing(errBroken))), member)
	require.NotNil(t, r.Pending)
	_, ok := r.Pending.Resolve(r.Extra, means(nil))
	assert.False(t, ok)
	assert.Nil(t, r.Extra["reward/combined"])
	assert.Contains(t, r.Extra, "reward/combined")
}

func TestASingleRewardIsResolvedInItsOwnColumn(t *testing.T) {
	t.Parallel()
	bare := failing(errBroken)
	withFields := declaring{bare, []rewards.Field{{Name: "distance", Kind: rewards.Number}}}
	for column, sc := range map[string]rewards.Scorer{"acc": bare, "score": withFields} {
		r := score(t, newManager(t, rewards.ManagerConfig{Components: []rewards.Component{component("t", sc)}, Single: true}), member)
		require.NotNil(t, r.Pending)
		assert.Equal(t, column, r.Pending.Column)
		done, ok := r.Pending.Resolve(r.Extra, means(map[string]float64{"t": 0.25}))
		assert.True(t, ok)
		assert.InDelta(t, 0.25, done.Score, 0)
		assert.Equal(t, 0.25, r.Extra[column]) //nolint:testifylint // the column holds the mean itself
		assert.Equal(t, true, r.Extra["rewardloop/imputed"])
		assert.NotContains(t, r.Extra, "reward/combined")
	}
}

func TestPoliciesAreReadAsTheConfigurationWritesThem(t *testing.T) {
	t.Parallel()
	components := map[string]rewards.ComponentPolicy{
		"": {}, "fail": {Policy: rewards.PolicyFail}, "zero": {Policy: rewards.PolicyZero},
		"group_mean": {Policy: rewards.PolicyGroupMean},
		"value:1.5":  {rewards.PolicyValue, 1.5}, "value: -1e3": {rewards.PolicyValue, -1000},
	}
	for text, want := range components {
		got, err := rewards.ParseComponentPolicy(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got)
	}
	samples := map[string]rewards.SamplePolicy{
		"": {Policy: rewards.PolicyNone}, "none": {Policy: rewards.PolicyNone}, "zero": {Policy: rewards.PolicyZero},
		"group_mean": {Policy: rewards.PolicyGroupMean}, "value:0": {rewards.PolicyValue, 0},
	}
	for text, want := range samples {
		got, err := rewards.ParseSamplePolicy(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got)
	}
}

func TestAPolicyThatIsNoneSaysWhatWouldBe(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"none", "mean", "Zero", " zero", "value", "0"} {
		_, err := rewards.ParseComponentPolicy(text)
		require.ErrorContains(t, err, "want one of [fail zero group_mean] or value:<number>", text)
	}
	for _, text := range []string{"fail", "raise"} {
		_, err := rewards.ParseSamplePolicy(text)
		require.ErrorContains(t, err, "want one of [none zero group_mean] or value:<number>", text)
	}
	for _, text := range []string{"value:", "value:x", "value:NaN", "value:inf", "value:-Inf", "value:1e999", "value:1,5"} {
		_, err := rewards.ParseComponentPolicy(text)
		require.ErrorContains(t, err, "finite number", text)
		_, err = rewards.ParseSamplePolicy(text)
		require.ErrorContains(t, err, "finite number", text)
	}
}
