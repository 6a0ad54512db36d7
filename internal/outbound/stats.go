package outbound

import (
	"maps"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Stats is what an upstream has done since it was made. The counters only rise, except
// Tokens.
type Stats struct {
	Name string
	// Calls counts Do, Waiting those that wait for others to end, for the rate or an endpoint now.
	Calls   int64
	Waiting int
	// Unanswered is for how long nothing was answered while requests were there; 0: there
	// are none.
	Unanswered time.Duration
	// RetriesDenied counts the attempts that the retry budget refused.
	RetriesDenied int64
	// Tokens is what calls were booked with, corrected by Spent and less what was
	// given back for attempts that were not served. It may fall.
	Tokens    int64
	Endpoints []EndpointStats
	// Shares are this process's parts of the limits that there are.
	Shares []Share
	// Processes are those that share the limits, as far as they have been heard of, this
	// one included once it has heard itself; 0: the process is alone.
	Processes int
	// Partitioned: the process hears nothing of the others.
	Partitioned bool
}

// Share is a part of a limit.
type Share struct {
	// Limit is "concurrency", "requests_per_minute" or "tokens_per_minute".
	Limit string
	// Whole is the limit, Part what this process may use of it: the same where it is alone.
	Whole, Part float64
}

// EndpointStats is the part of one endpoint.
type EndpointStats struct {
	// Endpoint is its URL without secrets.
	Endpoint string
	InFlight int
	// Requests counts all that were sent, Retries those that were not a call's first.
	Requests, Retries int64
	// Failures counts the attempts that failed, by class.
	Failures map[rewards.Class]int64
	Breaker  State
	// Told: it is not closed only because another process says that it fails.
	Told bool
	// Held: whoever starts it lets nothing be sent to it.
	Held bool
	// FailuresInRow are those since the last answer; BreakAfter of them open the breaker.
	FailuresInRow int
	// NextProbe is when an open breaker lets a request through; zero for the others.
	NextProbe time.Time
}

// Stats returns the figures of now.
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
