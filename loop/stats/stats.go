// Package stats computes statistics of the rewards of each training run over its steps. A run that
// no longer learns looks healthy from outside: samples arrive, all are scored, nothing fails. Only
// the values show the problem, when they decrease or no longer differ within their prompt groups: a
// group whose members all have the same reward has no advantage to learn from. Therefore each step
// keeps a few numbers for each column of its results. The memory for a step is constant, whatever
// the number of samples.
package stats

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Key identifies a step.
type Key struct {
	Run   string
	Split rewards.Split
	Step  int64
}

// Progress is the progress of a step.
type Progress struct {
	Key      Key
	Expected int  // number of declared samples; 0: not declared
	Arrived  int  // number of samples that have arrived
	InFlight int  // number of samples that have arrived and have no result
	Whole    bool // all expected samples have arrived
}

// over reports whether the step has ended: everything that was declared of it has come
// and been answered, or, where nothing was declared, everything that came before the
// later step did that has begun since.
func (p *Progress) over(begun int64) bool {
	return p.Arrived > 0 && p.InFlight == 0 && (p.Whole || p.Expected == 0 && p.Key.Step < begun)
}

// Stats contains the columns of the steps of all runs. It is guarded by the gateway's mutex.
type Stats struct {
	progress func(run string) iter.Seq[Progress]
	runs     map[string]map[Key]*step
}

// New returns empty statistics. progress returns the progress of all steps of a run that the
// gateway knows; Stats ignores all other steps.
func New(progress func(run string) iter.Seq[Progress]) *Stats {
	return &Stats{progress: progress, runs: map[string]map[Key]*step{}}
}

// step are the columns of one step.
type step struct {
	columns map[string]*column
	// more says that there were more than maxColumns.
	more bool
	// packed says that a later step has ended: the values have been dropped.
	packed bool
}

// column returns the column of that name, making it while there is room; else nil.
func (s *step) column(key Key, name string) *column {
	if c := s.columns[name]; c != nil {
		return c
	}
	if len(s.columns) == maxColumns {
		s.more = true
		return nil
	}
	c := newColumn(key, name)
	s.columns[name] = c
	return c
}

// of returns the columns of a step; nil: it has no result yet.
func (s *Stats) of(key Key) *step {
	if st := s.runs[key.Run][key]; st != nil && len(st.columns) > 0 {
		return st
	}
	return nil
}

// record returns what is kept of a step, making it on first sight.
func (s *Stats) record(key Key) *step {
	if s.runs[key.Run] == nil {
		s.runs[key.Run] = map[Key]*step{}
	}
	if s.runs[key.Run][key] == nil {
		s.runs[key.Run][key] = &step{columns: map[string]*column{}}
	}
	return s.runs[key.Run][key]
}

// Note adds a final result to the columns of its step. Note ignores the result of a sample that was
// cancelled.
func (s *Stats) Note(key Key, res *wire.Result) {
	if res.Outcome != rewards.OutcomeCancelled {
		s.record(key).note(key, res)
	}
}

