package loop

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rewardloop/rewardloop/internal/metric"
	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/rewards"
)

// metrics are the gateway's own. Every child exists from the start, at zero.
type metrics struct {
	outcomes    *prometheus.CounterVec
	refused     *prometheus.CounterVec
	failures    *prometheus.CounterVec
	stage       *prometheus.HistogramVec
	late        prometheus.Counter
	retries     prometheus.Counter
	redelivered prometheus.Counter
	republished prometheus.Counter
	returned    prometheus.Counter
	publishErrs prometheus.Counter
	forgotten   prometheus.Counter

	breakers prometheus.Counter
	amiss    prometheus.Counter

	backupsSent   prometheus.Counter
	backupsWon    prometheus.Counter
	backupSeconds prometheus.Counter

	clientSamples, clientRefused *prometheus.CounterVec
	// clients are the names that have labels of their own, so many at most.
	clients sync.Map
	named   atomic.Int64

	stepsShort     prometheus.Counter
	stepsForgotten prometheus.Counter
	stepExposed    prometheus.Histogram
	stepRatio      prometheus.Histogram
	stepOverlap    prometheus.Histogram
}

// maxClients bounds the labels of clients in the life of a process, whose tokens change.
const maxClients = 256

// client counts something of a client by the name of its token.
func (x *metrics) client(of *prometheus.CounterVec, name string) {
	if name == "" {
		name = "none"
	}
	if _, known := x.clients.Load(name); !known {
		if x.named.Add(1) > maxClients {
			x.named.Add(-1)
			name = "others"
		} else {
			x.clients.Store(name, nil)
		}
	}
	of.WithLabelValues(name).Inc()
}

