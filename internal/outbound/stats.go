package outbound

import (
	"maps"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Stats is what a group has done since it was made. The counters only rise, except
// Tokens.
type Stats struct {
	Name string
	// Calls counts Do, Waiting those that wait for a slot, the rate or an endpoint now.
	Calls   int64
	Waiting int
	// RetriesDenied counts the attempts that the retry budget refused.
	RetriesDenied int64
	// Tokens is what calls were booked with, corrected by Spent and less what was
	// given back for attempts that were not served. It may fall.
	Tokens    int64
	Endpoints []EndpointStats
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
	// FailuresInRow are those since the last answer; BreakAfter of them open the breaker.
	FailuresInRow int
	// NextProbe is when an open breaker lets a request through; zero for the others.
	NextProbe time.Time
}

// Stats returns the figures of now.
func (g *Group) Stats() Stats {
	s := Stats{
		Name: g.cfg.Name, Calls: g.calls.Load(), RetriesDenied: g.budget.refused(),
	}
	var waiting int
	s.Tokens, waiting = g.rate.figures()
	s.Waiting = waiting + int(g.queued.Load()+g.stalled.Load())
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.endpoints {
		es := EndpointStats{
			Endpoint: e.name, InFlight: e.inFlight, Requests: e.requests, Retries: e.retries,
			Failures: maps.Clone(e.failures), Breaker: e.breaker.state, FailuresInRow: e.breaker.row,
		}
		if e.breaker.state == Open {
			es.NextProbe = e.breaker.due
		}
		s.Endpoints = append(s.Endpoints, es)
	}
	return s
}
