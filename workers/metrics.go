package workers

import "github.com/prometheus/client_golang/prometheus"

// Metrics are shared by the workers of a process.
type Metrics struct {
	samples   *prometheus.CounterVec
	term      *prometheus.HistogramVec
	abandoned prometheus.Counter
}

// NewMetrics makes the metrics and registers them; nil: counted, not exported.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	const ns, sub = "rewardloop", "worker"
	m := &Metrics{
		samples: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "attempts_total", Help: "Attempts by outcome.",
		}, []string{"outcome"}),
		term: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "term_seconds", Help: "Time a term took, retries included, by reward, term and status.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"reward", "term", "status"}),
		abandoned: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "abandoned_total", Help: "Scorers that overran their deadline and still ran.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.samples, m.term, m.abandoned)
	}
	return m
}
