package queue

import (
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
)

// metrics count what goes wrong with NATS.
type metrics struct {
	refused      *prometheus.CounterVec // whom NATS of this process did not let in, or let do
	denied       *prometheus.CounterVec // what NATS refused to this process
	disconnected prometheus.Counter
}

// Why NATS refuses; labels of the metrics.
const (
	refusedKey     = "key"     // none, or a wrong one
	refusedSubject = "subject" // one that its role may not use
	refusedTLS     = "tls"     // in clear, or with a certificate that is not trusted
	refusedOther   = "other"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	set, reason := metric.For(reg, "nats"), metric.By("reason", refusedKey, refusedSubject, refusedTLS, refusedOther)
	return &metrics{
		refused: set.Counters("refused_total",
			"Connections and messages of other processes that the NATS server of this process refused, by reason: key, subject, tls or other.", reason),
		denied:       set.Counters("denied_total", "Connections and messages of this process that a NATS server refused, by reason: key, subject, tls or other.", reason),
		disconnected: set.Counter("disconnects_total", "Times that this process lost its connection to NATS."),
	}
}

// reasonOf reads why from what the server logs, which has no other word for it.
func reasonOf(text string) (reason string, refusal bool) {
	text = strings.ToLower(text)
	switch {
	case strings.Contains(text, "authentication"), strings.Contains(text, "authorization"):
		return refusedKey, true
	case strings.Contains(text, "violation"):
		return refusedSubject, true
	case strings.Contains(text, "tls"):
		return refusedTLS, true
	}
	return refusedOther, false
}

// reasonFor is the same of an error that NATS answers.
func reasonFor(err error) string {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return refusedSubject
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return refusedKey
	}
	return refusedOther
}
