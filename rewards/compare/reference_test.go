package compare_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/compare"
)

// methods are the functions of a table, by name.
var methods = map[string]func(*compare.Table) []float64{
	"winrate": compare.WinRate, "copeland": compare.Copeland, "tournament": compare.Tournament,
	"dgr": func(t *compare.Table) []float64 { return compare.DGR(t).Scores },
	"elo": func(t *compare.Table) []float64 { return compare.Elo(t).Scores },
}

// judgement is one comparison.
type judgement struct {
	a, b   int
	o      compare.Outcome
	weight float64
}

// draw makes comparisons of all pairs of n, with unknown ones and ties where asked for.
func draw(r *rand.Rand, n int, unknown, ties, weighted bool) []judgement {
	choices := []compare.Outcome{compare.ABetter, compare.BBetter}
	if unknown {
		choices = append(choices, compare.Unknown)
	}
	if ties {
		choices = append(choices, compare.Tie)
	}
	var all []judgement
	for a := range n {
		for b := a + 1; b < n; b++ {
			w := 1.0
			if weighted {
				w = float64(1+r.IntN(8)) / 4
			}
			all = append(all, judgement{a, b, choices[r.IntN(len(choices))], w})
		}
	}
	return all
}

func keys(r *rand.Rand, n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = r.Uint64()
	}
	return out
}

func fill(keys []uint64, all []judgement) *compare.Table {
	t := compare.NewTable(keys)
	for _, j := range all {
		t.Set(j.a, j.b, j.o, j.weight)
	}
	return t
}

// sums adds up wins, losses and known weights from the list of judgements.
func sums(n int, all []judgement) (wins, losses, known []float64) {
	wins, losses, known = make([]float64, n), make([]float64, n), make([]float64, n)
	for _, j := range all {
		if j.o == compare.Unknown {
			continue
		}
		known[j.a] += j.weight
		known[j.b] += j.weight
		switch j.o {
		case compare.ABetter:
			wins[j.a] += j.weight
			losses[j.b] += j.weight
		case compare.BBetter:
			wins[j.b] += j.weight
			losses[j.a] += j.weight
		}
	}
	return wins, losses, known
}

// rounds calls f with tables of every kind.
func rounds(t *testing.T, largest, each int, f func(t *testing.T, r *rand.Rand, keys []uint64, all []judgement)) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 11))
	for n := 2; n <= largest; n++ {
		for i := range each {
			f(t, r, keys(r, n), draw(r, n, i&1 != 0, i&2 != 0, i&4 != 0))
		}
	}
}

func equal(t *testing.T, want, got []float64, name string) {
	t.Helper()
	require.Len(t, got, len(want), name)
	for i, w := range want {
		if math.IsNaN(w) != math.IsNaN(got[i]) || math.Abs(w-got[i]) > 1e-9 {
			require.Failf(t, name, "of participant %d is %v, want %v: %v, want %v", i, got[i], w, got, want)
		}
	}
}

func TestScoresThatAreSumsEqualThoseOfAListOfComparisons(t *testing.T) {
	t.Parallel()
	rounds(t, 9, 64, func(t *testing.T, _ *rand.Rand, keys []uint64, all []judgement) {
		t.Helper()
		n := len(keys)
		wins, losses, known := sums(n, all)
		rate, net, share := make([]float64, n), make([]float64, n), make([]float64, n)
		most := slices.Max(known)
		low, high, largest := math.Inf(1), math.Inf(-1), 0.0
		for i := range n {
			rate[i], share[i] = wins[i]/known[i], (wins[i]-losses[i])/known[i] // 0/0 is NaN
			net[i] = share[i] * most
			if known[i] > 0 {
				low, high, largest = min(low, rate[i]), max(high, rate[i]), max(largest, math.Abs(net[i]))
			}
		}
		for i := range n {
			if rate[i] = 2*(rate[i]-low)/(high-low) - 1; high == low {
				rate[i] = 0 * share[i]
			}
			if net[i] /= largest; largest == 0 {
				net[i] = 0 * share[i]
			}
		}
		table := fill(keys, all)
		equal(t, rate, compare.WinRate(table), "winrate")
		equal(t, net, compare.Copeland(table), "copeland")
		equal(t, share, compare.Tournament(table), "tournament")
	})
}

