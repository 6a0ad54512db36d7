package loop

import (
	"fmt"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/rewards"
)

// Trace returns what was recorded of a step: when every sample arrived, began to be
// scored, was scored and answered, by whom and at which attempt. Seconds count from the
// step's first word or sample. Epoch 0 means the run's current one. The error is that
// of Rewards.
func (m *Manager) Trace(run string, split rewards.Split, n int64) (sim.Trace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, err := m.known(run, split, n)
	if err != nil {
		return sim.Trace{}, err
	}
	return st.trace(run), nil
}

// known finds a step; one whose rows were dropped comes with an error. The caller holds
// the mutex.
func (m *Manager) known(run string, split rewards.Split, n int64) (*step, error) {
	r := m.core.runs[run]
	if r == nil {
		return nil, unknownRun(run)
	}
	key := keyOfStep(split, n)
	st := r.steps[key]
	switch {
	case st == nil:
		return nil, fmt.Errorf("%w: %w: step %d (%s) of run %q", rewards.Malformed, ErrUnknown, n, key.split, run)
	case st.forgotten != "":
		return st, fmt.Errorf("%w: the rows of step %d (%s) were dropped: %s", rewards.Expired, n, key.split, st.forgotten)
	}
	return st, nil
}

func (st *step) trace(run string) sim.Trace {
	t := sim.Trace{
		Servers: max(st.slots, 1), Run: run, Split: string(st.key.split), Step: st.key.step, Expected: st.expected,
		Spans: []sim.Span{},
	}
	if st.assembly == nil {
		return t
	}
	for _, r := range st.assembly.rows {
		t.Spans = append(t.Spans, r.span(st.first))
	}
	return t
}

// span is the row with its times as seconds since zero. Clocks of one process do not go
// back, but a time that was rounded could: every stage begins where the last one ended
// or later.
func (r *row) span(zero time.Time) sim.Span {
	at := func(t time.Time) float64 { return max(t.Sub(zero).Seconds(), 0) }
	s := sim.Span{ID: r.id, Generated: at(r.received), UID: r.uid, Outcome: string(r.outcome), Worker: r.worker}
	s.Queued = new(at(r.queued))
	if !r.started.IsZero() && r.final() {
		s.Started, s.Scored = new(at(r.started)), new(at(r.scored))
		s.Returned = new(at(r.returned))
	}
	for _, a := range r.attempts {
		s.Attempts = append(s.Attempts, sim.Attempt{
			Worker: a.worker, Started: at(a.began), Ended: at(a.ended), Backup: a.backup, Outcome: a.outcome,
		})
	}
	for name, ms := range r.stages {
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

// report measures a step that is over, for the metrics and for whoever looks.
func (m *Manager) report(st *step) {
	m.mu.Lock()
	t := st.trace(st.run.name)
	m.mu.Unlock()
	rep, err := sim.Measure(t) // milliseconds for thousands of samples
	if err != nil {
		return // not one sample was scored: there is nothing to measure
	}
	m.metrics.stepExposed.Observe(rep.Exposed)
	if rep.OverIdeal != nil {
		m.metrics.stepRatio.Observe(*rep.OverIdeal)
	}
	if rep.Efficiency != nil {
		m.metrics.stepOverlap.Observe(*rep.Efficiency)
	}
	m.mu.Lock()
	st.report = &rep
	m.mu.Unlock()
}
