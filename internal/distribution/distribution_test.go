package distribution_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/distribution"
)

func column(values ...float64) *distribution.Column {
	c := new(distribution.Column)
	for _, v := range values {
		c.Add(v)
	}
	return c
}

func TestAColumnKnowsItsMeanSpreadQuantilesAndBins(t *testing.T) {
	t.Parallel()
	c := column(4, 1, 3, 2, 10)
	require.Equal(t, 5, c.Count())
	require.InDelta(t, 4, c.Mean(), 1e-12)
	require.InDelta(t, math.Sqrt(10), c.Std(), 1e-12)
	require.InDelta(t, 1, c.Min(), 0)
	require.InDelta(t, 10, c.Max(), 0)
	require.InDelta(t, 3, c.Quantile(0.5), 1e-12)
	require.InDelta(t, 1.4, c.Quantile(0.1), 1e-12, "linear between neighbours")
	require.Equal(t, []int{3, 1, 1}, c.Bins(3))
	require.False(t, c.Sampled())
	c.Add(0) // after it was sorted
	require.InDelta(t, 2.5, c.Quantile(0.5), 1e-12)
}

func TestEmptyAndFlatColumnsHaveNoSpread(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{0, 0, 0}, column().Bins(3))
	require.Zero(t, column().Quantile(0.5))
	flat := column(0.1, 0.1, 0.1)
	require.Zero(t, flat.Std())
	require.Equal(t, []int{0, 3, 0}, flat.Bins(3))
	far := column(-math.MaxFloat64, math.MaxFloat64)
	require.Equal(t, []int{1, 0, 1}, far.Bins(3))
	require.Zero(t, far.Quantile(0.5))
}

func TestAMillionNumbersAreAUniformDrawWithTheTrueMeanAndEnds(t *testing.T) {
	t.Parallel()
	const n = 1_000_000
	c := new(distribution.Column)
	for i := range n {
		c.Add(float64(i * 7919 % n))
	}
	require.True(t, c.Sampled())
	require.InDelta(t, (n-1)/2.0, c.Mean(), 1)
	require.InDelta(t, n-1, c.Quantile(1), 0)
	require.InDelta(t, 0.9*n, c.Quantile(0.9), 0.01*n)
	sum := 0
	for _, b := range c.Bins(10) {
		require.InDelta(t, n/10, b, 0.01*n)
		sum += b
	}
	require.InDelta(t, n, sum, 10)
}

func TestCorrelationIsPearsonsAndAbsentWhereAColumnIsFlat(t *testing.T) {
	t.Parallel()
	var c, against, flat distribution.Correlation
	for i, y := range []float64{1, 3, 2, 5} {
		c.Add(float64(i), y)
		against.Add(float64(i), -2*float64(i))
		flat.Add(float64(i), 1)
	}
	r, ok := c.Pearson()
	require.True(t, ok)
	require.InDelta(t, 0.8315218406, r, 1e-9) // numpy.corrcoef
	r, ok = against.Pearson()
	require.True(t, ok)
	require.InDelta(t, -1, r, 1e-12)
	_, ok = flat.Pearson()
	require.False(t, ok)
}

func TestSpearmanIsTheCorrelationOfRanksAndAbsentWhereAColumnIsFlat(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1, distribution.Spearman([]float64{1, 2, 3, 4}, []float64{1, 10, 100, 1e9}), 1e-12)
	require.InDelta(t, 0.9486832981, distribution.Spearman([]float64{1, 2, 2, 3}, []float64{1, 2, 3, 4}), 1e-9) // scipy.stats.spearmanr; equal values share a rank
	require.True(t, math.IsNaN(distribution.Spearman([]float64{1, 1, 1}, []float64{1, 2, 3})))
	require.True(t, math.IsNaN(distribution.Pearson(nil, nil)))
}
