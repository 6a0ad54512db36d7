package ort

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBestAreTheFirstOfAStableOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		row := make([]float32, 1+rng.IntN(60))
		for i := range row {
			row[i] = float32(rng.IntN(12)) // many are equal
		}
		order := make([]int64, len(row))
		for i := range order {
			order[i] = int64(i)
		}
		slices.SortStableFunc(order, func(a, b int64) int { return int(row[b]) - int(row[a]) })
		top := make([]int64, rng.IntN(21))
		n := best(row, top)
		require.Equal(t, min(len(row), len(top)), n)
		require.Equal(t, order[:n], top[:n])
		at, largest := argMax(row)
		require.Equal(t, order[0], int64(at))
		require.InDelta(t, row[at], largest, 0)
	}
}

func TestProbabilitiesAddUpToOne(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, far := range []float64{0, 1e4, -1e4} { // exp alone would overflow
		row := make([]float32, 50_000)
		for i := range row {
			row[i] = float32(far + 8*rng.NormFloat64())
		}
		_, largest := argMax(row)
		sum, p := logSumExp(row, largest), 0.0
		for _, v := range row {
			p += math.Exp(float64(v) - sum)
		}
		require.InDelta(t, 1, p, 1e-9)
	}
	require.InDelta(t, 7, logSumExp([]float32{7}, 7), 1e-12)
}

func TestASumOfTwoIsWhatItIs(t *testing.T) {
	t.Parallel()
	for x := 0.0; x > -60; x -= 1.0 / 777 {
		v := float32(x)
		want := math.Log1p(math.Exp(float64(v)))
		require.InDelta(t, want, logSumExp([]float32{v, 0}, 0), 1e-10*want+1e-15, "%v", x)
	}
}

// The vocabularies of SmolVLM and Qwen2.5.
func BenchmarkLogits(b *testing.B) {
	for name, n := range map[string]int{"49k": 49_280, "152k": 151_936} {
		row := make([]float32, n)
		rng := rand.New(rand.NewPCG(5, 6))
		for i := range row {
			row[i] = float32(3 * rng.NormFloat64())
		}
		b.Run(name+"/sum", func(b *testing.B) {
			for b.Loop() {
				_, largest := argMax(row)
				logSumExp(row, largest)
			}
		})
		b.Run(name+"/top20", func(b *testing.B) {
			top := make([]int64, 20)
			for b.Loop() {
				best(row, top)
			}
		})
	}
}
