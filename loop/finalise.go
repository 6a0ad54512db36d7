package loop

import (
	"math"
	"time"

	"github.com/rewardloop/rewardloop/loop/failures"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// finalise makes the held or settled result the one final result of the sample.
func (c *core) finalise(now time.Time, e *entry, fx *effects) {
	res := e.result
	e.expects(-1)
	c.move(e, final)
	e.run.inflight--
	e.run.counts[string(res.Outcome)]++
	c.noteResult(now, e, res, fx)
	queue := now.Sub(e.arrived)
	if !e.claimed.IsZero() {
		queue = e.claimed.Sub(e.arrived)
	}
	total := now.Sub(e.arrived)
	if res.TimingMS == nil {
		res.TimingMS = map[string]float64{}
	}
	res.TimingMS["queue"], res.TimingMS["total"] = millis(queue), millis(total)
	res.ExtraInfo["rewardloop/valid"] = res.RewardScore != nil
	res.ExtraInfo["rewardloop/attempts"] = int64(e.claims)
	res.ExtraInfo["rewardloop/queue_ms"] = millis(queue)
	res.ExtraInfo["rewardloop/latency_ms"] = millis(total)
	s := newStored(e.key, e.sum, res, now)
	if e.owner.remembers() {
		e.run.done.add(s)
		c.journal.joined(e) // first: a group that lacks an answered member would wait for it
		c.journal.answered(s)
	}
	if n := e.run.done.trim(&c.cfg, now); n > 0 {
		c.metrics.forgotten.Add(float64(n))
	}
	e.trace.finished(e, now, res)
	c.metrics.outcomes.WithLabelValues(string(res.Outcome)).Inc()
	c.noteFailures(now, e, res, fx)
	c.progressed(now, e.item.Profile(), res)
	c.metrics.stage.WithLabelValues("queue").Observe(queue.Seconds())
	c.metrics.stage.WithLabelValues("total").Observe(total.Seconds())
	fx.results = append(fx.results, answer{s, e.owner, c.noteFinal(now, e, res, fx)})
	for _, o := range e.also { // each confirms its own
		fx.results = append(fx.results, answer{newStored(e.key, e.sum, res, now), o, 0})
	}
	if e.examined != nil {
		fx.examined = append(fx.examined, Examined{e.examined, res})
	}
}

// noteFailures remembers what has failed of a sample, or on the way to its score.
func (c *core) noteFailures(now time.Time, e *entry, res *wire.Result, fx *effects) {
	if len(res.Errors) == 0 || res.Outcome == rewards.OutcomeCancelled {
		return
	}
	for _, err := range res.Errors {
		c.metrics.failures.WithLabelValues(shown(e.profile), err.Component, string(err.Class)).Inc()
	}
	k := e.step.Key()
	fx.failures = append(fx.failures, c.failures.Note(now, shown(e.profile), failures.Sample{
		ID: e.key.id, Run: e.key.run, Step: k.Step, Split: k.Split, Worker: res.Worker, Attempts: e.claims, Outcome: res.Outcome,
	}, res.Errors)...)
}

// Failures returns the recorded failures, the newest first, with similar failures merged into one
// record, and the total number of failures since the gateway started.
func (m *Manager) Failures() ([]failures.Failure, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core.failures.Newest()
}

// tellFailure logs a failure, or how many like it have followed.
func (m *Manager) tellFailure(l failures.Line) {
	s := l.Samples[0]
	what := "a sample failed"
	if s.Outcome == rewards.Scored {
		what = "a component failed, and its sample has a score without it"
	}
	with := []any{
		"sample_id", s.ID, "run", s.Run, "step", s.Step, "split", s.Split, "reward", l.Reward, "component", l.Component,
		"class", l.Class, "blame", l.Blame, "reason", l.Message, "worker", s.Worker, "attempts", s.Attempts, "outcome", s.Outcome,
	}
	if l.Since > 1 {
		with = append(with, "alike_since_last_said", l.Since, "alike", l.Count)
	}
	m.log.Warn(what, with...)
}

func millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }
