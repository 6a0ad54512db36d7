package outbound

import (
	"maps"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Stats are the statistics of an upstream since its creation. The counters only increase, except
// Tokens.
type Stats struct {
	Name string
	// Calls is the number of calls of Do. Waiting is the number of calls that now wait for other
	// calls to end, for the rate limits or for an endpoint.
	Calls   int64
	Waiting int
	// Unanswered is the time since the last answer while requests are in flight; 0: no requests are
	// in flight.
	Unanswered time.Duration
	// RetriesDenied is the number of retries that the retry budget refused.
	RetriesDenied int64
	// Tokens is the sum of the tokens booked for calls, corrected by Spent and reduced by the
	// tokens of attempts that were not served. Tokens may decrease.
	Tokens    int64
	Endpoints []EndpointStats
	// Shares are this process's parts of the configured limits.
	Shares []Share
	// Processes is the number of known processes that share the limits, including this one once it
	// has received its own report; 0: the process is alone.
	Processes int
	// Partitioned means that the process receives no reports of the others.
	Partitioned bool
}

// Share is a part of a limit.
type Share struct {
	// Limit is "concurrency", "requests_per_minute" or "tokens_per_minute".
	Limit string
	// Whole is the limit, and Part the part that this process may use. They are equal if the
	// process is alone.
	Whole, Part float64
}

// EndpointStats are the statistics of one endpoint.
type EndpointStats struct {
	// Endpoint is the URL of the endpoint, without secrets.
	Endpoint string
	InFlight int
	// Requests is the number of requests sent, Retries the number of those that were not the first
	// of their call.
	Requests, Retries int64
	// Failures is the number of failed attempts by class.
	Failures map[rewards.Class]int64
	Breaker  State
	// Told means that the breaker is open only because of the report of another process.
	Told bool
	// Held means that the endpoint is held (Upstream.Hold).
	Held bool
	// FailuresInRow is the number of failures since the last answer; BreakAfter of them open the
	// breaker.
	FailuresInRow int
	// NextProbe is the time at which an open breaker allows a probe; zero if the breaker is not
	// open.
	NextProbe time.Time
}

// Stats returns the current statistics.
func (g *Upstream) Stats() Stats {
	s := Stats{
		Name: g.cfg.Name, Calls: g.calls.Load(), RetriesDenied: g.budget.refused(),
	}
	var waiting int
	s.Tokens, waiting = g.rate.figures()
	s.Waiting = waiting + int(g.queued.Load()+g.stalled.Load())
	s.Shares = g.shares()
	if m := g.member.Load(); m != nil {
		s.Processes, s.Partitioned = m.figures(time.Now())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Unanswered = g.unanswered(time.Now())
	for _, e := range g.endpoints {
		es := EndpointStats{
			Endpoint: e.name, InFlight: e.inFlight, Requests: e.requests, Retries: e.retries,
			Failures: maps.Clone(e.failures), Breaker: e.breaker.state, FailuresInRow: e.breaker.row, Told: e.breaker.told, Held: e.held != "",
		}
		if e.breaker.state == Open {
			es.NextProbe = e.breaker.due
		}
		s.Endpoints = append(s.Endpoints, es)
	}
	return s
}

func (g *Upstream) shares() []Share {
	rpm, tpm := g.rate.parts()
	all := []Share{{Limit: "concurrency", Whole: float64(g.cfg.Concurrency), Part: float64(g.underWay.bound())}}
	if g.cfg.RPM > 0 {
		all = append(all, Share{"requests_per_minute", g.cfg.RPM, rpm})
	}
	if g.cfg.TPM > 0 {
		all = append(all, Share{"tokens_per_minute", g.cfg.TPM, tpm})
	}
	return all
}
