package compare

// copeland is RM-Gallery's copeland: (wins − losses) / max|wins − losses|, in −1 … 1; 0
// for all where no one has net wins. A participant with fewer comparisons than others
// is brought to their number first. NaN for one of whom nothing is known.
func copeland(t *table) []float64 {
	tallies := t.tallies()
	net := make([]float64, len(tallies))
	for i, y := range tallies {
		net[i] = y.Wins - y.Losses
	}
	return byLargest(perComparison(net, tallies))
}
