package fabric

import (
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what goes wrong with the engine.
type metrics struct {
	refused      *prometheus.CounterVec // whom the engine of this process did not let in, or let do
	denied       *prometheus.CounterVec // what the engine refused to this process
	disconnected prometheus.Counter
}

// Why the engine refuses; labels of the metrics.
const (
	refusedKey     = "key"     // none, or a wrong one
	refusedSubject = "subject" // one that its role may not use
	refusedTLS     = "tls"     // in clear, or with a certificate that is not trusted
	refusedOther   = "other"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	vec := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "rewardloop", Subsystem: "nats", Name: name, Help: help}, []string{"reason"})
		for _, reason := range []string{refusedKey, refusedSubject, refusedTLS, refusedOther} {
			v.WithLabelValues(reason)
		}
		return v
	}
	m := &metrics{
		refused: vec("refused_total", "Connections and messages of others that this process's own NATS refused, by what was wrong."),
		denied:  vec("denied_total", "What NATS refused to this process, by what was wrong."),
		disconnected: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "rewardloop", Subsystem: "nats", Name: "disconnects_total", Help: "Times that this process's connection to NATS was lost.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.refused, m.denied, m.disconnected)
	}
	return m
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

// reasonFor is the same of an error that the engine answers.
func reasonFor(err error) string {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return refusedSubject
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return refusedKey
	}
	return refusedOther
}
