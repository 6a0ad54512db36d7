package compare_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/rewards/compare"
)

// The scores of RM-Gallery's PairwiseEvaluator @ 5d2e17ac for these comparisons of i < j
// in their order. None of them depends on the order or on its draws, except elo, of
// which only tables without a common participant are here.
func TestWorkedExamplesAreScoredAsRMGalleryScoresThem(t *testing.T) {
	t.Parallel()
	type scores map[string][]float64
	for name, tt := range map[string]struct {
		n    int
		said string // of 0-1, 0-2, …, 1-2, …
		want scores
	}{
		"no cycle": {4, "AAtAAB", scores{
			"winrate": {1, 1, -1, 0}, "copeland": {2. / 3, 1. / 3, -1, 0}, "dgr": {2. / 3, 1. / 3, -1, 0},
			"tournament": {2. / 3, 1. / 3, -1, 0},
		}},
		"the last beats the first": {4, "AABAAA", scores{
			"winrate": {1, 1, -1, -1}, "copeland": {1, 1, -1, -1}, "dgr": {1, 0.5, -0.5, -1},
			"tournament": {1. / 3, 1. / 3, -1. / 3, -1. / 3},
		}},
		"two cycles and a tie": {5, "ABAAAAtBAA", scores{
			"winrate": {1, 1. / 3, 1. / 3, 1. / 3, -1}, "copeland": {2. / 3, 1. / 3, 0, 0, -1}, "dgr": {1, 1. / 3, -1. / 3, 0, -1},
			"tournament": {0.5, 0.25, 0, 0, -0.75},
		}},
		"all equal": {3, "ttt", scores{
			"winrate": {0, 0, 0}, "copeland": {0, 0, 0}, "dgr": {0, 0, 0}, "elo": {0, 0, 0}, "tournament": {0, 0, 0},
		}},
		"one beats another": {2, "A", scores{
			"winrate": {1, -1}, "copeland": {1, -1}, "dgr": {1, -1}, "elo": {1, -1}, "tournament": {1, -1},
		}},
		"two pairs apart": {4, "A????t", scores{"elo": {1, -1, 0, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := compare.NewTable([]uint64{4, 8, 15, 16, 23}[:tt.n])
			at := 0
			for a := range tt.n {
				for b := a + 1; b < tt.n; b++ {
					o := map[byte]compare.Outcome{'A': compare.ABetter, 'B': compare.BBetter, 't': compare.Tie}[tt.said[at]]
					table.Set(a, b, o, 1)
					at++
				}
			}
			for method, want := range tt.want {
				equal(t, want, methods[method](table), method)
			}
		})
	}
	two := compare.NewTable([]uint64{1, 2})
	two.Set(0, 1, compare.ABetter, 1)
	got := compare.Elo(two)
	assert.InDeltaSlice(t, []float64{1808.3886241064965, 1191.6113758935037}, got.Ratings, 1e-9)
	assert.Equal(t, 100, got.Passes)
}

func TestListwiseGoesFromOneToMinusOneInEqualSteps(t *testing.T) {
	t.Parallel()
	assert.InDeltaSlice(t, []float64{0, -1, 1}, compare.Listwise([]int{2, 0, 1}), 0)
	assert.InDeltaSlice(t, []float64{-1, 1. / 3, 1, -1. / 3}, compare.Listwise([]int{2, 1, 3, 0}), 1e-15)
	assert.Equal(t, []float64{0}, compare.Listwise([]int{0}))
}

func TestEqualValuesShareTheMeanOfTheirRanks(t *testing.T) {
	t.Parallel()
	values := []float64{0.5, 3, 0.5, -1}
	assert.Equal(t, []float64{1.5, 3, 1.5, 0}, compare.Ranks(values))
	assert.InDeltaSlice(t, []float64{0.5, 1, 0.5, 0}, compare.RankUnit(values), 0)
	assert.InDeltaSlice(t, []float64{0.375, 0.75, 0.375, 0}, compare.RankFlowFactory(values), 0)
	assert.InDeltaSlice(t, []float64{0, 0.25, 0.5, 0.75}, compare.RankFlowFactory([]float64{1, 2, 3, 4}), 0, "(0, 1, …, n−1)/n")
	assert.Equal(t, []float64{0.5}, compare.RankUnit([]float64{7}))
}

func TestZScoresHaveAMeanOfZeroAndADeviationOfOne(t *testing.T) {
	t.Parallel()
	assert.InDeltaSlice(t, []float64{-1.5, -0.5, -0.5, -0.5, 0, 0, 1, 2}, compare.ZScore([]float64{2, 4, 4, 4, 5, 5, 7, 9}, 0, 0), 1e-12)
	assert.InDeltaSlice(t, []float64{-math.Sqrt2 / 2, math.Sqrt2 / 2}, compare.ZScore([]float64{1, 2}, 1, 0), 1e-12)
	assert.InDeltaSlice(t, []float64{-1, 1}, compare.ZScore([]float64{-math.MaxFloat64, math.MaxFloat64}, 0, 0), 1e-12, "no overflow")
	assert.Equal(t, []float64{0, 0, 0}, compare.ZScore([]float64{0.1, 0.1, 0.1}, 0, 0))
	assert.Equal(t, []float64{0, 0}, compare.ZScore([]float64{0.1, 0.1 + 1e-9}, 0, 1e-6), "closer than min_spread")
	assert.Equal(t, []float64{0}, compare.ZScore([]float64{3}, 1, 0))
	near := []float64{1, math.Nextafter(1, 2)}
	for _, v := range compare.ZScore(near, 1, 0) {
		assert.False(t, math.IsNaN(v))
	}
}

func TestMinMaxSpansMinusOneToOne(t *testing.T) {
	t.Parallel()
	assert.InDeltaSlice(t, []float64{-1, 0, 1}, compare.MinMax([]float64{4, 5, 6}, 0), 0)
	assert.InDeltaSlice(t, []float64{-1, 1}, compare.MinMax([]float64{-math.MaxFloat64, math.MaxFloat64}, 0), 0, "no overflow")
	assert.Equal(t, []float64{0, 0}, compare.MinMax([]float64{1, 1.01}, 0.05), "noise stays noise")
	assert.Equal(t, []float64{0, 0}, compare.MinMax([]float64{2, 2}, 0))
	got := compare.MinMax([]float64{1, math.NaN(), 2}, 0)
	assert.True(t, math.IsNaN(got[1]))
}

func TestAParticipantOfWhomNothingIsKnownHasNoScore(t *testing.T) {
	t.Parallel()
	table := compare.NewTable([]uint64{1, 2, 3})
	table.Set(0, 1, compare.BBetter, 1)
	for name, method := range methods {
		equal(t, []float64{-1, 1, math.NaN()}, method(table), name)
	}
}

func TestATableRefusesWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	table := compare.NewTable([]uint64{1, 2})
	for _, w := range []float64{0, -1, math.NaN(), math.Inf(1), 1001} {
		assert.Panics(t, func() { table.Set(0, 1, compare.Tie, w) })
	}
	assert.Panics(t, func() { table.Set(1, 1, compare.Tie, 1) })
	table.Set(1, 0, compare.ABetter, 2)
	o, w := table.At(0, 1)
	assert.Equal(t, compare.BBetter, o)
	assert.InDelta(t, 2, w, 0)
	assert.Equal(t, compare.Tally{Losses: 2}, table.Tally(0))
}

// A group of three of which each beats the next: DGR takes one comparison away.
func ExampleDGR() {
	table := compare.NewTable([]uint64{1, 2, 3})
	table.Set(0, 1, compare.ABetter, 1)
	table.Set(1, 2, compare.ABetter, 1)
	table.Set(2, 0, compare.ABetter, 0.5) // a judge who was half sure
	got := compare.DGR(table)
	fmt.Println(got.Order, "without", got.Removed)
	fmt.Println(got.Scores)
	// Output:
	// [0 1 2] without [[2 0]]
	// [1 0 -1]
}
