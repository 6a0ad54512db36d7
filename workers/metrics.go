package workers

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
)

// Metrics are shared by the workers of a process.
type Metrics struct {
	samples   *prometheus.CounterVec
	component *prometheus.HistogramVec
	abandoned prometheus.Counter
}

// NewMetrics makes the metrics and registers them; nil: counted, not exported.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	set := metric.For(reg, "worker")
	return &Metrics{
		samples: set.Counters("attempts_total", "Attempts at samples that workers of this process ended, by outcome.", metric.By("outcome")),
		component: set.Histograms("component_seconds", "Time in seconds that a component of a reward took, retries included, by reward, component and status.",
			prometheus.ExponentialBuckets(0.001, 2, 18), metric.By("reward"), metric.By("component"), metric.By("status")),
		abandoned: set.Counter("abandoned_total", "Scorers that overran their deadline and went on running."),
	}
}
