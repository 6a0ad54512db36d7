package compare

import (
	"cmp"
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
