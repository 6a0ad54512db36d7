package stats

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
)

// GaugeRuns bounds the runs that should have reward gauges: names of runs are the clients',
// and each makes up to 2 × 16 × 14 series.
const GaugeRuns = 32

// Latest is what the gauges show of one run and split: the columns of one step.
type Latest struct {
	Key     Key
	Columns []ColumnStats
}

// Gauges registers gauges of rewards; nil: nowhere. latest is called at each scrape, from any
// goroutine, and what it returns is the gauges'. A number that does not exist has no sample.
func Gauges(reg prometheus.Registerer, latest func() []Latest) {
	set := metric.For(reg, "reward")
	metric.Table(set, []string{"run", "split"}, func(yield func(Latest, ...string)) {
		for _, l := range latest() {
			yield(l, l.Key.Run, string(l.Key.Split))
		}
	}, metric.Gauge("step", "Latest step of the run and split that has ended; the gauges of rewards, rewardloop_reward_mean for one, are about this step.", func(l Latest) int64 { return l.Key.Step }))

	metric.Table(set, []string{"run", "split", "column"}, func(yield func(*ColumnStats, ...string)) {
		for _, l := range latest() {
			for i := range l.Columns {
				s := &l.Columns[i]
				s.Finish()
				yield(s, l.Key.Run, string(l.Key.Split), s.Column)
			}
		}
	},
		metric.Gauge("values", "Samples of the latest ended step that have a value in the column.", func(s *ColumnStats) uint64 { return s.Count }),
		metric.Gauge("failed", "Samples of the latest ended step without a value in the column, because the component or the sample failed.", func(s *ColumnStats) uint64 { return s.Failed }),
		metric.Gauge("mean", "Mean of the column's values in the latest ended step.", func(s *ColumnStats) *float64 { return s.Mean }),
		metric.Gauge("std", "Population standard deviation of the column's values in the latest ended step.", func(s *ColumnStats) *float64 { return s.Std }),
		metric.Gauge("min", "Smallest of the column's values in the latest ended step.", func(s *ColumnStats) *float64 { return s.Min }),
		metric.Gauge("max", "Largest of the column's values in the latest ended step.", func(s *ColumnStats) *float64 { return s.Max }),
		metric.Gauge("groups", "Prompt groups of the latest ended step that have two values or more in the column.", func(s *ColumnStats) int { return s.Groups }),
		metric.Gauge("zero_std_groups", "Prompt groups of the latest ended step that have two values or more in the column, all alike.", func(s *ColumnStats) int { return s.ZeroStdGroups }),
		metric.Gauge("mean_group_std", "Mean over the prompt groups of the latest ended step of the population standard deviation of the column's values in a group.", func(s *ColumnStats) *float64 { return s.MeanGroupStd }),
		metric.Gauge("drift", "Mean of the column in the latest ended step less the mean in the step before it, in standard deviations of the step before it.", func(s *ColumnStats) *float64 { return s.Drift }),
		metric.Gauges("quantile", "Quantiles 0.1, 0.5 and 0.9 of the column's values in the latest ended step.", "q", func(s *ColumnStats, put func(float64, ...string)) {
			for q, v := range map[string]*float64{"0.1": s.P10, "0.5": s.P50, "0.9": s.P90} {
				if v != nil {
					put(*v, q)
				}
			}
		}),
	)
}
