package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/outbound"
)

// asked collects what leaves the process by HTTP and what it costs.
type asked struct{ engines *Engines }

var _ prometheus.Collector = asked{}

//nolint:gochecknoglobals // tables
var (
	groupCalls   = desc("outbound_calls_total", "Calls to a group of servers.", "group")
	groupWaiting = desc("outbound_waiting", "Calls that wait for a place, the rate or a server.", "group")
	groupSilent  = desc("outbound_unanswered_seconds", "For how long a group of servers has answered nothing while requests are there; 0: there are none.", "group")
	groupDenied  = desc("outbound_retries_denied_total", "Further attempts that the retry budget refused.", "group")
	groupLimit   = desc("outbound_limit", "A limit of a group, which all processes of the fleet share.", "group", "limit")
	groupPart    = desc("outbound_share", "What this process may use of it.", "group", "limit")
	groupFleet   = desc("outbound_fleet_processes", "Processes that share a group's limits; 0: this one is alone.", "group")
	groupDeaf    = desc("outbound_fleet_deaf", "1 while this process cannot hear the others that share a group's limits.", "group")

	serverInFlight = desc("outbound_in_flight", "Requests that a server has.", "group", "server")
	serverRequests = desc("outbound_requests_total", "Requests sent, retries included.", "group", "server")
	serverRetries  = desc("outbound_retries_total", "Requests that were not the first of their call.", "group", "server")
	serverFailures = desc("outbound_failures_total", "Requests that failed.", "group", "server", "class")
	serverOpen     = desc("outbound_breaker_open", "1 while a server is out of service after failures in a row, of this process or of another.", "group", "server")

	judgeQuestions = desc("judge_questions_total", "Questions to a model, by where their answer came from.", "engine", "model", "from")
	judgeFailures  = desc("judge_failures_total", "Questions without an answer, and answers of which no score could be read.", "engine", "model", "what")
	judgeTokens    = desc("judge_tokens_total", "Tokens as the engine counts them.", "engine", "model", "kind")
	judgeCost      = desc("judge_cost_total", "Those tokens at the configured prices.", "engine", "model")
	judgeCache     = desc("judge_cache_bytes", "Answers that are remembered.", "engine", "model")
)

// Describe implements prometheus.Collector. What is collected depends on which
// servers are named, so nothing is promised.
func (a asked) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (a asked) Collect(to chan<- prometheus.Metric) {
	names := map[string]int{}
	for _, g := range a.engines.transport.Groups() {
		s := g.Stats()
		names[s.Name]++
		if n := names[s.Name]; n > 1 { // the same host asked in two ways; the order is always the same
			s.Name += "#" + strconv.Itoa(n)
		}
		count(to, groupCalls, float64(s.Calls), s.Name)
		gauge(to, groupWaiting, s.Waiting, s.Name)
		measure(to, groupSilent, s.Unanswered.Seconds(), s.Name)
		count(to, groupDenied, float64(s.RetriesDenied), s.Name)
		for _, l := range s.Shares {
			measure(to, groupLimit, l.Whole, s.Name, l.Limit)
			measure(to, groupPart, l.Part, s.Name, l.Limit)
		}
		gauge(to, groupFleet, s.Processes, s.Name)
		gauge(to, groupDeaf, flag(s.Deaf), s.Name)
		for _, e := range s.Endpoints {
			endpoint(to, s.Name, e)
		}
	}
	for at, s := range a.engines.chatStats() {
		labels := []string{at.Engine, at.Model}
		count(to, judgeQuestions, float64(s.Requests), append(labels, "engine")...)
		count(to, judgeQuestions, float64(s.Hits), append(labels, "memory")...)
		count(to, judgeQuestions, float64(s.Joined), append(labels, "another")...)
		count(to, judgeFailures, float64(s.Failures), append(labels, "no_answer")...)
		count(to, judgeFailures, float64(s.Refused), append(labels, "no_score")...)
		count(to, judgeTokens, float64(s.PromptTokens), append(labels, "prompt")...)
		count(to, judgeTokens, float64(s.CompletionTokens), append(labels, "completion")...)
		count(to, judgeCost, s.Cost, labels...)
		gauge(to, judgeCache, int(s.Bytes), labels...)
	}
}

func endpoint(to chan<- prometheus.Metric, group string, e outbound.EndpointStats) {
	labels := []string{group, e.Endpoint}
	gauge(to, serverInFlight, e.InFlight, labels...)
	count(to, serverRequests, float64(e.Requests), labels...)
	count(to, serverRetries, float64(e.Retries), labels...)
	for class, n := range e.Failures {
		count(to, serverFailures, float64(n), append(labels, string(class))...)
	}
	gauge(to, serverOpen, flag(e.Breaker != outbound.Closed), labels...)
}

func measure(to chan<- prometheus.Metric, d *prometheus.Desc, x float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
}

func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}
