package compare

import "math"

// winRate is RM-Gallery's winrate: wins / comparisons, a tie being a comparison and no
// win, and then MinMax to −1 … 1; 0 for all where no two rates differ. NaN for a
// participant of whom nothing is known.
func winRate(t *table) []float64 {
	rates := make([]float64, t.Len())
	for i, y := range t.tallies() {
		rates[i] = math.NaN()
		if known := y.Known(); known > 0 {
			rates[i] = y.Wins / known
		}
	}
	return minMax(rates, flat)
}
