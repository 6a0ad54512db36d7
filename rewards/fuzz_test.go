package rewards_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// written is a policy as the configuration writes it.
func written(p rewards.Policy, v float64) string {
	if p == rewards.PolicyValue {
		return "value:" + strconv.FormatFloat(v, 'g', -1, 64)
	}
	return string(p)
}

func addPolicies(f *testing.F) {
	f.Helper()
	for _, s := range []string{
		"", "none", "fail", "zero", "group_mean", "value:1", "value: -0.5 ", "value:0x1p-2", "value:-0", "value:NaN", "value:inf",
		"value:1e309", "value:", "VALUE:1", "zero ", "value:1_0",
	} {
		f.Add(s)
	}
}

func FuzzParseComponentPolicy(f *testing.F) {
	addPolicies(f)
	f.Fuzz(func(t *testing.T, s string) {
		p, err := rewards.ParseComponentPolicy(s)
		if err != nil {
			assert.Zero(t, p)
			return
		}
		again, err := rewards.ParseComponentPolicy(written(p.Policy, p.Value))
		require.NoError(t, err)
		assert.Equal(t, p, again)
		_, err = rewards.NewManager(rewards.ManagerConfig{
			Components: []rewards.Component{{Key: "t", Weight: 1, Scorer: constant(1), OnFailure: p}},
		})
		assert.NoError(t, err, "what is read is valid")
	})
}

func FuzzParseSamplePolicy(f *testing.F) {
	addPolicies(f)
	f.Fuzz(func(t *testing.T, s string) {
		p, err := rewards.ParseSamplePolicy(s)
		if err != nil {
			assert.Zero(t, p)
			return
		}
		again, err := rewards.ParseSamplePolicy(written(p.Policy, p.Value))
		require.NoError(t, err)
		assert.Equal(t, p, again)
		assert.NoError(t, rewards.ManagerConfig{
			Components: []rewards.Component{component("t", constant(1))}, Aggregation: rewards.Min, OnSampleFailure: p,
		}.Validate(), "what is read is valid")
	})
}

func FuzzCombine(f *testing.F) {
	f.Add(byte(0), byte(3), 1.0, 2.0, 0.5, -1.0, -0.5, 3.0)
	f.Add(byte(1), byte(2), 1.0, 2.0, -1.0, 2.0, 0.0, 0.0)
	f.Add(byte(2), byte(2), 1.0, math.Inf(1), 1.0, 0.0, 0.0, 0.0)
	f.Add(byte(4), byte(3), 0.0, math.MaxFloat64, 0.0, math.MaxFloat64, 0.0, 0.0)
	f.Add(byte(1), byte(1), math.NaN(), 1.0, 0.0, 0.0, 0.0, 0.0)
	f.Add(byte(3), byte(0), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
	f.Fuzz(func(t *testing.T, which, n byte, w1, v1, w2, v2, w3, v3 float64) {
		all := rewards.Aggregations()
		a := all[int(which)%len(all)]
		vs := values(w1, v1, w2, v2, w3, v3)[:n%4]
		got, ok := a.Combine(vs)
		if !ok {
			require.Zero(t, got, "no number where there is no reward")
			return
		}
		require.False(t, math.IsNaN(got) || math.IsInf(got, 0), "%s of %v is %v", a, vs, got)
		require.NotEmpty(t, vs)
		for _, v := range vs {
			require.False(t, math.IsNaN(v.Value) || math.IsInf(v.Value, 0), "%s took %v", a, vs)
			require.False(t, a == rewards.Min && got > v.Value || a == rewards.Max && got < v.Value, "%s of %v is %v", a, vs, got)
		}
	})
}
