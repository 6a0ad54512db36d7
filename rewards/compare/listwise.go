package compare

// Listwise is RM-Gallery's listwise: 1 − 2·position/(n − 1), from 1 for the best to −1
// for the last. Order lists n participants, best first, each once; one alone gets 0.
func Listwise(order []int) []float64 {
	out := make([]float64, len(order))
	if len(order) == 1 {
		return out
	}
	for at, i := range order {
		out[i] = 1 - 2*float64(at)/float64(len(order)-1)
	}
	return out
}
