package stats

import (
	"github.com/prometheus/client_golang/prometheus"
)

// GaugeRuns bounds the runs that should have reward gauges: names of runs are the clients',
// and each makes up to 2 × 16 × 14 series.
const GaugeRuns = 32

// Latest is what the gauges show of one run and split: the columns of one step.
type Latest struct {
	Key     Key
	Columns []ColumnStats
}

// gauges shows what latest returns. A number that does not exist has no sample.
type gauges struct {
	latest  func() []Latest
	columns []columnGauge
	step    *prometheus.Desc
}

var _ prometheus.Collector = (*gauges)(nil)

// columnGauge is one number of a column.
type columnGauge struct {
	desc  *prometheus.Desc
	value func(s *ColumnStats) *float64
	extra []string // values of labels after run, split and column
}

// NewGauges returns a collector of gauges; latest is called at each scrape, from any
// goroutine, and what it returns is the collector's.
func NewGauges(latest func() []Latest) prometheus.Collector {
	const ns, sub = "rewardloop", "reward"
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(ns, sub, name), help, labels, nil)
	}
	column := []string{"run", "split", "column"}
	of := func(name, help string, value func(s *ColumnStats) *float64) columnGauge {
		return columnGauge{desc: desc(name, help, column...), value: value}
	}
	count := func(n uint64) *float64 { f := float64(n); return &f }
	g := &gauges{latest: latest, step: desc("step", "Step that the reward gauges of the run and split are of.", "run", "split")}
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
	quantile := desc("quantile", "Quantiles of the values.", append(column, "q")...)
	g.columns = append(g.columns,
		columnGauge{quantile, func(s *ColumnStats) *float64 { return s.P10 }, []string{"0.1"}},
		columnGauge{quantile, func(s *ColumnStats) *float64 { return s.P50 }, []string{"0.5"}},
		columnGauge{quantile, func(s *ColumnStats) *float64 { return s.P90 }, []string{"0.9"}},
	)
	return g
}

// Describe is for prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.step
	for _, c := range g.columns {
		if c.extra == nil || c.extra[0] == "0.5" { // the quantiles are one metric
			ch <- c.desc
		}
	}
}

// Collect is for prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	for _, l := range g.latest() {
		send := func(desc *prometheus.Desc, v float64, labels ...string) {
			if m, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, v, labels...); err == nil {
				ch <- m
			}
		}
		run, split := l.Key.Run, string(l.Key.Split)
		send(g.step, float64(l.Key.Step), run, split)
		for i := range l.Columns {
			s := &l.Columns[i]
			s.Finish()
			for _, c := range g.columns {
				if v := c.value(s); v != nil {
					send(c.desc, *v, append([]string{run, split, s.Column}, c.extra...)...)
				}
			}
		}
	}
}
