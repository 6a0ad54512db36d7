package metric

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// number is what a metric may be made of. A bool is 0 or 1; a nil pointer has no sample.
type number interface {
	int | int64 | uint64 | float64 | bool | *float64
}

// Row is one metric of the things in a Table.
type Row[T any] struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string // after those of the thing
	values     func(thing T, put func(n float64, values ...string))
}

// Gauge returns a row with a number of each thing that goes up and down.
func Gauge[T any, N number](name, help string, value func(T) N) Row[T] {
	return single(name, help, prometheus.GaugeValue, value)
}

// Count returns a row with a number of each thing that only increases; name must end with _total.
func Count[T any, N number](name, help string, value func(T) N) Row[T] {
	return single(name, help, prometheus.CounterValue, value)
}

// Gauges returns a row with several numbers of each thing that go up and down, distinguished by an
// additional label.
func Gauges[T any](name, help, label string, values func(thing T, put func(n float64, values ...string))) Row[T] {
	return Row[T]{name, help, prometheus.GaugeValue, []string{label}, values}
}

// Counts returns a row with several numbers of each thing that only increase, distinguished by an
// additional label.
func Counts[T any](name, help, label string, values func(thing T, put func(n float64, values ...string))) Row[T] {
	return Row[T]{name, help, prometheus.CounterValue, []string{label}, values}
}

func single[T any, N number](name, help string, kind prometheus.ValueType, value func(T) N) Row[T] {
	return Row[T]{name, help, kind, nil, func(thing T, put func(float64, ...string)) {
		switch v := any(value(thing)).(type) {
		case int:
			put(float64(v))
		case int64:
			put(float64(v))
		case uint64:
			put(float64(v))
		case float64:
			put(v)
		case bool:
			if v {
				put(1)
			} else {
				put(0)
			}
		case *float64:
			if v != nil {
				put(*v)
			}
		}
	}}
}

// Table registers metrics of things that come and go. things is called at each scrape, from any
// goroutine, and yields each thing with its label values.
func Table[T any](s Set, labels []string, things func(yield func(thing T, values ...string)), rows ...Row[T]) {
	t := &table[T]{things: things, rows: rows}
	for _, r := range rows {
		t.descs = append(t.descs, prometheus.NewDesc(prometheus.BuildFQName(namespace, s.component, r.name), r.help, append(slices.Clip(labels), r.labels...), nil))
	}
	register(s, t)
}

type table[T any] struct {
	things func(yield func(thing T, values ...string))
	rows   []Row[T]
	descs  []*prometheus.Desc // of the rows
}

// Describe implements prometheus.Collector.
func (t *table[T]) Describe(to chan<- *prometheus.Desc) {
	for _, d := range t.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector. A value that no label may have costs its sample
// and not the page.
func (t *table[T]) Collect(to chan<- prometheus.Metric) {
	t.things(func(thing T, values ...string) {
		for i, r := range t.rows {
			r.values(thing, func(n float64, more ...string) {
				if m, err := prometheus.NewConstMetric(t.descs[i], r.kind, n, append(slices.Clip(values), more...)...); err == nil {
					to <- m
				}
			})
		}
	})
}
