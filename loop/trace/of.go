// Package trace records the spans of a step (when each sample arrived, was started, scored and
// answered, by which worker and at which attempt), and compares the finished step with the best
// possible one, which internal/sim computes.
package trace

import (
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/step"
)

// Of returns the trace that was recorded of a step. Seconds count from the step's first message or
// sample.
func Of(st *step.Step) Trace {
	k := st.Key()
	t := Trace{
		Servers: max(st.Places(), 1), Run: k.Run, Split: string(k.Split), Step: k.Step, Expected: st.Expected(),
		Spans: []Span{},
	}
	for r := range st.Records() {
		t.Spans = append(t.Spans, span(r, st.First()))
	}
	return t
}

// span is a record with its times as seconds since zero. Clocks of one process do not go
// back, but a time that was rounded could: every stage begins where the last one ended
// or later.
func span(r step.Record, zero time.Time) Span {
	at := func(t time.Time) float64 { return max(t.Sub(zero).Seconds(), 0) }
	s := Span{ID: r.ID, Generated: at(r.Received), UID: r.UID, Outcome: string(r.Outcome), Worker: r.Worker}
	s.Queued = new(at(r.Queued))
	if r.Outcome != "" {
		s.Returned = new(at(r.Returned))
		if !r.Started.IsZero() {
			s.Started, s.Scored = new(at(r.Started)), new(at(r.Scored))
		}
	}
	for _, a := range r.Attempts {
		s.Attempts = append(s.Attempts, sim.Attempt{
			Worker: a.Worker, Started: at(a.Began), Ended: at(a.Ended), Backup: a.Backup, Outcome: a.Outcome,
		})
	}
	for name, ms := range r.Stages {
		if name == "queue" || name == "total" || name == "score" || ms < 0 {
			continue // told by the times
		}
		if s.Stages == nil {
			s.Stages = map[string]float64{}
		}
		s.Stages[strings.TrimSuffix(name, "_ms")] = ms / 1e3
	}
	return s
}
