package loop

import (
	"math"
	"time"
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
	c.metrics.outcomes.WithLabelValues(string(res.Outcome)).Inc()
	c.metrics.stage.WithLabelValues("queue").Observe(queue.Seconds())
	c.metrics.stage.WithLabelValues("total").Observe(total.Seconds())
	fx.results = append(fx.results, answer{s, e.owner})
	for _, o := range e.also { // each confirms its own
		fx.results = append(fx.results, answer{newStored(e.key, e.sum, res, now), o})
	}
	if e.examined != nil {
		fx.examined = append(fx.examined, Examined{e.examined, res})
	}
}

func millis(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }
