package claim

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/wire"
)

const (
	namespace = "rewardloop"
)

// serverMetrics are the gateway's.
type serverMetrics struct {
	claims  prometheus.Counter
	results prometheus.Counter
	refused *prometheus.CounterVec
	bytes   prometheus.Counter
	resent  prometheus.Counter
	open    prometheus.Gauge
	conns   prometheus.Gauge
	lost    prometheus.Counter
}

func newServerMetrics(reg prometheus.Registerer) *serverMetrics {
	const sub = "claim"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: sub, Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Subsystem: sub, Name: name, Help: help})
	}
	m := &serverMetrics{
		claims:  counter("claims_total", "Claims of workers in other processes that the gateway granted."),
		results: counter("results_total", "Results of workers in other processes that the gateway took."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: sub, Name: "refused_total", Help: "Connections, claims and results that were refused, by reason.",
		}, []string{"reason"}),
		bytes:  counter("sent_bytes_total", "Payload bytes sent to workers in other processes."),
		resent: counter("resent_total", "Payloads sent again because they had not arrived whole."),
		open:   gauge("open", "Claims of workers in other processes that have no result yet."),
		conns:  gauge("connections", "Connections of workers in other processes."),
		lost:   counter("workers_lost_total", "Workers whose process went away with open claims."),
	}
	for _, reason := range []string{wire.RefusedToken, wire.RefusedExpired, wire.RefusedGone, wire.RefusedMalformed, wire.RefusedBusy, wire.RefusedFailed, wire.RefusedProtocol} {
		m.refused.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(m.claims, m.results, m.refused, m.bytes, m.resent, m.open, m.conns, m.lost)
	}
	return m
}

// clientMetrics are the worker's.
type clientMetrics struct {
	claims  *prometheus.CounterVec
	bytes   prometheus.Counter
	again   *prometheus.CounterVec
	corrupt prometheus.Counter
	dials   *prometheus.CounterVec
}

func newClientMetrics(reg prometheus.Registerer) *clientMetrics {
	const sub = "claim_client"
	vec := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Subsystem: sub, Name: name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	}
	m := &clientMetrics{
		claims:  vec("claims_total", "Claims at gateways of other processes, by outcome.", "outcome", "ok", "gone", "unreachable", "failed"),
		bytes:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: sub, Name: "received_bytes_total", Help: "Payload bytes received."}),
		again:   vec("again_total", "Claims and results that were sent again after a connection broke or a payload was corrupt.", "what", "claim", "result"),
		corrupt: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Subsystem: sub, Name: "corrupt_total", Help: "Payloads that differed from their checksum."}),
		dials:   vec("dials_total", "Attempts to connect to gateways, by outcome.", "outcome", "ok", "failed"),
	}
	if reg != nil {
		reg.MustRegister(m.claims, m.bytes, m.again, m.corrupt, m.dials)
	}
	return m
}
