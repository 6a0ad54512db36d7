package payload

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/wire"
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
	set := metric.For(reg, "claim")
	return &serverMetrics{
		claims:  set.Counter("claims_total", "Claims of workers in other processes that the gateway granted."),
		results: set.Counter("results_total", "Results of workers in other processes that the gateway took."),
		refused: set.Counters("refused_total", "Connections, claims and results of workers in other processes that the gateway refused, by reason.",
			metric.By("reason", wire.RefusedToken, wire.RefusedExpired, wire.RefusedGone, wire.RefusedMalformed, wire.RefusedBusy, wire.RefusedFailed, wire.RefusedProtocol)),
		bytes:  set.Counter("sent_bytes_total", "Payload bytes that the gateway sent to workers in other processes."),
		resent: set.Counter("resent_total", "Payloads that the gateway sent to a worker again because they had not arrived whole."),
		open:   set.Level("open", "Claims of workers in other processes that have no result yet."),
		conns:  set.Level("connections", "Connections of workers in other processes to the gateway."),
		lost:   set.Counter("workers_lost_total", "Workers whose process went away while it had open claims."),
	}
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
	set := metric.For(reg, "claim_client")
	return &clientMetrics{
		claims: set.Counters("claims_total", "Claims of this process at gateways of other processes, by outcome: ok, gone, unreachable or failed.",
			metric.By("outcome", "ok", "gone", "unreachable", "failed")),
		bytes: set.Counter("received_bytes_total", "Payload bytes that this process received from gateways of other processes."),
		again: set.Counters("again_total", "Claims and results that this process sent again because a connection broke or a payload was corrupt.",
			metric.By("what", "claim", "result")),
		corrupt: set.Counter("corrupt_total", "Payloads that this process received and that differed from their checksum."),
		dials:   set.Counters("dials_total", "Attempts of this process to connect to gateways of other processes, by outcome: ok or failed.", metric.By("outcome", "ok", "failed")),
	}
}
