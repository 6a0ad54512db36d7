package pool

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measured is a fit that has seen each size up to most, doubling, n times.
func measured(a, c float64, most, n int) *fit {
	f := &fit{}
	for b := 1; b <= most; b *= 2 {
		for range n {
			f.observe(b, a+c*float64(b))
		}
	}
	return f
}

func TestTheFitFindsFixedAndPerItemCost(t *testing.T) {
	t.Parallel()
	f := measured(0.015, 0.0015, 32, 2)
	assert.InDelta(t, 0.015, f.a, 1e-9)
	assert.InDelta(t, 0.0015, f.c, 1e-9)
	assert.InDelta(t, 0.015+0.0015*20, f.seconds(20), 1e-9)
}

func TestABatchIsAsLargeAsItPays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		a, c  float64
		limit int
		size  int
	}{
		"ViT on a GPU: to the bound":            {0.015, 0.0015, 32, 32},
		"a judge: to the bound":                 {0.150, 0.012, 16, 16},
		"OCR on a CPU: one by one":              {0.002, 0.090, 32, 1},
		"fixed cost of a fifth: by twos":        {0.018, 0.090, 32, 2},
		"equal costs: ten, then little is left": {0.010, 0.010, 32, 10},
		"nothing but fixed cost":                {0.010, 0, 32, 32},
		"no fixed cost":                         {0, 0.010, 32, 1},
		"a bound of one":                        {0.015, 0.0015, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.size, measured(tt.a, tt.c, 32, 2).size(tt.limit))
		})
	}
}

func TestTheFirstBatchOfASizeDoesNotCountOnceThereIsASecond(t *testing.T) {
	t.Parallel()
	f := &fit{}
	assert.Equal(t, 1, f.size(32), "before anything was measured")
	for _, warm := range []float64{1.5, 0.092} {
		f.observe(1, warm)
	}
	assert.Equal(t, 2, f.size(32), "one size is known: twice of it is tried")
	for _, warm := range []float64{0.9, 0.182} {
		f.observe(2, warm)
	}
	assert.InDelta(t, 0.002, f.a, 1e-6)
	assert.InDelta(t, 0.090, f.c, 1e-6)
	assert.Equal(t, 1, f.size(32))
}

func TestOutliersDoNotMoveTheFit(t *testing.T) {
	t.Parallel()
	f := measured(0.002, 0.090, 4, 5)
	for _, s := range []float64{5, 0.092, 7, 0.092} {
		f.observe(1, s)
	}
	assert.InDelta(t, 0.090, f.c, 0.001)
	assert.Equal(t, 1, f.size(32))
}

func TestTheFitFollowsADeviceThatChanges(t *testing.T) {
	t.Parallel()
	f := measured(0.002, 0.090, 4, 5)
	for range 200 {
		for _, b := range []int{1, 2} {
			f.observe(b, 0.100+0.010*float64(b))
		}
	}
	assert.InDelta(t, 0.100, f.a, 0.005)
	assert.InDelta(t, 0.010, f.c, 0.003)
}

func TestNoiseDoesNotMakeBatchesWhereTheyDoNotPay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := &fit{}
		large := 0
		for i := range 400 {
			b := min(f.size(32), 1+r.IntN(8))
			f.observe(b, (0.002+0.090*float64(b))*(1+0.1*r.NormFloat64()))
			if i >= 100 && b > 4 {
				large++
			}
		}
		assert.LessOrEqual(t, large, 30, "seed %d: a %.4f, c %.4f", seed, f.a, f.c)
	}
}

func TestTheFitIgnoresWhatCannotBeATime(t *testing.T) {
	t.Parallel()
	f := &fit{}
	f.observe(0, 1)
	f.observe(1, -1)
	f.observe(1, math.NaN())
	require.Zero(t, f.runs)
	f.observe(1, 0)
	f.observe(1, 0)
	f.observe(2, 0)
	f.observe(2, 0)
	assert.GreaterOrEqual(t, f.size(32), 1)
	assert.False(t, math.IsNaN(f.a) || math.IsNaN(f.c))
}

func TestAModelInPythonHasBatchesThatCostATwentiethMoreAtMost(t *testing.T) {
	t.Parallel()
	for eager, want := range map[bool]int{false: 4, true: 8} {
		f := measured(0.029, 0.080, 32, 2)
		f.eager = eager
		assert.Equal(t, want, f.size(64), "eager: %v", eager)
	}
}