// everyOrder calls f with each order of 0 … n−1.
func everyOrder(n int, f func(order []int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var place func(at int)
	place = func(at int) {
		if at == n {
			f(order)
			return
		}
		for i := at; i < n; i++ {
			order[at], order[i] = order[i], order[at]
			place(at + 1)
			order[at], order[i] = order[i], order[at]
		}
	}
	place(0)
}

// removal is the weight an order takes away, in quarters.
func removal(order []int, all []judgement) int {
	place := make([]int, len(order))
	for at, i := range order {
		place[i] = at
	}
	sum := 0
	for _, j := range all {
		if (j.o == compare.ABetter && place[j.a] > place[j.b]) || (j.o == compare.BBetter && place[j.b] > place[j.a]) {
			sum += int(4 * j.weight)
		}
	}
	return sum
}

// leastRemoval is the least of all n! orders: each is built place by place, and whoever
// is placed pays for the wins over those before it.
func leastRemoval(n int, all []judgement) int {
	wins := make([][]int, n)
	for i := range wins {
		wins[i] = make([]int, n)
	}
	for _, j := range all {
		switch j.o {
		case compare.ABetter:
			wins[j.a][j.b] = int(4 * j.weight)
		case compare.BBetter:
			wins[j.b][j.a] = int(4 * j.weight)
		}
	}
	best, order := math.MaxInt, make([]int, n)
	for i := range order {
		order[i] = i
	}
	var place func(at, sum int)
	place = func(at, sum int) {
		if at == n {
			best = min(best, sum)
			return
		}
		for i := at; i < n; i++ {
			order[at], order[i] = order[i], order[at]
			pays := 0
			for _, before := range order[:at] {
				pays += wins[order[at]][before]
			}
			place(at+1, sum+pays)
			order[at], order[i] = order[i], order[at]
		}
	}
	place(0, 0)
	return best
}

func TestDGRRemovesAsLittleAsTheBestOfAllOrders(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, _ *rand.Rand, keys []uint64, all []judgement) {
		t.Helper()
		n := len(keys)
		got := compare.DGR(fill(keys, all))
		require.True(t, got.Exact)
		require.Equal(t, leastRemoval(n, all), removal(got.Order, all), "weight removed of %v", all)

		// Net wins are those of the list without what was removed.
		left := slices.DeleteFunc(slices.Clone(all), func(j judgement) bool {
			return slices.Contains(got.Removed, [2]int{j.a, j.b}) || slices.Contains(got.Removed, [2]int{j.b, j.a})
		})
		require.Zero(t, removal(got.Order, left), "what is left contradicts nobody")
		require.Equal(t, removal(got.Order, all), weight(all)-weight(left))
		_, _, known := sums(n, all)
		wins, losses, _ := sums(n, left)
		net, largest := make([]float64, n), 0.0
		for i := range n {
			net[i] = (wins[i] - losses[i]) / known[i] * slices.Max(known)
			if known[i] > 0 {
				largest = max(largest, math.Abs(net[i]))
			}
		}
		equal(t, net, got.Net, "net wins")
		for i := range n {
			if net[i] /= largest; largest == 0 {
				net[i] = 0 * (wins[i] / known[i])
			}
		}
		equal(t, net, got.Scores, "dgr")
	}
	rounds(t, 7, 24, check)
	r := rand.New(rand.NewPCG(1, 2))
	check(t, r, keys(r, 8), draw(r, 8, true, true, true))
	check(t, r, keys(r, 9), draw(r, 9, false, false, false))
}

func weight(all []judgement) int {
	sum := 0
	for _, j := range all {
		if j.o == compare.ABetter || j.o == compare.BBetter {
			sum += int(4 * j.weight)
		}
	}
	return sum
}

func TestExchangingBetterAndWorseEverywhereFlipsTheScores(t *testing.T) {
	t.Parallel()
	rounds(t, 12, 16, func(t *testing.T, _ *rand.Rand, keys []uint64, all []judgement) {
		t.Helper()
		flipped, turned := slices.Clone(all), slices.Clone(all)
		ties := false
		for i, j := range all {
			flipped[i].o = j.o.Flip()
			turned[i] = judgement{j.b, j.a, j.o.Flip(), j.weight} // the same, told from the other side
			ties = ties || j.o == compare.Tie
		}
		for name, method := range methods {
			got := method(fill(keys, all))
			equal(t, got, method(fill(keys, turned)), name+" told from the other side")
			if name == "winrate" && ties {
				continue // a tie is no win for either side
			}
			opposite := method(fill(keys, flipped))
			for i := range opposite {
				opposite[i] = -opposite[i]
			}
			equal(t, got, opposite, name+" exchanged")
		}
	})
}

