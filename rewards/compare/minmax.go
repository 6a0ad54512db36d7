package compare

import "math"

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
