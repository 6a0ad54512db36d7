// Package metric declares metrics for Prometheus. A metric is one line at its component:
// it is made, registered, and its children stand at zero from the start.
//
//	m := metric.For(reg, "loop")
//	late := m.Counter("late_results_total", "Results that the gateway dropped because …")
//	ended := m.Counters("samples_total", "Samples that got their final result, by outcome.", metric.By("outcome", "scored", "failed"))
//	m.Gauge("samples_in_flight", "Samples that the gateway has accepted and not answered.", count)
//
// What comes and goes, such as devices, is asked at each scrape (Table), one line for each
// number of it.
//
// Help is read out of context, in Grafana and in grep: a sentence with its subject and its
// unit that points at no other metric. docs/metrics.md has all of them, and what to do.
package metric

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

const namespace = "rewardloop"

// Set makes the metrics of one component. The zero value counts and registers nothing.
type Set struct {
	reg       prometheus.Registerer
	component string
}

// For makes metrics whose names begin with rewardloop_ and the component's name, which may
// be empty. Without a registerer they count and nobody reads them.
func For(reg prometheus.Registerer, component string) Set { return Set{reg, component} }

// Label is a label and, where they are known, all of its values.
type Label struct {
	name   string
	values []string
}

// By names a label.
func By(name string, values ...string) Label { return Label{name, values} }

// Counter counts from zero; its name ends with _total.
func (s Set) Counter(name, help string) prometheus.Counter {
	return register(s, prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help}))
}

// Counters is a counter for each combination of the labels' values. They exist from the
// start if all values are known.
func (s Set) Counters(name, help string, labels ...Label) *prometheus.CounterVec {
	v := register(s, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help}, names(labels)))
	each(labels, nil, func(values []string) { v.WithLabelValues(values...) })
	return v
}

// Histogram counts observations in buckets.
func (s Set) Histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(s, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help, Buckets: buckets}))
}

// Histograms is a histogram for each combination of the labels' values.
func (s Set) Histograms(name, help string, buckets []float64, labels ...Label) *prometheus.HistogramVec {
	return register(s, prometheus.NewHistogramVec(
		prometheus.HistogramOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help, Buckets: buckets}, names(labels)))
}

// Level is a number that goes up and down.
func (s Set) Level(name, help string) prometheus.Gauge {
	return register(s, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: s.component, Name: name, Help: help}))
}

// Gauge is a number that is asked at each scrape, from any goroutine.
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
