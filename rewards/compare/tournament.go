package compare

import "math"

// tournament is OpenJudge's tournament reward: (wins − losses) / (N − 1), in −1 … 1,
// with the number of comparisons in the place of N − 1 where some are not known. A group
// of near equals stays near 0. NaN for a participant of whom nothing is known.
func tournament(t *table) []float64 {
	out := make([]float64, t.Len())
	for i, y := range t.tallies() {
		out[i] = math.NaN()
		if known := y.Known(); known > 0 {
			out[i] = (y.Wins - y.Losses) / known
		}
	}
	return out
}
