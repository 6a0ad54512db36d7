// Package distribution computes mean, quantiles, histograms and correlations of columns of numbers
// in bounded memory.
package distribution

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// keep is how many values a column keeps: all of them, and beyond that a uniform draw.
const keep = 1 << 16

// Column contains the statistics of one column of numbers. The zero value is an empty column. Only
// finite numbers may be added.
type Column struct {
	n      int
	mean   float64
	square float64 // Σ (x - mean)², by Welford's recurrence
	lo, hi float64
	values []float64 // up to keep
	sorted bool
	draw   *rand.Rand
}

// Add adds a number.
func (c *Column) Add(x float64) {
	c.n++
	if c.n == 1 {
		c.lo, c.hi = x, x
	}
	d := x - c.mean
	c.mean += d / float64(c.n)
	c.square += d * (x - c.mean)
	c.lo, c.hi = min(c.lo, x), max(c.hi, x)
	c.sorted = false
	if len(c.values) < keep {
		c.values = append(c.values, x)
		return
	}
	if c.draw == nil {
		c.draw = rand.New(rand.NewPCG(keep, keep)) //nolint:gosec // the same figures for the same numbers; a draw needs no secret
	}
	if i := c.draw.IntN(c.n); i < keep {
		c.values[i] = x
	}
}

// Count returns how many numbers were added.
func (c *Column) Count() int { return c.n }

// Sampled reports whether Quantile and Bins use a uniform random sample instead of all numbers.
func (c *Column) Sampled() bool { return c.n > len(c.values) }

// Mean returns the mean, or 0 if there are no numbers.
func (c *Column) Mean() float64 { return c.mean }

// Std returns the population standard deviation.
func (c *Column) Std() float64 {
	if c.n == 0 || c.lo == c.hi {
		return 0
	}
	return math.Sqrt(c.square / float64(c.n))
}

// Min returns the smallest number.
func (c *Column) Min() float64 { return c.lo }

// Max returns the largest number.
func (c *Column) Max() float64 { return c.hi }

// Quantile returns the number below which this share of the numbers lies, with linear
// interpolation.
func (c *Column) Quantile(share float64) float64 {
	if len(c.values) == 0 {
		return 0
	}
	switch { // of these all numbers are known
	case share <= 0:
		return c.lo
	case share >= 1:
		return c.hi
	}
	if !c.sorted {
		slices.Sort(c.values)
		c.sorted = true
	}
	at := share * float64(len(c.values)-1)
	k := int(at)
	lo, hi := c.values[k], c.values[min(k+1, len(c.values)-1)]
	part := at - float64(k)
	return lo*(1-part) + hi*part
}

// Bins counts the numbers in n bins of equal width between the smallest and the largest number. If
// all numbers are equal, they are all in the middle bin.
func (c *Column) Bins(n int) []int {
	bins := make([]int, n)
	width := c.hi/float64(n) - c.lo/float64(n)
	for _, x := range c.values {
		i := n / 2
		if width > 0 {
			i = min(max(int((x/2-c.lo/2)/(width/2)), 0), n-1)
		}
		bins[i]++
	}
	if len(c.values) < c.n { // the share of the draw stands for that of all
		for i := range bins {
			bins[i] = int(math.Round(float64(bins[i]) / float64(len(c.values)) * float64(c.n)))
		}
	}
	return bins
}

// Correlation computes the correlation of two columns, over the samples that have both.
type Correlation struct {
	n                      int
	meanX, meanY           float64
	squareX, squareY, both float64
}

// Add adds a pair.
func (c *Correlation) Add(x, y float64) {
	c.n++
	dx, dy := x-c.meanX, y-c.meanY
	c.meanX += dx / float64(c.n)
	c.meanY += dy / float64(c.n)
	c.squareX += dx * (x - c.meanX)
	c.squareY += dy * (y - c.meanY)
	c.both += dx * (y - c.meanY)
}

// Count returns the number of pairs.
func (c *Correlation) Count() int { return c.n }

// Pearson returns the correlation from -1 to 1. ok is false if there are fewer than three pairs or
// if one of the columns is constant.
func (c *Correlation) Pearson() (r float64, ok bool) {
	r = c.both / math.Sqrt(c.squareX) / math.Sqrt(c.squareY)
	if c.n < 3 || math.IsNaN(r) || math.IsInf(r, 0) {
		return 0, false
	}
	return min(max(r, -1), 1), true
}

// Pearson returns the correlation of two columns of equal length, from -1 to 1, or NaN if it does
// not exist.
func Pearson(xs, ys []float64) float64 {
	var c Correlation
	for i := range xs {
		c.Add(xs[i], ys[i])
	}
	if r, ok := c.Pearson(); ok {
		return r
	}
	return math.NaN()
}

// Spearman returns the rank correlation of two columns of equal length, or NaN if it does not
// exist.
func Spearman(xs, ys []float64) float64 { return Pearson(ranksOf(xs), ranksOf(ys)) }

// ranksOf are the ranks of values from 1; equal ones have their mean.
func ranksOf(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	ranks := make([]float64, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		for _, at := range order[i:j] {
			ranks[at] = float64(i+j+1) / 2
		}
		i = j
	}
	return ranks
}