func (s *step) note(key Key, res *wire.Result) {
	reward := s.column(key, rewardColumn)
	if res.RewardScore != nil && number(*res.RewardScore) != nil {
		reward.add(*res.RewardScore, s.packed)
	} else {
		reward.failed++
	}
	for _, t := range components(res) {
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

// Spread contains the values of each component over the members of one prompt group.
type Spread map[string]*moments

// Add adds a member's value of a component. The result depends on the order of the calls, because
// floating-point addition is not associative.
func (s Spread) Add(component string, value float64) {
	if s[component] == nil {
		s[component] = &moments{}
	}
	s[component].add(value)
}

// NoteGroup adds a closed prompt group to the columns of its step.
func (s *Stats) NoteGroup(key Key, g *wire.GroupStats, by Spread) {
	st := s.of(key)
	if st == nil {
		return
	}
	if c := st.columns[rewardColumn]; c != nil && g.Scored > 1 && g.Std != nil {
		c.noteGroup(*g.Std, g.ZeroStd)
	}
	for component, m := range by {
		c := st.columns["reward/"+component]
		if c == nil && len(by) == 1 { // a single reward
			if c = st.columns["score"]; c == nil {
				c = st.columns["acc"]
			}
		}
		if c != nil && m.n > 1 {
			c.noteGroup(m.std(), m.flat())
		}
	}
}

// before returns the latest earlier step of the same split that has ended and has what
// is asked for; nil: there is none.
func (s *Stats) before(key Key, has func(*column) bool) *step {
	var latest *step
	at := int64(math.MinInt64)
	for p := range s.progress(key.Run) {
		if p.Key.Split != key.Split || p.Key.Step >= key.Step || p.Key.Step < at {
			continue
		}
		st := s.of(p.Key)
		if st == nil || !p.over(key.Step) {
			continue
		}
		if c := st.columns[rewardColumn]; c != nil && has(c) {
			latest, at = st, p.Key.Step
		}
	}
	return latest
}

// LastMeanStd returns the mean of the standard deviations of the rewards within the groups of the
// latest earlier finished step of the split that has such groups, or nil if there is no such step.
func (s *Stats) LastMeanStd(key Key) *float64 {
	st := s.before(key, (*column).hasGroups)
	if st == nil {
		return nil
	}
	return number(st.columns[rewardColumn].spread)
}

// Pack drops the values of the steps of a split that precede a finished step. Call Pack when a step
// has no samples in flight.
func (s *Stats) Pack(run string, split rewards.Split) {
	begun, ended := int64(math.MinInt64), int64(math.MinInt64)
	for p := range s.progress(run) {
		if p.Key.Split == split && p.Arrived > 0 {
			begun = max(begun, p.Key.Step)
		}
	}
	for p := range s.progress(run) {
		if p.Key.Split == split && p.over(begun) {
			ended = max(ended, p.Key.Step)
		}
	}
	for p := range s.progress(run) {
		if p.Key.Split != split || p.Key.Step >= ended || p.InFlight > 0 {
			continue
		}
		st := s.record(p.Key)
		if st.packed {
			continue
		}
		st.packed = true
		before := s.before(p.Key, (*column).hasValues)
		for name, c := range st.columns {
			c.pack(before.moments(name))
		}
	}
}

// moments returns those of a column; nil if the step, or a value, is not there.
func (s *step) moments(name string) *moments {
	if s == nil || s.columns[name] == nil || s.columns[name].all.n == 0 {
		return nil
	}
	m := s.columns[name].all
	return &m
}

// Columns describes the columns of a step, the reward first. more reports whether the step has more
// columns than the 16 that are kept. Call Finish on each result without holding the gateway's
// mutex.
func (s *Stats) Columns(key Key) (all []ColumnStats, more bool) {
	st := s.of(key)
	if st == nil {
		return nil, false
	}
	var before *step
	if !st.packed {
		before = s.before(key, (*column).hasValues)
	}
	all = make([]ColumnStats, 0, len(st.columns))
	for name, c := range st.columns {
		base := c.base
		if !st.packed {
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
	return all, st.more
}

// Latest describes the latest finished step of a split that has results, or the latest step with
// results if none has finished, because the spread of a step that has only begun is meaningless. ok
// is false if no step has results.
func (s *Stats) Latest(run string, split rewards.Split) (l Latest, ok bool) {
	var newest, ended *Key
	for p := range s.progress(run) {
		if p.Key.Split == split && s.of(p.Key) != nil && (newest == nil || newest.Step < p.Key.Step) {
			newest = &p.Key
		}
	}
	for p := range s.progress(run) {
		if p.Key.Split == split && s.of(p.Key) != nil && p.over(newest.Step) && (ended == nil || ended.Step < p.Key.Step) {
			ended = &p.Key
		}
	}
	key := cmp.Or(ended, newest)
	if key == nil {
		return Latest{}, false
	}
	columns, _ := s.Columns(*key)
	return Latest{Key: *key, Columns: columns}, true
}

// Forget deletes the columns of a step that the gateway has forgotten.
func (s *Stats) Forget(key Key) {
	delete(s.runs[key.Run], key)
	if len(s.runs[key.Run]) == 0 {
		delete(s.runs, key.Run)
	}
}

// GaugeRuns is the maximum number of runs that should have reward gauges. Clients choose the names
// of runs, and each run has up to 2 × 16 × 14 series.
const GaugeRuns = 32

// Latest is the step that the gauges of one run and split show, with its columns.
type Latest struct {
	Key     Key
	Columns []ColumnStats
}

// Gauges registers the reward gauges with reg; if reg is nil, Gauges does nothing. latest is called
// at each scrape, from any goroutine, and its result must not be used by others afterwards. A
// number that does not exist has no series.
func Gauges(reg prometheus.Registerer, latest func() []Latest) {
	set := metric.For(reg, "reward")
	metric.Table(set, []string{"run", "split"}, func(yield func(Latest, ...string)) {
		for _, l := range latest() {
			yield(l, l.Key.Run, string(l.Key.Split))
		}
	}, metric.Gauge("step", "Latest step of the run and split that has ended; the other rewardloop_reward_ gauges with the labels run and split describe this step.", func(l Latest) int64 { return l.Key.Step }))

	metric.Table(set, []string{"run", "split", "column"}, func(yield func(*ColumnStats, ...string)) {
		for _, l := range latest() {
			for i := range l.Columns {
				s := &l.Columns[i]
				s.Finish()
				yield(s, l.Key.Run, string(l.Key.Split), s.Column)
			}
		}
	},
		metric.Gauge("values", "Samples of the latest finished step that have a value in the score column (reward or component).", func(s *ColumnStats) uint64 { return s.Count }),
		metric.Gauge("failed", "Samples of the latest finished step without a value in the score column (reward or component), because the component or the sample failed.", func(s *ColumnStats) uint64 { return s.Failed }),
		metric.Gauge("mean", "Mean of the values of the score column (reward or component) in the latest finished step.", func(s *ColumnStats) *float64 { return s.Mean }),
		metric.Gauge("std", "Population standard deviation of the values of the score column (reward or component) in the latest finished step.", func(s *ColumnStats) *float64 { return s.Std }),
		metric.Gauge("min", "Minimum of the values of the score column (reward or component) in the latest finished step.", func(s *ColumnStats) *float64 { return s.Min }),
		metric.Gauge("max", "Maximum of the values of the score column (reward or component) in the latest finished step.", func(s *ColumnStats) *float64 { return s.Max }),
		metric.Gauge("groups", "Prompt groups of the latest finished step that have two values or more in the score column (reward or component).", func(s *ColumnStats) int { return s.Groups }),
		metric.Gauge("zero_std_groups", "Prompt groups of the latest finished step that have two values or more in the score column (reward or component), all equal.", func(s *ColumnStats) int { return s.ZeroStdGroups }),
		metric.Gauge("mean_group_std", "Mean over prompt groups of the population standard deviation within a group, for the score column (reward or component) in the latest finished step.", func(s *ColumnStats) *float64 { return s.MeanGroupStd }),
		metric.Gauge("drift", "Change of the mean of the score column (reward or component) from the previous step to the latest finished step, in standard deviations of the previous step.", func(s *ColumnStats) *float64 { return s.Drift }),
		metric.Gauges("quantile", "Quantiles 0.1, 0.5 and 0.9 of the values of the score column (reward or component) in the latest finished step.", "q", func(s *ColumnStats, put func(float64, ...string)) {
			for q, v := range map[string]*float64{"0.1": s.P10, "0.5": s.P50, "0.9": s.P90} {
				if v != nil {
					put(*v, q)
				}
			}
		}),
	)
}
