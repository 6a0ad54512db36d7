package compare

import (
	"fmt"
	"math"
)

// The methods of pairwise.
const (
	methodWinRate    = "winrate"
	methodCopeland   = "copeland"
	methodDGR        = "dgr"
	methodElo        = "elo"
	methodTournament = "tournament"
)

// ranking is what a method made of a table.
type ranking struct {
	scores []float64
	group  map[string]any   // details of the group
	each   []map[string]any // details of each participant; nil: none
}

// rank applies a method to a table.
func rank(method string, t *table) (ranking, error) {
	switch method {
	case methodWinRate:
		return ranking{scores: winRate(t)}, nil
	case methodCopeland:
		return ranking{scores: copeland(t)}, nil
	case methodTournament:
		return ranking{scores: tournament(t)}, nil
	case methodElo:
		e := elo(t)
		r := ranking{scores: e.Scores, group: map[string]any{"passes": e.Passes}}
		for _, v := range e.Ratings {
			r.each = append(r.each, map[string]any{"rating": v})
		}
		return r, nil
	case methodDGR:
		d := dgr(t)
		r := ranking{scores: d.Scores, group: map[string]any{"removed": len(d.Removed), "exact": d.Exact}}
		for _, v := range d.Net {
			r.each = append(r.each, map[string]any{"net_wins": v})
		}
		return r, nil
	}
	return ranking{}, fmt.Errorf("method: %q is unknown", method)
}

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

// Listwise returns RM-Gallery's listwise scores: 1 − 2·position/(n − 1), from 1 for the best
// participant to −1 for the last. order lists the n participants, best first, each once. A single
// participant gets 0.
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
