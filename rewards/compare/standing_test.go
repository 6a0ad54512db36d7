package compare_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// valued makes a group whose members have these values of the component "pick"; NaN: none.
func valued(values ...float64) *rewards.Group {
	g := group(make([]float64, len(values))...)
	for i, v := range values {
		g.Members[i].Values = map[string]float64{"other": 1}
		if !math.IsNaN(v) {
			g.Members[i].Values["pick"] = v
		}
	}
	return g
}

func TestValuesOfAnotherComponentBecomeStandings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scorer, options string
		want            []float64
	}{
		{"rank", `{"of":"pick"}`, []float64{0, 1, 0.5}},
		{"rank", `{"of":"pick","scale":"flow_factory"}`, []float64{0, 2. / 3, 1. / 3}},
		{"zscore", `{"of":"pick"}`, []float64{-1.224744871391589, 1.224744871391589, 0}},
		{"zscore", `{"of":"pick","ddof":1}`, []float64{-1, 1, 0}},
		{"zscore", `{"of":"pick","min_spread":3}`, []float64{0, 0, 0}},
		{"minmax", `{"of":"pick"}`, []float64{-1, 1, 0}},
		{"minmax", `{"of":"pick","min_spread":3}`, []float64{0, 0, 0}},
	} {
		s := build(t, &judge{}, tt.scorer, tt.options)
		assert.InDeltaSlice(t, tt.want, scores(t, s, valued(1, 3, 2)), 1e-12, tt.scorer+tt.options)

		got, err := s.ScoreGroup(t.Context(), valued(1, math.NaN(), 3, 2))
		require.NoError(t, err)
		require.ErrorIs(t, got[1].Err, rewards.NoScore, "no value is no zero")
		assert.Contains(t, got[1].Err.Error(), "pick")
		for i, at := range []int{0, 2, 3} {
			require.NoError(t, got[at].Err)
			assert.InDelta(t, tt.want[i], got[at].Score.Value, 1e-12, "who has none does not count")
		}
	}
}

func TestWhoStandsAloneHasNoStanding(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"rank", "zscore", "minmax"} {
		s := build(t, &judge{}, name, `{"of":"pick"}`)
		for _, g := range []*rewards.Group{valued(math.NaN(), 2), valued(math.NaN(), math.NaN()), valued(math.Inf(1), 2)} {
			got, err := s.ScoreGroup(t.Context(), g)
			require.NoError(t, err)
			for _, m := range got {
				require.ErrorIs(t, m.Err, rewards.NoScore)
			}
		}
		flat := scores(t, s, valued(0.1, 0.1, 0.1))
		assert.InDelta(t, flat[0], flat[1], 0)
		if name != "rank" {
			assert.Equal(t, []float64{0, 0, 0}, flat)
		}
	}
}
