package compare

import (
	"cmp"
	"math"
	"slices"
)

// ranks are the places of values from the lowest, 0, to the highest, n − 1. Equal values
// share the mean of their places, where argsort would draw.
func ranks(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	out := make([]float64, len(values))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && values[order[to]] == values[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			out[i] = float64(from+to-1) / 2
		}
		from = to
	}
	return out
}

// rankUnit is rank/(n − 1), in 0 … 1; 0.5 for a value alone.
func rankUnit(values []float64) []float64 {
	if len(values) == 1 {
		return []float64{0.5}
	}
	return over(ranks(values), float64(len(values)-1))
}

// rankFlowFactory is rank/n, in 0 … (n − 1)/n, as pick_score.py of Flow-Factory has it
// in PickScore_Rank.
func rankFlowFactory(values []float64) []float64 {
	return over(ranks(values), float64(len(values)))
}

func over(values []float64, divisor float64) []float64 {
	for i := range values {
		values[i] /= divisor
	}
	return values
}

// minMax brings the lowest value to −1 and the highest to 1; all to 0 where they differ
// by less than minSpread, or not at all. NaN is left out, and stays NaN.
func minMax(values []float64, minSpread float64) []float64 {
	low, high := span(values)
	out := make([]float64, len(values))
	for i, v := range values {
		switch {
		case math.IsNaN(v):
			out[i] = v
		case high > low && high-low >= minSpread:
			// Halves, for the difference of two numbers may be beyond all.
			out[i] = 2*((v/2-low/2)/(high/2-low/2)) - 1
		}
	}
	return out
}

// span returns the lowest and the highest of the values that are not NaN.
func span(values []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	return low, high
}

// zScore is (value − mean) / standard deviation, the latter with n − ddof below the
// sum: 0 as NumPy has it, 1 as PyTorch has it. All are 0 where the lowest and the
// highest differ by less than minSpread, or not at all.
func zScore(values []float64, ddof int, minSpread float64) []float64 {
	out := make([]float64, len(values))
	low, high := span(values)
	if !(high > low && high-low >= minSpread) || len(values) <= ddof {
		return out
	}
	// Within −1 … 1 the sum of squares of any numbers stays within bounds.
	largest := max(math.Abs(low), math.Abs(high))
	mean := 0.0
	for i, v := range values {
		out[i] = v / largest
		mean += out[i]
	}
	mean /= float64(len(values))
	variance := 0.0
	for i := range out {
		out[i] -= mean
		variance += out[i] * out[i]
	}
	deviation := math.Sqrt(variance / float64(len(values)-ddof))
	if deviation == 0 { // the values differ in their last bits alone
		clear(out)
		return out
	}
	return over(out, deviation)
}
