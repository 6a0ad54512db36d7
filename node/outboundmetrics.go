package node

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/pool/engines"
)

// outboundMetrics show what leaves the process by HTTP and what it costs.
func outboundMetrics(reg prometheus.Registerer, e *Engines) {
	type upstream = outbound.Stats
	set := metric.For(reg, "outbound")
	metric.Table(set, []string{"upstream"}, func(yield func(s upstream, values ...string)) {
		for _, s := range e.upstreams() {
			yield(s, s.Name)
		}
	},
		metric.Count("calls_total", "Calls of this process to the upstream (an engine or a reward service), each counted once however often the call was retried.", func(s upstream) int64 { return s.Calls }),
		metric.Gauge("waiting", "Calls of this process that wait because of the upstream's concurrency limit or rate limit, or because no server of the upstream is available.", func(s upstream) int { return s.Waiting }),
		metric.Gauge("unanswered_seconds", "Time in seconds since the latest answer of the upstream, or since the oldest open request was sent, whichever is later; 0 while no request is open.",
			func(s upstream) float64 { return s.Unanswered.Seconds() }),
		metric.Count("retries_denied_total", "Retries of calls to the upstream that its retry budget did not allow.", func(s upstream) int64 { return s.RetriesDenied }),
		metric.Gauges("limit", "Limit of the upstream for all processes together; the label limit is concurrency (requests), requests_per_minute or tokens_per_minute.", "limit", func(s upstream, put func(float64, ...string)) {
			for _, l := range s.Shares {
				put(l.Whole, l.Limit)
			}
		}),
		metric.Gauges("share", "Part of rewardloop_outbound_limit that this process may use, in the same unit.", "limit", func(s upstream, put func(float64, ...string)) {
			for _, l := range s.Shares {
				put(l.Part, l.Limit)
			}
		}),
		metric.Gauge("fleet_processes", "Processes that share the limits of the upstream, this process included; 0 while this process knows no other process.", func(s upstream) int { return s.Processes }),
		metric.Gauge("fleet_partitioned", "1 while this process cannot reach the processes that share the limits of the upstream and keeps its last known share, else 0.", func(s upstream) bool { return s.Partitioned }),
	)

	type server = outbound.EndpointStats
	metric.Table(set, []string{"upstream", "server"}, func(yield func(s server, values ...string)) {
		for _, u := range e.upstreams() {
			for _, s := range u.Endpoints {
				yield(s, u.Name, s.Endpoint)
			}
		}
	},
		metric.Gauge("in_flight", "Requests of this process that the server has not answered.", func(s server) int { return s.InFlight }),
		metric.Count("requests_total", "Requests that this process sent to the server, retries included.", func(s server) int64 { return s.Requests }),
		metric.Count("retries_total", "Requests that this process sent to the server as a retry of a call.", func(s server) int64 { return s.Retries }),
		metric.Counts("failures_total", "Requests of this process to the server that failed, by class of the failure.", "class", func(s server, put func(float64, ...string)) {
			for class, n := range s.Failures {
				put(float64(n), string(class))
			}
		}),
		metric.Gauge("breaker_open", "1 while this process sends the server no requests but probes: after repeated failures seen by any process, or because a server started by this process is not ready; else 0.",
			func(s server) bool { return s.Held || s.Breaker != outbound.Closed }),
	)

	metric.Table(metric.For(reg, "judge"), []string{"engine", "server"}, func(yield func(s engines.Status, values ...string)) {
		for _, x := range e.engines {
			if x.run != nil {
				for _, s := range x.run.Status() {
					yield(s, x.cfg.Name, s.Name)
				}
			}
		}
	},
		metric.Count("server_starts_total", "Times that this process started the server of an engine.", func(s engines.Status) int { return s.Starts }),
		metric.Gauge("server_ready", "1 while an engine's server that was started by this process is ready, else 0.", func(s engines.Status) bool { return s.State == engines.Ready }),
	)

	metric.Table(metric.For(reg, "judge"), []string{"engine", "model"}, func(yield func(s chat.Stats, values ...string)) {
		for at, s := range e.chatStats() {
			yield(s, at.Engine, at.Model)
		}
	},
		metric.Counts("questions_total", "Questions to the model, by source of the answer: engine, memory (the cache of answers) or another (an identical question in progress).", "from",
			func(s chat.Stats, put func(float64, ...string)) {
				put(float64(s.Requests), "engine")
				put(float64(s.Hits), "memory")
				put(float64(s.Joined), "another")
			}),
		metric.Counts("failures_total", "Questions to the model that got no answer (no_answer), and answers from which no score could be read (no_score).", "what",
			func(s chat.Stats, put func(float64, ...string)) {
				put(float64(s.Failures), "no_answer")
				put(float64(s.Refused), "no_score")
			}),
		metric.Counts("tokens_total", "Tokens of questions (prompt) and of answers (completion) of the model, as the engine counts them.", "kind",
			func(s chat.Stats, put func(float64, ...string)) {
				put(float64(s.PromptTokens), "prompt")
				put(float64(s.CompletionTokens), "completion")
			}),
		metric.Count("cost_total", "Cost of the model's tokens at the configured prices, in the currency of the prices.", func(s chat.Stats) float64 { return s.Cost }),
		metric.Gauge("cache_bytes", "Bytes of the model's answers in the cache of answers of this process.", func(s chat.Stats) int64 { return s.Bytes }),
	)
}

// upstreams are the counters of all upstreams of servers, each under a name of its own.
func (e *Engines) upstreams() []outbound.Stats {
	names := map[string]int{}
	var list []outbound.Stats
	for _, g := range e.transport.Upstreams() {
		s := g.Stats()
		names[s.Name]++
		if n := names[s.Name]; n > 1 { // the same host asked in two ways; the order is always the same
			s.Name += "#" + strconv.Itoa(n)
		}
		list = append(list, s)
	}
	return list
}
