package pool

import (
	"math"
	"slices"
)

const (
	// fitMemory is how many times of one batch size are remembered. Their lower
	// median counts, so that two outliers in five change nothing.
	fitMemory = 5
	// fitFade is what a size's weight is multiplied with for every batch of another
	// size: it halves after 34 of them. fitFloor keeps sizes that are no longer run,
	// without which a and c could not be told apart.
	fitFade, fitFloor = 0.98, 0.01
	// worth is how large the share a/b of the fixed cost may be, measured in c, for
	// a batch to be big enough: beyond that size an item costs less than a tenth
	// less, and everybody waits for a longer batch. Where a < c/10, as for OCR on a
	// CPU, the size is 1.
	worth = 0.1
	// eagerWorth is the same for models in Python. One process has the whole device, and is held to
	// 0.95 of a loop around the same model at its best batch: at a = 0.36 c, which ViT-B/32 in torch
	// has on a CPU, batches of 4 are at 0.94 of it and those of 8 at 1.
	eagerWorth = 0.05
)

// fit is the measured cost of a batch queue's batches, S(b) = a + c·b seconds: the line
// with the least squares of relative errors through the medians of each size b.
// A size counts from its second batch on, because the first of a new shape pays
// for what the runtime sets up.
type fit struct {
	// eager has a size count from its first batch on, and sizes tried in steps of four: for models in
	// Python, of which no shape is set up at its first batch, and each of whose first batches is a
	// large part of a step of some hundred samples. Its batches are larger, see eagerWorth.
	eager bool
	sizes []sizeCost // by batch size
	runs  int        // batches taken in
	solid int        // sizes that count
	most  int        // the largest of them
	a, c  float64
}

type sizeCost struct {
	times [fitMemory]float64 // a ring
	n     int                // times measured
	last  int                // fit.runs when it was measured last
	cost  float64            // lower median of times
}

// observe takes in that a batch of b items took s seconds.
func (f *fit) observe(b int, s float64) {
	if b < 1 || s < 0 || math.IsNaN(s) || math.IsInf(s, 0) {
		return
	}
	for len(f.sizes) <= b {
		f.sizes = append(f.sizes, sizeCost{})
	}
	f.runs++
	k := &f.sizes[b]
	k.times[k.n%fitMemory] = max(s, 1e-9) // a clock may say 0, and costs divide
	k.n++
	k.last = f.runs
	if k.n == f.counts() {
		f.solid++
		f.most = max(f.most, b)
	}
	times := k.times // a copy to sort
	n := min(k.n, fitMemory)
	slices.Sort(times[:n])
	k.cost = times[(n-1)/2]
	f.solve()
}

// solve computes a and c, neither below 0.
func (f *fit) solve() {
	counts := f.counts()
	if f.solid == 0 {
		counts = 1
	}
	var w, wb, wbb, ws, wbs float64
	for b, k := range f.sizes {
		if k.n < counts {
			continue
		}
		x := float64(b)
		g := max(fitFloor, math.Pow(fitFade, float64(f.runs-k.last))) / (k.cost * k.cost)
		w, wb, wbb, ws, wbs = w+g, wb+g*x, wbb+g*x*x, ws+g*k.cost, wbs+g*x*k.cost
	}
	f.a, f.c = 0, wbs/wbb // the line through nothing: all there is of one size
	if !f.known() {
		return
	}
	det := w*wbb - wb*wb
	c := (w*wbs - wb*ws) / det
	a := (ws - c*wb) / w
	switch {
	case c < 0:
		f.a, f.c = ws/w, 0
	case a > 0:
		f.a, f.c = a, c
	}
}

// counts is the batch of a size with which it counts.
func (f *fit) counts() int {
	if f.eager {
		return 1
	}
	return 2
}

// known says whether a and c can be told apart.
func (f *fit) known() bool { return f.solid >= 2 }

// seconds is S(b); 0 before anything was measured.
func (f *fit) seconds(b int) float64 { return f.a + f.c*float64(b) }

// size is the batch that is big enough: the smallest b with a/b ≤ worth·c, at
// most limit and at most twice the largest size that counts, so that sizes are
// tried one doubling at a time (eager: four times).
func (f *fit) size(limit int) int {
	step := 2
	if f.eager {
		step = 4
	}
	limit = min(limit, max(1, step*f.most))
	if b := f.enough(); f.known() && b < float64(limit) {
		return max(1, int(b))
	}
	return limit
}

// enough is the smallest b with a/b ≤ worth·c; +Inf or NaN where c is 0.
func (f *fit) enough() float64 {
	share := worth
	if f.eager {
		share = eagerWorth
	}
	return math.Ceil(f.a/(share*f.c) - 1e-6) // 1e-6: rounding
}

// settled says whether a size is one that is big enough, and not one that is tried on the way there.
func (f *fit) settled(size int) bool { return f.known() && f.enough() <= float64(size) }

// even is the size from which on the items' own cost outweighs the fixed one: at
// least this many belong together even while slots are idle. At most limit.
func (f *fit) even(limit int) int {
	if b := math.Ceil(f.a/f.c - 1e-6); b < float64(limit) {
		return max(1, int(b))
	}
	return limit
}
