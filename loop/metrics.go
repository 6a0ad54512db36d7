package loop

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

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
	const ns, sub = "rewardloop", "loop"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help})
	}
	x := &metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "samples_total", Help: "Final results by outcome.",
		}, []string{"outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "refused_total", Help: "Samples refused before they were accepted, by class.",
		}, []string{"class"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "failures_total",
			Help: "Failures in final results by reward, component and class. A sample with two failed components counts twice; one that was scored without a failed component counts as well.",
		}, []string{"reward", "component", "class"}),
		stage: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "sample_seconds", Help: "Time from arrival to the first claim (queue) and to the final result (total).",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"stage"}),
		late:        counter("late_results_total", "Results that came after the sample was answered, or from an attempt that was over."),
		retries:     counter("retries_total", "Failed attempts that sent a sample back to its queue."),
		redelivered: counter("redelivered_total", "Claims of a ticket by a worker that had claimed it before."),
		republished: counter("republished_total", "Tickets published once more because they lay unclaimed while a place was free."),
		returned:    counter("returned_total", "Samples that workers gave back because an engine or a service was down. They are no attempts."),
		publishErrs: counter("publish_errors_total", "Tickets that the engine did not take; they stay queued."),
		forgotten:   counter("forgotten_results_total", "Results dropped from memory before the client confirmed them."),

		clientSamples: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "client_samples_total", Help: "Samples accepted, by the name of the token that their client showed.",
		}, []string{"client"}),
		clientRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: ns, Subsystem: sub, Name: "client_refused_total", Help: "Samples and messages refused, by the name of the token that their client showed.",
		}, []string{"client"}),

		breakers: counter("breakers_opened_total", "Times a worker stopped getting samples of a profile because it failed them."),

		amiss: counter("table_faults_total", "States of samples and attempts that must not be. Above 0, the gateway has a defect; the log has the details."),

		backupsSent:   counter("backups_total", "Second requests for samples that ran long while places were idle."),
		backupsWon:    counter("backups_won_total", "Second requests that were answered first."),
		backupSeconds: counter("backup_wasted_seconds_total", "Time of attempts at samples with a second request that did not count."),

		stepsShort:     counter("steps_short_total", "Steps that their deadline ended."),
		stepsForgotten: counter("steps_forgotten_total", "Steps whose rows were dropped: too old, or too many."),
		stepExposed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "step_exposed_seconds", Help: "From the arrival of a step's last sample to its last result: what nothing hid.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 18),
		}),
		stepRatio: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "step_over_ideal_ratio", Help: "A step's time over that of an ideal queue with the same arrivals and service times.",
			Buckets: []float64{1, 1.005, 1.01, 1.02, 1.03, 1.05, 1.1, 1.2, 1.5, 2, 5},
		}),
		stepOverlap: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Subsystem: sub, Name: "step_overlap_efficiency", Help: "1 - exposed time over that of scoring after the rollout: 1 is fully hidden.",
			Buckets: []float64{-1, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1},
		}),
	}
	for _, o := range []rewards.Outcome{
		rewards.Scored, rewards.Failed, rewards.Rejected, rewards.OutcomeExpired, rewards.OutcomeCancelled, rewards.OutcomeWorkerLost,
	} {
		x.outcomes.WithLabelValues(string(o))
	}
	for _, name := range m.rewards {
		x.failures.WithLabelValues(shown(name), "", string(rewards.Expired))
	}
	if reg == nil {
		return x
	}
	gauge := func(name, help string, f func() float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}, f)
	}
	reg.MustRegister(
		newPlaces(m),
		stats.NewGauges(m.latestStats),
		x.outcomes, x.refused, x.clientSamples, x.clientRefused, x.failures, x.stage, x.late, x.retries, x.redelivered, x.republished, x.returned, x.publishErrs, x.forgotten, x.breakers, x.amiss,
		x.backupsSent, x.backupsWon, x.backupSeconds,
		x.stepsShort, x.stepsForgotten, x.stepExposed, x.stepRatio, x.stepOverlap,
		gauge("breakers_open", "Pairs of a worker and a profile of which the worker gets no samples, because it failed them.", func() float64 { return float64(len(m.Breakers())) }),
		gauge("samples_in_flight", "Samples accepted and not answered.", func() float64 { return float64(m.InFlight()) }),
		gauge("held_bytes", "Bytes of all frames held.", func() float64 { h, _ := m.Bytes(); return float64(h) }),
		gauge("step_rows_bytes", "Bytes of the rows of steps that are kept for their trainers.", func() float64 { return float64(m.stepBytes()) }),
		gauge("granted_bytes", "Credit granted and not yet used, in bytes.", func() float64 { _, g := m.Bytes(); return float64(g) }),
	)
	return x
}

// places shows the places of each profile.
type places struct {
	m                  *Manager
	wanted, live, busy *prometheus.Desc
	stopped            *prometheus.Desc
}

var _ prometheus.Collector = (*places)(nil)

func newPlaces(m *Manager) *places {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("rewardloop_"+name, help, []string{"reward"}, nil)
	}
	return &places{
		m:      m,
		wanted: desc("wanted_places", "Places that samples of the profile wait for or have. Above live_places, workers are missing."),
		live:   desc("live_places", "Samples of the profile that all live workers can use at a time."),
		busy:   desc("busy_places", "Places that this gateway's samples of the profile have."),
		stopped: prometheus.NewDesc("rewardloop_reward_stopped",
			"1 while no sample of the reward can be scored or every one fails, 0.5 while nothing has come of its samples for 10 s, else 0. GET /readyz says why.", []string{"reward"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (p *places) Describe(ch chan<- *prometheus.Desc) {
	ch <- p.wanted
	ch <- p.live
	ch <- p.busy
	ch <- p.stopped
}

// Collect implements prometheus.Collector.
func (p *places) Collect(ch chan<- prometheus.Metric) {
	for _, c := range p.m.placeCounts() {
		for desc, n := range map[*prometheus.Desc]int{p.wanted: c.wanted, p.live: c.live, p.busy: c.busy} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), shown(c.profile))
		}
	}
	for _, c := range p.m.Progress() {
		ch <- prometheus.MustNewConstMetric(p.stopped, prometheus.GaugeValue, stoppedValue(c.State), c.Reward)
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

// placeCounts are the places that samples wait for or have, those that there are, and those
// that this gateway's samples have, of each profile that clients may ask for.
func (m *Manager) placeCounts() []placeCount {
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
	list := make([]placeCount, len(out))
	for i, c := range out {
		list[i] = *c
	}
	return list
}

func (m *Manager) stepBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core.book.Bytes()
}
