package compare

import "math"

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
