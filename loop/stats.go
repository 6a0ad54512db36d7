package loop

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about rewards over time. A run that no longer learns looks healthy from
// outside: samples come, all are scored, nothing fails. It shows in the values, when
// they fall or stop to differ within their groups: a group whose members all got the
// same reward has no advantage to learn from. So each step keeps a few numbers for each
// column of its results: a constant amount, whatever the number of samples.

// ColumnStats describes the values of one column over the samples of one step. Null
// stands for a number that does not exist; none is ever NaN or infinite.
type ColumnStats struct {
	// Column is reward_score for the reward itself, else the column of a term in
	// reward_extra_info: reward/<key>, or acc and score of a single reward.
	Column string `json:"column"`
	// Count is how many samples have a value. An imputed one is none of the term's own,
	// and counts only as part of reward_score.
	Count uint64 `json:"count"`
	// Failed is how many samples have no value because the term, or for reward_score
	// the sample, failed, expired or was lost. What a client took back is in neither.
	Failed uint64 `json:"failed"`
	// Mean, Std (population), Min and Max are over all values.
	Mean *float64 `json:"mean"`
	Std  *float64 `json:"std"`
	Min  *float64 `json:"min"`
	Max  *float64 `json:"max"`
	// P10, P50 and P90 are quantiles, linear between neighbours.
	P10 *float64 `json:"p10"`
	P50 *float64 `json:"p50"`
	P90 *float64 `json:"p90"`
	// Sampled says that the quantiles are those of a uniform draw of 4,096 values, or
	// leave out some that came after a later step had ended.
	Sampled bool `json:"sampled,omitempty"`
	// Groups is how many prompt groups have closed with two values or more, and
	// ZeroStdGroups in how many of these all values were the same.
	Groups        int `json:"groups"`
	ZeroStdGroups int `json:"zero_std_groups"`
	// MeanGroupStd is the mean of those groups' population standard deviations: what
	// the advantage has to work with. Null without a group.
	MeanGroupStd *float64 `json:"mean_group_std"`
	// Drift is how far the mean lies from that of the latest earlier step of the split
	// that has ended, in units of that step's std; null without one, or if its std is 0.
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

// stepStats are the columns of one step. Guarded by the manager's mutex.
type stepStats struct {
	columns map[string]*column
	// more says that there were more than maxColumns.
	more bool
	// packed says that a later step has ended: the values have been dropped.
	packed bool
}

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

// column returns the column of that name, making it while there is room; else nil.
func (s *stepStats) column(key stepKey, name string) *column {
	if c := s.columns[name]; c != nil {
		return c
	}
	if len(s.columns) == maxColumns {
		s.more = true
		return nil
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(key.split) + "/" + strconv.FormatInt(key.step, 10) + "/" + name)) // never fails
	c := &column{draw: rand.New(rand.NewPCG(h.Sum64(), maxValues))}                                //nolint:gosec // a draw needs no secret randomness
	if s.columns == nil {
		s.columns = map[string]*column{}
	}
	s.columns[name] = c
	return c
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

// noteResult takes a final result into the statistics of its step.
func (r *run) noteResult(st *step, res *wire.Result) {
	if res.Outcome != rewards.OutcomeCancelled {
		st.stats.note(st.key, res)
	}
	if st.inflight == 0 {
		r.pack(st.key.split)
	}
}

func (s *stepStats) note(key stepKey, res *wire.Result) {
	reward := s.column(key, rewardColumn)
	if res.RewardScore != nil && number(*res.RewardScore) != nil {
		reward.add(*res.RewardScore, s.packed)
	} else {
		reward.failed++
	}
	for _, t := range termColumns(res) {
		c := s.column(key, t.name)
		switch {
		case c == nil:
		case t.value != nil:
			c.add(*t.value, s.packed)
		case t.failed:
			c.failed++
		}
	}
}

// termColumn is what a result says of one term: a value, a failure, or, of one that was
// skipped, neither.
type termColumn struct {
	name   string
	value  *float64
	failed bool
}

// termColumns reads the columns of the terms out of a result, by name. A term is known
// by the flag beside its value that says whether it was imputed (package rewards).
func termColumns(res *wire.Result) []termColumn {
	const (
		prefix = "reward/"
		flag   = "/imputed"
		single = "rewardloop/imputed"
	)
	var all []termColumn
	for key, v := range res.ExtraInfo {
		name, found := strings.CutSuffix(key, flag)
		imputed, _ := v.(bool)
		switch {
		case !found:
		case key == single:
			for _, name := range []string{"acc", "score"} {
				if value, there := res.ExtraInfo[name]; there {
					all = append(all, termColumnOf(name, value, imputed, res.RewardScore == nil))
				}
			}
		case strings.HasPrefix(name, prefix):
			broken := slices.ContainsFunc(res.Errors, func(e rewards.TermError) bool { return e.Term == name[len(prefix):] })
			all = append(all, termColumnOf(name, res.ExtraInfo[name], imputed, broken))
		}
	}
	slices.SortFunc(all, func(a, b termColumn) int { return strings.Compare(a.name, b.name) })
	return all
}

func termColumnOf(name string, value any, imputed, broken bool) termColumn {
	c := termColumn{name: name, failed: imputed || broken}
	if imputed {
		return c
	}
	if x, isNumber := numeric(value); isNumber {
		c.value = number(x)
	}
	if right, isBool := value.(bool); isBool { // an acc that says right or wrong
		c.value = new(float64)
		if right {
			*c.value = 1
		}
	}
	return c
}

// spreads are the moments of each term's own values over the members of a group that is
// about to close, by key.
func (g *group) spreads() map[string]*moments {
	all := map[string]*moments{}
	for _, m := range g.ordered() {
		for key, v := range m.values {
			if all[key] == nil {
				all[key] = &moments{}
			}
			all[key].add(v)
		}
	}
	return all
}

// noteGroup takes a closed group into the statistics of its step.
func (s *stepStats) noteGroup(st *wire.GroupStats, terms map[string]*moments) {
	if c := s.columns[rewardColumn]; c != nil && st.Scored > 1 && st.Std != nil {
		c.noteGroup(*st.Std, st.ZeroStd)
	}
	for key, m := range terms {
		c := s.columns["reward/"+key]
		if c == nil && len(terms) == 1 { // a single reward
			if c = s.columns["score"]; c == nil {
				c = s.columns["acc"]
			}
		}
		if c != nil && m.n > 1 {
			c.noteGroup(m.std(), m.flat())
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

// over reports whether the step has ended: everything that was declared of it has come
// and been answered, or, where nothing was declared, everything that came before the
// later step did that has begun since.
func (st *step) over(begun int64) bool {
	return st.arrived > 0 && st.inflight == 0 && (st.whole() || st.expected == 0 && st.key.step < begun)
}

// before returns the latest earlier step of the same split that has ended and has what
// is asked for; nil: there is none.
func (r *run) before(key stepKey, has func(*column) bool) *step {
	var latest *step
	for _, st := range r.stepLog {
		if st.key.split != key.split || st.key.step >= key.step || latest != nil && st.key.step < latest.key.step {
			continue
		}
		if c := st.stats.columns[rewardColumn]; c != nil && has(c) && st.over(key.step) {
			latest = st
		}
	}
	return latest
}

func (c *column) hasValues() bool { return c.all.n > 0 }

func (c *column) hasGroups() bool { return c.groups > 0 }

// lastMeanStd is the mean standard deviation of the rewards within the groups of the
// latest earlier step of the split that has ended and has one; nil before the first.
func (r *run) lastMeanStd(key stepKey) *float64 {
	st := r.before(key, (*column).hasGroups)
	if st == nil {
		return nil
	}
	return number(st.stats.columns[rewardColumn].spread)
}

// pack drops the values of a split's steps that lie before one that has ended.
func (r *run) pack(split rewards.Split) {
	begun, ended := int64(math.MinInt64), int64(math.MinInt64)
	for _, st := range r.stepLog {
		if st.key.split == split && st.arrived > 0 {
			begun = max(begun, st.key.step)
		}
	}
	for _, st := range r.stepLog {
		if st.key.split == split && st.over(begun) {
			ended = max(ended, st.key.step)
		}
	}
	for _, st := range r.stepLog {
		if st.key.split != split || st.key.step >= ended || st.inflight > 0 || st.stats.packed {
			continue
		}
		st.stats.packed = true
		before := r.before(st.key, (*column).hasValues)
		for name, c := range st.stats.columns {
			c.pack(before.moments(name))
		}
	}
}

// moments returns those of a column; nil if the step, or a value, is not there.
func (st *step) moments(name string) *moments {
	if st == nil || st.stats.columns[name] == nil || st.stats.columns[name].all.n == 0 {
		return nil
	}
	m := st.stats.columns[name].all
	return &m
}

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

// rewardStats describes the columns of a step, the reward first. The caller holds the
// mutex; it calls finish on each of them when it has left it.
func (r *run) rewardStats(st *step) []ColumnStats {
	if len(st.stats.columns) == 0 {
		return nil
	}
	var before *step
	if !st.stats.packed {
		before = r.before(st.key, (*column).hasValues)
	}
	all := make([]ColumnStats, 0, len(st.stats.columns))
	for name, c := range st.stats.columns {
		base := c.base
		if !st.stats.packed {
			base = before.moments(name)
		}
		all = append(all, c.describe(name, base))
	}
	slices.SortFunc(all, func(a, b ColumnStats) int {
		switch rewardColumn {
		case a.Column:
			return -1
		case b.Column:
			return 1
		}
		return strings.Compare(a.Column, b.Column)
	})
	return all
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

// finish sorts what describe has copied: up to 0.7 ms a column that nobody need
// wait for.
func (s *ColumnStats) finish() {
	if len(s.values) > 0 {
		q := quantiles(s.values)
		s.P10, s.P50, s.P90, s.values = q[0], q[1], q[2], nil
	}
}
