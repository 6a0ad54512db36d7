package compare

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// maxExact is the largest number of participants whose cycles DGR breaks exactly.
const maxExact = 16

// conflicts is what DGR made of a table.
type conflicts struct {
	// Scores are Net / max|Net|, in −1 … 1; 0 for all where no one has net wins.
	Scores []float64
	// Net is wins − losses of each participant without the removed comparisons,
	// brought to the number of comparisons of the one that has most.
	Net []float64
	// Order is the participants, best first, so that no comparison that is left
	// contradicts it.
	Order []int
	// Removed are the comparisons that contradicted it, winner first.
	Removed [][2]int
	// Exact says that no lighter set of comparisons breaks all cycles.
	Exact bool
	// Steps counts the placements that were weighed: n·2^(n−1), or 0 if not exact.
	Steps int
}

// dgr is RM-Gallery's dgr (tournament feedback arc set): the comparisons of least
// weight are removed so that nobody beats itself round a corner, and the net wins
// without them are divided by the largest. NaN for a participant of whom nothing is known.
//
// Up to 16 participants the set is the lightest there is, found by dynamic programming
// over subsets in n·2^(n−1) steps where the original tries all n! orders up to 10.
// Beyond 16 the order is that of net wins, as in the original beyond 10. Among sets of
// equal weight each comparison has a price drawn by the keys of the two, and the
// cheapest set is taken: exchanging better and worse everywhere flips the scores, and
// the place of a participant does not matter.
//
// A tie has no direction and no weight. The original draws one at random and lets it
// cost 0.1, so that eleven drawn directions outvote a judgement.
func dgr(t *table) conflicts {
	c := conflicts{Exact: t.Len() <= maxExact}
	if c.Exact {
		c.Order, c.Steps = lightestOrder(t)
	} else {
		c.Order = orderByNetWins(t)
	}
	place := make([]int, t.Len())
	for at, i := range c.Order {
		place[i] = at
	}
	tallies := t.tallies()
	net := make([]float64, t.Len())
	for a := range net {
		net[a] = tallies[a].Wins - tallies[a].Losses
	}
	for a := range net {
		for b := range net {
			if o, w := t.At(a, b); o == aBetter && place[a] > place[b] {
				net[a] -= w
				net[b] += w
				c.Removed = append(c.Removed, [2]int{a, b})
			}
		}
	}
	c.Net = perComparison(net, tallies)
	c.Scores = byLargest(c.Net)
	return c
}

// The price of removing a comparison is its weight in thousandths above priceBits bits,
// which hold the drawn prices: at most 120 comparisons of 29 bits. The sum of all has
// 27 bits more, 120·1,000·1,000 at most.
const (
	priceBits = 36
	drawnBits = 29
)

func (t *table) price(winner, loser int) int64 {
	_, w := t.At(winner, loser)
	return int64(math.Round(w*1000))<<priceBits | int64(t.pairKey(winner, loser)>>(64-drawnBits)) // 29 bits
}

// byKey lists the participants by their keys.
func (t *table) byKey() []int {
	order := make([]int, t.Len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.keys[a], t.keys[b]) })
	return order
}

// lightestOrder finds the order with the least price of comparisons that contradict it;
// among equals the first in the sequence of the keys.
//
// Least[s] is the least price within the set s of participants, placed behind all
// others. Whoever of s is placed first pays for its losses against the rest of s, so
// least[s] = min over v in s of least[s−v] + losses of v within s−v.
func lightestOrder(t *table) (order []int, steps int) {
	n := t.Len()
	byKey := t.byKey() // bit v of a set is byKey[v]
	losses := make([]lossTable, n)
	for v := range losses {
		losses[v] = newLossTable(t, byKey, v)
	}
	least := make([]int64, 1<<n)
	for s := 1; s < 1<<n; s++ {
		best := int64(math.MaxInt64)
		for left := s; left != 0; left &= left - 1 {
			v := bits.TrailingZeros(uint(left)) // a set has 16 bits
			rest := s &^ (1 << v)
			best = min(best, least[rest]+losses[v].within(rest))
			steps++
		}
		least[s] = best
	}
	for s := 1<<n - 1; s != 0; {
		for v := range n {
			rest := s &^ (1 << v)
			if rest != s && least[rest]+losses[v].within(rest) == least[s] {
				order, s = append(order, byKey[v]), rest
				break
			}
		}
	}
	return order, steps
}

// lossTable gives the price of one participant's losses against any set of others: a
// sum of two entries, one for the lower and one for the upper 8 bits of the set.
type lossTable [2][256]int64

func newLossTable(t *table, byKey []int, v int) lossTable {
	var l lossTable
	for half := range l {
		for s := 1; s < 256; s++ {
			u := half*8 + bits.TrailingZeros(uint(s)) // s is 1 to 255
			l[half][s] = l[half][s&(s-1)]
			if u < len(byKey) {
				if o, _ := t.At(byKey[v], byKey[u]); o == bBetter {
					l[half][s] += t.price(byKey[u], byKey[v])
				}
			}
		}
	}
	return l
}

func (l *lossTable) within(s int) int64 { return l[0][s&255] + l[1][s>>8] }

// orderByNetWins sorts by net wins, equals by their keys.
func orderByNetWins(t *table) []int {
	order := t.byKey()
	net := tournament(t)
	for i, v := range net {
		if math.IsNaN(v) {
			net[i] = 0
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(net[b], net[a]) })
	return order
}
