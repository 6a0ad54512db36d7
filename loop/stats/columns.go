package stats

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
)

// ColumnStats describes the values of one column over the samples of one step. A number that does
// not exist is null; no number is NaN or infinite.
type ColumnStats struct {
	// Column is "reward_score" for the reward itself, or else the column of a component in
	// reward_extra_info: "reward/<key>", or "acc" and "score" of a single reward.
	Column string `json:"column"`
	// Count is the number of samples with a value. An imputed value does not count for its
	// component, only for reward_score.
	Count uint64 `json:"count"`
	// Failed is the number of samples without a value because the component (for reward_score: the
	// sample) failed, expired or was lost. Neither Count nor Failed includes samples that a client
	// cancelled.
	Failed uint64 `json:"failed"`
	// Mean, Std (population standard deviation), Min and Max are over all values.
	Mean *float64 `json:"mean"`
	Std  *float64 `json:"std"`
	Min  *float64 `json:"min"`
	Max  *float64 `json:"max"`
	// P10, P50 and P90 are quantiles with linear interpolation.
	P10 *float64 `json:"p10"`
	P50 *float64 `json:"p50"`
	P90 *float64 `json:"p90"`
	// Sampled reports whether the quantiles are those of a uniform random sample of 4,096 values,
	// or omit values that arrived after a later step had ended.
	Sampled bool `json:"sampled,omitempty"`
	// Groups is the number of closed prompt groups with two or more values. ZeroStdGroups is the
	// number of those groups in which all values are equal.
	Groups        int `json:"groups"`
	ZeroStdGroups int `json:"zero_std_groups"`
	// MeanGroupStd is the mean of the population standard deviations within those groups: the
	// signal for the advantage. It is null if Groups is 0.
	MeanGroupStd *float64 `json:"mean_group_std"`
	// Drift is the difference between Mean and the mean of the latest earlier finished step of the
	// split, in units of that step's Std. It is null if there is no such step or its Std is 0.
	Drift *float64 `json:"drift"`

	values []float64 // a copy, until the quantiles have been computed
}

// rewardColumn is the column of the reward itself. No scorer can have one of this name.
const rewardColumn = "reward_score"

// Bounds of what a step keeps: about 16 × 40 KiB at most until a later one of its split
// has ended, and a few hundred bytes a column from then on.
const (
	maxColumns = 16
	maxValues  = 4096
)

// column gathers the values of one column.
type column struct {
	all    moments
	failed uint64
	values []float64 // up to maxValues: all of them, then a uniform draw
	draw   *rand.Rand

	groups, flat int
	spread       float64 // mean of the groups' standard deviations

	// Once packed, in place of the values.
	quantiles [3]*float64
	kept      uint64   // how many values the quantiles stand for
	base      *moments // of the step before
}

// moments are the running mean and spread of some values.
type moments struct {
	n       uint64
	mean    float64
	squares float64 // Σ (x - mean)², by Welford's recurrence
	lo, hi  float64
}

func (m *moments) add(x float64) {
	m.n++
	if m.n == 1 {
		*m = moments{n: 1, mean: x, lo: x, hi: x}
		return
	}
	n, d := float64(m.n), x-m.mean
	if math.IsInf(d, 0) { // the values are that far apart, and their mean still exists
		m.mean += x/n - m.mean/n
		m.squares = math.Inf(1)
	} else {
		m.mean += d / n
		m.squares += d * (x - m.mean)
	}
	m.lo, m.hi = min(m.lo, x), max(m.hi, x)
}

// flat reports whether all values are the same.
func (m *moments) flat() bool { return m.lo == m.hi }

// std is the population standard deviation: 0 for values that are all the same, also
// where the recurrence has rounded, and +Inf where it does not fit into a float64.
func (m *moments) std() float64 {
	if m.flat() {
		return 0
	}
	return math.Sqrt(m.squares / float64(m.n))
}

// number is nil for what is none.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func newColumn(key Key, name string) *column {
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(key.Split) + "/" + strconv.FormatInt(key.Step, 10) + "/" + name)) // never fails
	return &column{draw: rand.New(rand.NewPCG(h.Sum64(), maxValues))}                              //nolint:gosec // a draw needs no secret randomness
}

// add takes one value in.
func (c *column) add(x float64, packed bool) {
	c.all.add(x)
	switch {
	case packed:
	case len(c.values) < maxValues:
		c.values = append(c.values, x)
	default:
		if i := c.draw.Uint64N(c.all.n); i < maxValues {
			c.values[i] = x
		}
	}
}

func (c *column) noteGroup(std float64, flat bool) {
	if flat {
		std = 0 // the means of equal values may be rounded
		c.flat++
	}
	if number(std) == nil {
		return
	}
	c.groups++
	c.spread += (std - c.spread) / float64(c.groups)
}

func (c *column) hasValues() bool { return c.all.n > 0 }

func (c *column) hasGroups() bool { return c.groups > 0 }

func (c *column) pack(base *moments) {
	c.kept = uint64(len(c.values))
	c.quantiles = quantiles(c.values)
	c.base, c.values, c.draw = base, nil, nil
}

// quantiles sorts the values and returns the 10th, 50th and 90th percentile, linear
// between neighbours, as numpy has them.
func quantiles(values []float64) (q [3]*float64) {
	if len(values) == 0 {
		return q
	}
	slices.Sort(values)
	for i, share := range [3]float64{0.1, 0.5, 0.9} {
		at := share * float64(len(values)-1)
		k := int(at)
		lo, hi := values[k], values[min(k+1, len(values)-1)]
		part := at - float64(k)
		v := lo + (hi-lo)*part
		if math.IsInf(hi-lo, 0) {
			v = lo*(1-part) + hi*part
		}
		q[i] = number(v)
	}
	return q
}

func (c *column) describe(name string, base *moments) ColumnStats {
	s := ColumnStats{
		Column: name, Count: c.all.n, Failed: c.failed, Groups: c.groups, ZeroStdGroups: c.flat,
		P10: c.quantiles[0], P50: c.quantiles[1], P90: c.quantiles[2],
		Sampled: c.all.n > max(c.kept, uint64(len(c.values))), values: slices.Clone(c.values),
	}
	if c.groups > 0 {
		s.MeanGroupStd = number(c.spread)
	}
	if c.all.n == 0 {
		return s
	}
	s.Mean, s.Std, s.Min, s.Max = number(c.all.mean), number(c.all.std()), number(c.all.lo), number(c.all.hi)
	if base != nil && base.std() > 0 && number(base.std()) != nil {
		s.Drift = number((c.all.mean - base.mean) / base.std())
	}
	return s
}

// Finish computes the quantiles from the copy of the values that Columns has made. Finish takes up
// to 0.7 ms for each column; call it without holding the gateway's mutex.
func (s *ColumnStats) Finish() {
	if len(s.values) > 0 {
		q := quantiles(s.values)
		s.P10, s.P50, s.P90, s.values = q[0], q[1], q[2], nil
	}
}
