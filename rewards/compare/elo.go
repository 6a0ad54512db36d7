package compare

import (
	"cmp"
	"math"
	"slices"
)

// The constants of RM-Gallery's elo.
const (
	eloStart  = 1500
	eloK      = 32
	eloPasses = 100
	eloStop   = 0.01
)

// ratings is what Elo made of a table.
type ratings struct {
	// Scores are the ratings by MinMax, in −1 … 1; 0 for all where no two differ.
	Scores []float64
	// ratings are Elo's, about 1,500 on the mean; NaN for a participant of whom nothing
	// is known.
	Ratings []float64
	// Passes is how often all comparisons were gone through, 1 to 100.
	Passes int
}

// elo is RM-Gallery's elo: everybody begins with 1,500; a comparison with outcome s (1,
// 0.5, 0) moves the rating of each side by 32·weight·(s − 1/(1 + 10^((other − own)/400)));
// all comparisons are gone through until a pass moves nobody by 0.01 or more, at most
// 100 times. Unknown comparisons move nobody.
//
// elo depends on the order of comparisons: the original takes them as the answers
// arrive. Here it is drawn by the keys of the two.
func elo(t *table) ratings {
	type match struct {
		a, b int
		key  uint64
		wins float64 // of a
		k    float64
	}
	won := map[outcome]float64{aBetter: 1, bBetter: 0, tie: 0.5}
	var matches []match
	order := t.byKey()
	for i, a := range order {
		for _, b := range order[i+1:] {
			if o, w := t.At(a, b); o != Unknown {
				matches = append(matches, match{a, b, t.pairKey(a, b), won[o], eloK * w})
			}
		}
	}
	slices.SortStableFunc(matches, func(x, y match) int { return cmp.Compare(x.key, y.key) })

	r := ratings{Ratings: make([]float64, t.Len())}
	for i := range r.Ratings {
		r.Ratings[i] = eloStart
	}
	for moved := math.Inf(1); moved >= eloStop && r.Passes < eloPasses; r.Passes++ {
		before := slices.Clone(r.Ratings)
		for _, m := range matches {
			gap := r.Ratings[m.b] - r.Ratings[m.a]
			r.Ratings[m.a] += m.k * (m.wins - expected(gap))
			r.Ratings[m.b] += m.k * (1 - m.wins - expected(-gap))
		}
		moved = 0
		for i, v := range r.Ratings {
			moved = max(moved, math.Abs(v-before[i]))
		}
	}
	for i, y := range t.tallies() {
		if y.Known() == 0 {
			r.Ratings[i] = math.NaN()
		}
	}
	r.Scores = minMax(r.Ratings, flat)
	return r
}

// expected is the share of wins that ratings promise: gap is the other's minus the own.
func expected(gap float64) float64 { return 1 / (1 + math.Pow(10, gap/400)) }
