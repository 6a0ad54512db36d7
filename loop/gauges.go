package loop

import (
	"cmp"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/rewards"
)

// gaugeRuns bounds the runs that have reward gauges, the most recently used first:
// names of runs are the clients', and each makes up to 2 × 16 × 14 series.
const gaugeRuns = 32

// rewardGauges shows what Manager.Runs says of the latest step of each run and split
// that has ended, or of the latest one where none has: of a step that has only begun,
// the spread says nothing. A number that does not exist has no sample.
type rewardGauges struct {
	m       *Manager
	columns []columnGauge
	step    *prometheus.Desc
}

var _ prometheus.Collector = (*rewardGauges)(nil)

// columnGauge is one number of a column.
type columnGauge struct {
	desc  *prometheus.Desc
	value func(s *ColumnStats) *float64
	extra []string // values of labels after run, split and column
}

func newRewardGauges(m *Manager) *rewardGauges {
	const ns, sub = "rewardloop", "reward"
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(ns, sub, name), help, labels, nil)
	}
	column := []string{"run", "split", "column"}
	of := func(name, help string, value func(s *ColumnStats) *float64) columnGauge {
		return columnGauge{desc: desc(name, help, column...), value: value}
	}
	count := func(n uint64) *float64 { f := float64(n); return &f }
	g := &rewardGauges{m: m, step: desc("step", "Step that the reward gauges of the run and split are of.", "run", "split")}
	g.columns = []columnGauge{
		of("values", "Samples that have a value in the column.", func(s *ColumnStats) *float64 { return count(s.Count) }),
		of("failed", "Samples without a value because the term, or the sample, failed.", func(s *ColumnStats) *float64 { return count(s.Failed) }),
		of("mean", "Mean of the values.", func(s *ColumnStats) *float64 { return s.Mean }),
		of("std", "Population standard deviation of the values.", func(s *ColumnStats) *float64 { return s.Std }),
		of("min", "Smallest value.", func(s *ColumnStats) *float64 { return s.Min }),
		of("max", "Largest value.", func(s *ColumnStats) *float64 { return s.Max }),
		of("groups", "Prompt groups that have closed with two values or more.", func(s *ColumnStats) *float64 { return count(uint64(s.Groups)) }),             //nolint:gosec // a count
		of("zero_std_groups", "Those of the groups whose members all got the same.", func(s *ColumnStats) *float64 { return count(uint64(s.ZeroStdGroups)) }), //nolint:gosec // a count
		of("mean_group_std", "Mean of the groups' population standard deviations.", func(s *ColumnStats) *float64 { return s.MeanGroupStd }),
		of("drift", "Mean less that of the step before, in units of that step's standard deviation.", func(s *ColumnStats) *float64 { return s.Drift }),
	}
	quantile := desc("quantile", "Quantiles of the values.", append(column, "quantile")...)
	g.columns = append(g.columns,
		columnGauge{quantile, func(s *ColumnStats) *float64 { return s.P10 }, []string{"0.1"}},
		columnGauge{quantile, func(s *ColumnStats) *float64 { return s.P50 }, []string{"0.5"}},
		columnGauge{quantile, func(s *ColumnStats) *float64 { return s.P90 }, []string{"0.9"}},
	)
	return g
}

// Describe is for prometheus.Collector.
func (g *rewardGauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.step
	for _, c := range g.columns {
		if c.extra == nil || c.extra[0] == "0.5" { // the quantiles are one metric
			ch <- c.desc
		}
	}
}

// Collect is for prometheus.Collector.
func (g *rewardGauges) Collect(ch chan<- prometheus.Metric) {
	for _, l := range g.m.latestStats() {
		send := func(desc *prometheus.Desc, v float64, labels ...string) {
			if m, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, v, labels...); err == nil {
				ch <- m
			}
		}
		send(g.step, float64(l.key.step), l.run, string(l.key.split))
		for i := range l.stats {
			s := &l.stats[i]
			s.finish()
			for _, c := range g.columns {
				if v := c.value(s); v != nil {
					send(c.desc, *v, append([]string{l.run, string(l.key.split), s.Column}, c.extra...)...)
				}
			}
		}
	}
}

// latestStats is what the gauges show of one run and split.
type latestStats struct {
	run   string
	key   stepKey
	stats []ColumnStats
}

func (m *Manager) latestStats() []latestStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	runs := slices.SortedFunc(maps.Values(m.core.runs), func(a, b *run) int {
		return cmp.Or(b.lastUse.Compare(a.lastUse), cmp.Compare(a.name, b.name))
	})
	var all []latestStats
	for _, r := range runs[:min(len(runs), gaugeRuns)] {
		for _, split := range []rewards.Split{rewards.Train, rewards.Val} {
			if st := r.latest(split); st != nil {
				all = append(all, latestStats{r.name, st.key, r.rewardStats(st)})
			}
		}
	}
	return all
}

// latest returns the latest step of a split that has ended and has results, or else the
// latest with results; nil without any.
func (r *run) latest(split rewards.Split) *step {
	var newest, ended *step
	for _, st := range r.stepLog {
		if st.key.split == split && st.stats.columns != nil && (newest == nil || newest.key.step < st.key.step) {
			newest = st
		}
	}
	for _, st := range r.stepLog {
		if st.key.split == split && st.stats.columns != nil && st.over(newest.key.step) && (ended == nil || ended.key.step < st.key.step) {
			ended = st
		}
	}
	return cmp.Or(ended, newest)
}