func newMetrics(m *Manager, reg prometheus.Registerer) *metrics {
	set, profiles := metric.For(reg, "loop"), metric.For(reg, "")
	outcome := metric.By("outcome", string(rewards.Scored), string(rewards.Failed), string(rewards.Rejected),
		string(rewards.OutcomeExpired), string(rewards.OutcomeCancelled), string(rewards.OutcomeWorkerLost))
	var names []string
	for _, name := range m.rewards {
		names = append(names, shown(name))
	}
	seconds := prometheus.ExponentialBuckets(0.001, 2, 18)

	set.Gauge("samples_in_flight", "Samples that the gateway has accepted and not answered.", func() float64 { return float64(m.InFlight()) })
	set.Gauge("held_bytes", "Bytes of the encoded messages of all samples that the gateway holds.", func() float64 { h, _ := m.Bytes(); return float64(h) })
	set.Gauge("granted_bytes", "Bytes of credit that the gateway has granted to clients and that clients have not used.", func() float64 { _, g := m.Bytes(); return float64(g) })
	set.Gauge("step_rows_bytes", "Bytes of the rows of steps that the gateway keeps for trainers.", func() float64 { return float64(m.stepBytes()) })
	set.Gauge("breakers_open", "Pairs of a worker and a reward whose circuit breaker is open: the worker gets no samples of the reward because attempts of the worker failed.", func() float64 { return float64(len(m.Breakers())) })

	metric.Table(profiles, []string{"reward"}, m.eachPlaceCount,
		metric.Gauge("wanted_places", "Places (a place is room for one sample in a worker) that waiting and running samples of the reward need; above rewardloop_live_places, there are too few workers.", func(c placeCount) int { return c.wanted }),
		metric.Gauge("live_places", "Places for samples of the reward on all connected workers together (a place is room for one sample in a worker).", func(c placeCount) int { return c.live }),
		metric.Gauge("busy_places", "Places of workers that are occupied by samples of the reward from this gateway.", func(c placeCount) int { return c.busy }),
	)
	metric.Table(profiles, []string{"reward"}, func(yield func(Progress, ...string)) {
		for _, p := range m.Progress() {
			yield(p, p.Reward)
		}
	}, metric.Gauge("reward_stopped", "1 while no sample of the reward can be scored or every sample fails, 0.5 while samples are unfinished and no result has come for 10 s, else 0; GET /readyz gives the reason.",
		func(p Progress) float64 { return stoppedValue(p.State) }))
	stats.Gauges(reg, m.latestStats)

	return &metrics{
		outcomes: set.Counters("samples_total", "Samples that got their final result, by outcome: scored, failed, rejected (refused by the gateway), expired, cancelled or lost (workers disconnected while they had the sample).", outcome),
		refused:  set.Counters("refused_total", "Samples that the gateway refused before it accepted them, by class of the fault.", metric.By("class")),
		failures: set.Counters("failures_total", "Failures in final results, by reward, component and class. Every failed component counts, even in a scored sample; the component is empty if the sample failed as a whole.",
			metric.By("reward", names...), metric.By("component", ""), metric.By("class", string(rewards.Expired))),
		stage: set.Histograms("sample_seconds", "Time in seconds from a sample's arrival at the gateway to its first claim by a worker (stage queue) and to its final result (stage total).",
			seconds, metric.By("stage")),
		late:        set.Counter("late_results_total", "Results that the gateway dropped because the sample had been answered or the attempt was over."),
		retries:     set.Counter("retries_total", "Failed attempts after which the gateway queued the sample again."),
		redelivered: set.Counter("redelivered_total", "Claims (requests for the payload of a ticket) by a worker that had claimed the same ticket before."),
		republished: set.Counter("republished_total", "Tickets that the gateway published again because no worker claimed the tickets while a place was free."),
		returned:    set.Counter("returned_total", "Samples that workers returned to the gateway because an engine or a service was down; a return does not count as an attempt."),
		publishErrs: set.Counter("publish_errors_total", "Tickets that the queue did not accept; the samples wait in the gateway."),
		forgotten:   set.Counter("forgotten_results_total", "Results that the gateway dropped from memory before the client confirmed them."),

		clientSamples: set.Counters("client_samples_total", "Samples that the gateway accepted, by the name of the client's token; default: a token without a name, "+
			"none: the gateway requires no token, others: all names after the first 256.", metric.By("client")),
		clientRefused: set.Counters("client_refused_total", "Samples and messages that the gateway refused, by the name of the client's token.", metric.By("client")),

		breakers: set.Counter("breakers_opened_total", "Times that the gateway stopped sending a worker samples of a reward because attempts of the worker failed."),
		amiss:    set.Counter("table_faults_total", "Forbidden states of samples and attempts that the gateway found; above 0 the gateway has a defect, and its log has the details."),

		backupsSent:   set.Counter("backups_total", "Backup requests that the gateway sent for slow samples while places were idle."),
		backupsWon:    set.Counter("backups_won_total", "Backup requests that were answered before the original request for the same sample."),
		backupSeconds: set.Counter("backup_wasted_seconds_total", "Time in seconds of attempts whose result was not used, for samples that had a backup request."),

		stepsShort:     set.Counter("steps_short_total", "Steps that ended at their deadline before all results had arrived."),
		stepsForgotten: set.Counter("steps_forgotten_total", "Steps whose rows the gateway deleted because the rows were too old, too large in total or of too many steps."),
		stepExposed: set.Histogram("step_exposed_seconds", "Time in seconds from the arrival of a step's last sample to the step's last result: scoring time that does not overlap with the rollout.",
			prometheus.ExponentialBuckets(0.01, 2, 18)),
		stepRatio: set.Histogram("step_over_ideal_ratio", "Time from the start of a step to the step's last result, divided by the same time of an ideal queue with equal arrivals and service times.",
			[]float64{1, 1.005, 1.01, 1.02, 1.03, 1.05, 1.1, 1.2, 1.5, 2, 5}),
		stepOverlap: set.Histogram("step_overlap_efficiency", "Share of a step's scoring time that overlaps with the rollout: 1 - a / b, a: exposed time, b: time to score all samples of the step after the rollout; 1 is best.",
			[]float64{-1, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}),
	}
}

// stoppedValue is a state as the metric has it.
func stoppedValue(s ProgressState) float64 {
	switch s {
	case Stopped, Failing:
		return 1
	case Slow:
		return 0.5
	case Progressing:
	}
	return 0
}

// placeCount is the places of one profile.
type placeCount struct {
	profile            string
	wanted, live, busy int
}

// eachPlaceCount yields the places that samples wait for or have, those that there are, and
// those that this gateway's samples have, of each profile that clients may ask for.
func (m *Manager) eachPlaceCount(yield func(c placeCount, reward ...string)) {
	for _, c := range m.placeCounts() {
		yield(*c, shown(c.profile))
	}
}

func (m *Manager) placeCounts() []*placeCount {
	workers := m.presence.Workers()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.core.survey(workers)
	counts := map[string]*placeCount{}
	var out []*placeCount
	for _, p := range m.core.board.Profiles() {
		if !strings.HasPrefix(p.Name(), "_") {
			counts[p.Name()] = &placeCount{profile: p.Name(), live: p.Capacity()}
			out = append(out, counts[p.Name()])
		}
	}
	for _, e := range m.core.entries {
		c := counts[e.item.Profile().Name()]
		switch {
		case c == nil:
		case e.state == queued, e.state == published:
			c.wanted++
		case e.state == running:
			c.wanted++
			c.busy += len(e.attempts)
		}
	}
	return out
}

func (m *Manager) stepBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core.book.Bytes()
}
