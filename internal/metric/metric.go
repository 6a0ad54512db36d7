// Package metric declares metrics for Prometheus. Each metric is declared in one line in its
// component: the call creates and registers it, and its known children exist with the value 0 from
// the start.
//
//	m := metric.For(reg, "loop")
//	late := m.Counter("late_results_total", "Results that the gateway dropped because …")
//	ended := m.Counters("samples_total", "Samples that got their final result, by outcome.", metric.By("outcome", "scored", "failed"))
//	m.Gauge("samples_in_flight", "Samples that the gateway has accepted and not answered.", count)
//
// For things that come and go, such as devices, a Table reads the values at each scrape, with one
// line for each metric.
//
// The help text is read out of context, in Grafana and with grep: it is a sentence with a subject
// and a unit that does not refer to another metric. docs/metrics.md lists all metrics and what to
// do about them.
package metric

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

const namespace = "rewardloop"

// Set creates the metrics of one component. The metrics of the zero value count and are not
// registered.
type Set struct {
	reg       prometheus.Registerer
	component string
}

// For returns a Set whose metric names begin with rewardloop_ and the component's name, which may
// be empty. If reg is nil, the metrics count but are not exported.
func For(reg prometheus.Registerer, component string) Set { return Set{reg, component} }

// Label is a label with all of its values, if they are known.
type Label struct {
	name   string
	values []string
}

// By returns a label.
func By(name string, values ...string) Label { return Label{name, values} }

// Counter returns a counter that starts at 0; name must end with _total.
func (s Set) Counter(name, help string) prometheus.Counter {
	return register(s, prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help}))
}

// Counters returns a counter for each combination of the labels' values. The counters exist from
// the start if all values are known.
func (s Set) Counters(name, help string, labels ...Label) *prometheus.CounterVec {
	v := register(s, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help}, names(labels)))
	each(labels, nil, func(values []string) { v.WithLabelValues(values...) })
	return v
}

// Histogram returns a histogram of observations.
func (s Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(s, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help, Buckets: buckets}))
}

// Histograms returns a histogram for each combination of the labels' values.
func (s Set) Histograms(name, help string, buckets []float64, labels ...Label) *prometheus.HistogramVec {
	return register(s, prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help, Buckets: buckets}, names(labels)))
}

// Level returns a gauge that goes up and down.
func (s Set) Level(name, help string) prometheus.Gauge {
	return register(s, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help}))
}

// Gauge registers a gauge whose value is read by calling value at each scrape, from any goroutine.
func (s Set) Gauge(name, help string, value func() float64) {
	register(s, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help}, value))
}

func register[C prometheus.Collector](s Set, c C) C {
	if s.reg != nil {
		s.reg.MustRegister(c)
	}
	return c
}

func names(labels []Label) []string {
	list := make([]string, len(labels))
	for i, l := range labels {
		list[i] = l.name
	}
	return list
}

// each calls f for every combination of the labels' values.
func each(labels []Label, values []string, f func(values []string)) {
	if len(labels) == 0 {
		f(values)
		return
	}
	for _, v := range labels[0].values {
		each(labels[1:], append(slices.Clip(values), v), f)
	}
}
