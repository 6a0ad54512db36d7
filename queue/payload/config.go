package payload

import (
	"cmp"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Config configures both sides. A zero field gets its default.
type Config struct {
	// ReadTimeout is the time without data from the peer after which the connection ends, 15 s by
	// default. PingInterval is the interval of pings, a third of ReadTimeout by default.
	ReadTimeout, PingInterval time.Duration

	// BulkBytes is the size above which a payload uses the second connection; default 1 MiB.
	BulkBytes int64
	// MaxOpen is the maximum number of open claims of a worker process; default 4096.
	MaxOpen int
	// MaxConns is the maximum number of connections of a gateway; default 4096.
	MaxConns int

	// LostAfter is the time without a connection after which a worker process counts as lost;
	// default 1 s.
	LostAfter time.Duration
	// DialTimeout is the timeout of one attempt to connect; default 5 s.
	DialTimeout time.Duration
	// DialPatience is the time for which a claim waits for a connection; default 2 s.
	DialPatience time.Duration
	// BackoffMin and BackoffMax limit the pause between two attempts to connect. The pause doubles,
	// and up to half of it is random. The defaults are 50 ms and 2 s.
	BackoffMin, BackoffMax time.Duration
	// StallTimeout is the time without an answer or data after which a claim fails; default 30 s.
	StallTimeout time.Duration
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c Config) WithDefaults() Config {
	c.ReadTimeout = cmp.Or(c.ReadTimeout, 15*time.Second)
	c.PingInterval = cmp.Or(c.PingInterval, c.ReadTimeout/3)
	c.BulkBytes = cmp.Or(c.BulkBytes, 1<<20)
	c.MaxOpen = cmp.Or(c.MaxOpen, 4096)
	c.MaxConns = cmp.Or(c.MaxConns, 4096)
	c.LostAfter = cmp.Or(c.LostAfter, time.Second)
	c.DialTimeout = cmp.Or(c.DialTimeout, 5*time.Second)
	c.DialPatience = cmp.Or(c.DialPatience, 2*time.Second)
	c.BackoffMin = cmp.Or(c.BackoffMin, 50*time.Millisecond)
	c.BackoffMax = cmp.Or(c.BackoffMax, 2*time.Second)
	c.StallTimeout = cmp.Or(c.StallTimeout, 30*time.Second)
	return c
}

// Validate returns an error that lists all invalid fields.
func (c Config) Validate() error {
	var errs rewards.Faults
	for _, d := range [...]struct {
		name string
		v    time.Duration
	}{
		{"lost_after", c.LostAfter},
		{"dial_timeout", c.DialTimeout},
		{"dial_patience", c.DialPatience},
		{"backoff_min", c.BackoffMin},
		{"stall_timeout", c.StallTimeout},
	} {
		errs.Add(d.v <= 0, "%s is %s, want more than 0", d.name, d.v)
	}
	errs.Add(c.BackoffMax < c.BackoffMin, "backoff_max of %s is below backoff_min of %s", c.BackoffMax, c.BackoffMin)
	errs.Add(c.BulkBytes < 1, "bulk_bytes is %d, want 1 or more", c.BulkBytes)
	errs.Add(c.MaxOpen < 1 || c.MaxConns < 1, "max_open %d and max_conns %d must be 1 or more", c.MaxOpen, c.MaxConns)
	return errors.Join(append(errs, c.conn(1, 1).Validate())...)
}

// conn returns the bounds of a connection that receives texts and binary messages of at most
// so many bytes.
func (c Config) conn(textBytes, messageBytes int64) wsconn.Config {
	return wsconn.Config{
		ReadTimeout: c.ReadTimeout, PingInterval: c.PingInterval, CloseTimeout: time.Second,
		TextBytes: textBytes, MessageBytes: messageBytes, OutboxBytes: outboxBytes,
	}.WithDefaults()
}

const (
	// groupBytes bounds the payload of a prompt group; that of a sample is bounded by its ticket.
	groupBytes = 1 << 30
	// outboxBytes bounds the texts that wait for the peer. Results on their way are bounded
	// by resultBytes, so that a worker never overfills its own.
	outboxBytes = 64 << 20
	resultBytes = 32 << 20
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
		results: set.Counter("results_total", "Results of workers in other processes that the gateway accepted."),
		refused: set.Counters("refused_total", "Connections, claims (requests for the payload of a ticket) and results of workers in other processes that the gateway refused, by reason.",
			metric.By("reason", wire.RefusedToken, wire.RefusedExpired, wire.RefusedGone, wire.RefusedMalformed, wire.RefusedBusy, wire.RefusedFailed, wire.RefusedProtocol)),
		bytes:  set.Counter("sent_bytes_total", "Payload bytes that the gateway sent to workers in other processes."),
		resent: set.Counter("resent_total", "Payloads that the gateway sent to a worker again because the payloads arrived incomplete."),
		open:   set.Level("open", "Claims of workers in other processes that have no result yet."),
		conns:  set.Level("connections", "Connections of workers in other processes to the gateway."),
		lost:   set.Counter("workers_lost_total", "Workers whose process disconnected while the process had open claims."),
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
		claims: set.Counters("claims_total", "Claims that this process sent to gateways of other processes, by outcome: ok, gone (the attempt is over), unreachable or failed.",
			metric.By("outcome", "ok", "gone", "unreachable", "failed")),
		bytes: set.Counter("received_bytes_total", "Payload bytes that this process received from gateways of other processes."),
		again: set.Counters("again_total", "Claims and results that this process sent again because a connection broke or a payload was corrupt.",
			metric.By("what", "claim", "result")),
		corrupt: set.Counter("corrupt_total", "Payloads that this process received and whose checksum did not match."),
		dials:   set.Counters("dials_total", "Attempts of this process to connect to gateways of other processes, by outcome: ok or failed.", metric.By("outcome", "ok", "failed")),
	}
}
