package compare

import (
	"fmt"
	"math"
)

// Outcome is what a comparison of A with B says.
type Outcome int8

// The outcomes. Unknown is a comparison that was never made, or one without an answer.
const (
	Unknown Outcome = iota
	ABetter
	BBetter
	Tie
)

// String returns the outcome in a word.
func (o Outcome) String() string {
	switch o {
	case ABetter:
		return "a"
	case BBetter:
		return "b"
	case Tie:
		return "tie"
	}
	return "unknown"
}

// Flip is the outcome with A and B exchanged.
func (o Outcome) Flip() Outcome {
	switch o {
	case ABetter:
		return BBetter
	case BBetter:
		return ABetter
	}
	return o
}

// maxWeight bounds the weight of a comparison: the sums of DGR stay within 63 bits.
const maxWeight = 1000

// Table is who was found better than whom among n participants: n×n outcomes, each
// with a weight. It is filled by one goroutine, and may then be read by many.
type Table struct {
	keys     []uint64
	outcomes []Outcome // row-major, [a][b] as A sees it
	weights  []float64 // the same
}

// NewTable makes a table in which nothing is known. Each participant has a key that
// goes with it wherever it stands: keys break ties, so that equal participants get
// equal scores in any order.
func NewTable(keys []uint64) *Table {
	n := len(keys)
	return &Table{keys: keys, outcomes: make([]Outcome, n*n), weights: make([]float64, n*n)}
}

// Len is the number of participants.
func (t *Table) Len() int { return len(t.keys) }

// Set writes the outcome of comparing a with b, both from 0 to Len()−1, in the place of
// what stood there. The weight is above 0 and at most 1,000, usually 1; another one, and
// a participant compared with itself, are mistakes in the program: it panics.
func (t *Table) Set(a, b int, o Outcome, weight float64) {
	if a == b || !(weight > 0 && weight <= maxWeight) {
		panic(fmt.Sprintf("compare: participants %d and %d with weight %v", a, b, weight))
	}
	n := t.Len()
	t.outcomes[a*n+b], t.weights[a*n+b] = o, weight
	t.outcomes[b*n+a], t.weights[b*n+a] = o.Flip(), weight
}

// At returns what the comparison of a with b said, and its weight.
func (t *Table) At(a, b int) (Outcome, float64) {
	n := t.Len()
	return t.outcomes[a*n+b], t.weights[a*n+b]
}

// Tally is what the comparisons of one participant add up to, by weight.
type Tally struct {
	Wins, Losses, Ties float64
}

// Known is the weight of all its comparisons with an outcome.
func (y Tally) Known() float64 { return y.Wins + y.Losses + y.Ties }

// Tally adds up the comparisons of participant a.
func (t *Table) Tally(a int) Tally {
	var y Tally
	for b := range t.Len() {
		switch o, w := t.At(a, b); o {
		case ABetter:
			y.Wins += w
		case BBetter:
			y.Losses += w
		case Tie:
			y.Ties += w
		}
	}
	return y
}

func (t *Table) tallies() []Tally {
	all := make([]Tally, t.Len())
	for a := range all {
		all[a] = t.Tally(a)
	}
	return all
}

// pairKey is the same for a and b as for b and a.
func (t *Table) pairKey(a, b int) uint64 { return pairKey(t.keys[a], t.keys[b]) }

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
func perComparison(net []float64, tallies []Tally) []float64 {
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