func TestThePlaceOfAParticipantDoesNotMatter(t *testing.T) {
	t.Parallel()
	rounds(t, 18, 8, func(t *testing.T, r *rand.Rand, keys []uint64, all []judgement) {
		t.Helper()
		to := r.Perm(len(keys))
		movedKeys, moved := make([]uint64, len(keys)), slices.Clone(all)
		for i, at := range to {
			movedKeys[at] = keys[i]
		}
		for i, j := range all {
			moved[i].a, moved[i].b = to[j.a], to[j.b]
		}
		r.Shuffle(len(moved), func(i, j int) { moved[i], moved[j] = moved[j], moved[i] })
		for name, method := range methods {
			got, want := method(fill(movedKeys, moved)), method(fill(keys, all))
			back := make([]float64, len(got))
			for i, at := range to {
				back[i] = got[at]
			}
			equal(t, want, back, name)
		}
	})
}

func TestDGRIsDoneWithSixteenInTheStepsOfItsSubsets(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	got := compare.DGR(fill(keys(r, 16), draw(r, 16, true, true, false)))
	assert.True(t, got.Exact)
	assert.Equal(t, 16<<15, got.Steps, "n·2^(n−1), where all orders are 2·10^13")
	assert.Len(t, got.Order, 16)
}

func TestDGRBeyondSixteenGoesByNetWins(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	all := draw(r, 20, false, true, false)
	table := fill(keys(r, 20), all)
	got := compare.DGR(table)
	assert.False(t, got.Exact)
	assert.Zero(t, got.Steps)
	net := compare.Tournament(table)
	for i := range 19 {
		assert.GreaterOrEqual(t, net[got.Order[i]], net[got.Order[i+1]])
	}
	assert.Len(t, got.Removed, removal(got.Order, all)/4)
}

func TestTheSameKeysBreakTheSameTiesAndOthersOthers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 9))
	circle := []judgement{{0, 1, compare.ABetter, 1}, {1, 2, compare.ABetter, 1}, {2, 0, compare.ABetter, 1}}
	seen := map[[2]int]bool{}
	for range 64 {
		k := keys(r, 3)
		got := compare.DGR(fill(k, circle))
		require.Equal(t, got, compare.DGR(fill(k, circle)))
		require.Len(t, got.Removed, 1)
		seen[got.Removed[0]] = true
	}
	assert.Len(t, seen, 3, "each of the three is removed by some keys")
}

// eloByHand is RM-Gallery's loop over comparisons in a given order.
func eloByHand(n int, all []judgement) []float64 {
	ratings := make([]float64, n)
	for i := range ratings {
		ratings[i] = 1500
	}
	for range 100 {
		old, moved := slices.Clone(ratings), 0.0
		for _, j := range all {
			s := []float64{0, 1, 0, 0.5}[j.o]
			ea, eb := 1/(1+math.Pow(10, (ratings[j.b]-ratings[j.a])/400)), 1/(1+math.Pow(10, (ratings[j.a]-ratings[j.b])/400))
			ratings[j.a] += 32 * (s - ea)
			ratings[j.b] += 32 * (1 - s - eb)
		}
		for i := range ratings {
			moved = max(moved, math.Abs(ratings[i]-old[i]))
		}
		if moved < 0.01 {
			break
		}
	}
	return ratings
}

func TestEloIsThatOfSomeOrderOfTheComparisonsWhateverOrderTheyCameIn(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(10, 11))
	for range 2 {
		k, all := keys(r, 4), draw(r, 4, false, true, false)
		got := compare.Elo(fill(k, all)).Ratings
		found := 0
		everyOrder(len(all), func(order []int) {
			list := make([]judgement, 0, len(all))
			for _, i := range order {
				list = append(list, all[i])
			}
			want := eloByHand(4, list)
			if !slices.ContainsFunc(want, math.IsNaN) && distance(got, want) < 1e-9 {
				found++
			}
		})
		require.Positive(t, found)
		slices.Reverse(all)
		require.Equal(t, got, compare.Elo(fill(k, all)).Ratings)
	}
}

func distance(a, b []float64) float64 {
	d := 0.0
	for i := range a {
		d = max(d, math.Abs(a[i]-b[i]))
	}
	return d
}
