package compare

import (
	"fmt"
	"math"
)

// outcome is what a comparison of A with B says.
type outcome int8

// The outcomes. Unknown is the outcome of a comparison that was not made or has no answer.
const (
	Unknown outcome = iota
	aBetter
	bBetter
	tie
)

// String returns the outcome in a word.
func (o outcome) String() string {
	switch o {
	case aBetter:
		return "a"
	case bBetter:
		return "b"
	case tie:
		return "tie"
	}
	return "unknown"
}

// Flip is the outcome with A and B exchanged.
func (o outcome) Flip() outcome {
	switch o {
	case aBetter:
		return bBetter
	case bBetter:
		return aBetter
	}
	return o
}

// maxWeight bounds the weight of a comparison: the sums of DGR stay within 63 bits.
const maxWeight = 1000

// table is who was found better than whom among n participants: n×n outcomes, each
// with a weight. It is filled by one goroutine, and may then be read by many.
type table struct {
	keys     []uint64
	outcomes []outcome // row-major, [a][b] as A sees it
	weights  []float64 // the same
}

// newTable makes a table in which nothing is known. Each participant has a key that
// goes with it wherever it stands: keys break ties, so that equal participants get
// equal scores in any order.
func newTable(keys []uint64) *table {
	n := len(keys)
	return &table{keys: keys, outcomes: make([]outcome, n*n), weights: make([]float64, n*n)}
}

// Len is the number of participants.
func (t *table) Len() int { return len(t.keys) }

// Set writes the outcome of comparing a with b, both from 0 to Len()−1, in the place of
// what stood there. The weight is above 0 and at most 1,000, usually 1; another one, and
// a participant compared with itself, are mistakes in the program: it panics.
func (t *table) Set(a, b int, o outcome, weight float64) {
	if a == b || !(weight > 0 && weight <= maxWeight) {
		panic(fmt.Sprintf("compare: participants %d and %d with weight %v", a, b, weight))
	}
	n := t.Len()
	t.outcomes[a*n+b], t.weights[a*n+b] = o, weight
	t.outcomes[b*n+a], t.weights[b*n+a] = o.Flip(), weight
}

// At returns what the comparison of a with b said, and its weight.
func (t *table) At(a, b int) (outcome, float64) {
	n := t.Len()
	return t.outcomes[a*n+b], t.weights[a*n+b]
}

// tally is what the comparisons of one participant add up to, by weight.
type tally struct {
	Wins, Losses, Ties float64
}

// Known is the weight of all its comparisons with an outcome.
func (y tally) Known() float64 { return y.Wins + y.Losses + y.Ties }

// tally adds up the comparisons of participant a.
func (t *table) Tally(a int) tally {
	var y tally
	for b := range t.Len() {
		switch o, w := t.At(a, b); o {
		case aBetter:
			y.Wins += w
		case bBetter:
			y.Losses += w
		case tie:
			y.Ties += w
		}
	}
	return y
}

func (t *table) tallies() []tally {
	all := make([]tally, t.Len())
	for a := range all {
		all[a] = t.Tally(a)
	}
	return all
}

// pairKey is the same for a and b as for b and a.
func (t *table) pairKey(a, b int) uint64 { return pairKey(t.keys[a], t.keys[b]) }

func pairKey(x, y uint64) uint64 { return mix(mix(min(x, y)) ^ max(x, y)) }

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood 2014): every bit of x moves
// half of the bits of the result.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// perComparison brings net wins to the number of comparisons of the participant that
// has most of them, so that an unknown one counts as missing and not as a tie. Where
// all have the same number nothing changes. NaN: nothing is known of the participant.
func perComparison(net []float64, tallies []tally) []float64 {
	most := 0.0
	for _, y := range tallies {
		most = max(most, y.Known())
	}
	out := make([]float64, len(net))
	for i, v := range net {
		out[i] = math.NaN()
		if known := tallies[i].Known(); known > 0 {
			out[i] = v * (most / known)
		}
	}
	return out
}

// flat is the spread below which RM-Gallery takes values for equal.
const flat = 1e-6

// byLargest divides by the largest absolute value; all 0 where it is below 1e-6. NaN
// stays NaN.
func byLargest(values []float64) []float64 {
	largest := 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			largest = max(largest, math.Abs(v))
		}
	}
	out := make([]float64, len(values))
	for i, v := range values {
		switch {
		case math.IsNaN(v):
			out[i] = v
		case largest >= flat:
			out[i] = v / largest
		}
	}
	return out
}
