package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// Limits of a trace, so that a broken file cannot take the memory; servers and attempts have those
// of package sim.
const (
	maxSpans  = 1 << 20
	maxStages = 64 // of one sample
)

// maxFile is how many bytes of a trace ReadTrace reads at most: a span is about 150, with
// an attempt and stages 400.
const maxFile = 512 << 20

// ErrTrace is wrapped by every error about an invalid trace.
var ErrTrace = errors.New("trace: cannot be measured")

// Trace is the record of one step. All times are seconds on one clock that is 0 when the step (the
// rollout) begins. A recorder on several machines must subtract the offsets of their clocks first.
type Trace struct {
	// Run, Split and Step identify the step. They are empty if unknown, as in a simulation.
	Run   string `json:"run,omitempty"`
	Split string `json:"split,omitempty"`
	Step  int64  `json:"step,omitempty"`
	// Expected is the declared number of samples of the step, or 0 if it was not declared. Samples
	// that never arrived have no span.
	Expected int `json:"expected,omitempty"`
	// Servers is the number of samples that the pool could score at the same time: workers ×
	// places.
	Servers int `json:"servers"`
	// Update is the time that the trainer needs after the last score (log-probabilities, update,
	// weight sync), or 0 if only the reward phase matters.
	Update float64 `json:"update_s,omitempty"`
	// Spans has one span for each sample of the step, in the order of the batch.
	Spans []Span `json:"spans"`
}

// Span contains the times of one sample. Generated ≤ Queued ≤ Started ≤ Scored ≤ Returned. A time
// that was not recorded is nil, never 0.
type Span struct {
	ID string `json:"id"`
	// UID is the prompt group of the sample.
	UID string `json:"uid,omitempty"`
	// Generated is the time at which the rollout of the sample finished.
	Generated float64 `json:"generated_s"`
	// Queued is the time at which the loop had accepted the sample.
	Queued *float64 `json:"queued_s,omitempty"`
	// Started and Scored are the start and the end of the scorer's work in the attempt that
	// counted. Both are nil if the sample never got a score.
	Started *float64 `json:"started_s,omitempty"`
	Scored  *float64 `json:"scored_s,omitempty"`
	// Returned is the time at which the generator's side had the answer. If it is nil, the sample
	// counts as finished at Scored.
	Returned *float64 `json:"returned_s,omitempty"`
	// Service is the scorer's own time, if it is known beforehand (a stub that waits). If it is
	// nil, Scored − Started is used, which includes the delays of a loaded machine, and therefore
	// raises the bound together with the measurement.
	Service *float64 `json:"service_s,omitempty"`
	// Worker is the worker that scored the sample.
	Worker string `json:"worker,omitempty"`
	// Outcome is the outcome of the sample, one of rewards.Outcome.
	Outcome string `json:"outcome,omitempty"`
	// Attempts are the attempts to score the sample, in the order of their start, including the one
	// that counted.
	Attempts []sim.Attempt `json:"attempts,omitempty"`
	// Stages are seconds by name for parts that the times above do not separate: claim (from the
	// offer of the sample to its payload at the worker, the transport), decode, batch_wait, and
	// component/<key> for every reward component. A stage whose name contains a slash is within the
	// scorer's work. A missing stage was not recorded.
	Stages map[string]float64 `json:"stages_s,omitempty"`
}

// HasScore reports whether the sample has a reward. The Outcome of a sample without one is the
// reason, even if the span has times.
func (s Span) HasScore() bool {
	return s.Scored != nil && (s.Outcome == "" || s.Outcome == sim.AttemptWon)
}

// answered says that the trainer's side has an answer, a score or not.
func (s Span) answered() bool { return s.Returned != nil || s.HasScore() }

// finish is when the answer was with the trainer's side.
func (s Span) finish() float64 {
	if s.Returned != nil {
		return *s.Returned
	}
	return *s.Scored
}

// Work returns the service time of an answered span: Service, or else Scored − Started, or else the
// total time of its attempts without backups. It is 0 if there was no attempt.
func (s Span) Work() float64 {
	switch {
	case s.Service != nil:
		return *s.Service
	case s.Scored != nil:
		return *s.Scored - *s.Started
	}
	work := 0.0
	for _, a := range s.Attempts {
		if !a.Backup {
			work += a.Ended - a.Started
		}
	}
	return work
}

// Validate returns an error with all faults of the trace, but at most ten faults of its spans.
func (t Trace) Validate() error {
	var faults []error
	if t.Servers < 1 || t.Servers > sim.MaxServers {
		faults = append(faults, fmt.Errorf("servers is %d, must be 1…%d", t.Servers, sim.MaxServers))
	}
	if !sim.IsTime(t.Update) {
		faults = append(faults, fmt.Errorf("update_s is %v, must be finite and not negative", t.Update))
	}
	if t.Expected < 0 || t.Expected > maxSpans {
		faults = append(faults, fmt.Errorf("expected is %d, must be 0…%d", t.Expected, maxSpans))
	}
	if len(t.Spans) == 0 || len(t.Spans) > maxSpans {
		faults = append(faults, fmt.Errorf("%d spans, must be 1…%d", len(t.Spans), maxSpans))
	}
	seen := make(map[string]bool, len(t.Spans))
	for i, s := range t.Spans {
		if len(faults) >= 10 {
			faults = append(faults, errors.New("further spans not checked"))
			break
		}
		if err := s.validate(); err != nil {
			faults = append(faults, fmt.Errorf("span %d (id %q): %w", i, s.ID, err))
		}
		if seen[s.ID] {
			faults = append(faults, fmt.Errorf("span %d: id %q occurs twice", i, s.ID))
		}
		seen[s.ID] = true
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrTrace, errors.Join(faults...))
}

func (s Span) validate() error {
	if s.ID == "" {
		return errors.New("id is empty")
	}
	if (s.Started == nil) != (s.Scored == nil) {
		return errors.New("started_s and scored_s must both be present or both be absent")
	}
	if s.Returned != nil && s.Scored == nil && (s.Outcome == "" || s.Outcome == sim.AttemptWon) {
		return errors.New("returned_s without scored_s, and no outcome with the reason")
	}
	if s.Service != nil && !sim.IsTime(*s.Service) {
		return fmt.Errorf("service_s is %v, must be finite and not negative", *s.Service)
	}
	if err := s.validateParts(); err != nil {
		return err
	}
	before, name := 0.0, "the start of the step"
	for _, at := range []struct {
		name string
		time *float64
	}{
		{"generated_s", &s.Generated},
		{"queued_s", s.Queued},
		{"started_s", s.Started},
		{"scored_s", s.Scored},
		{"returned_s", s.Returned},
	} {
		if at.time == nil {
			continue
		}
		if !sim.IsTime(*at.time) {
			return fmt.Errorf("%s is %v, must be finite and not negative", at.name, *at.time)
		}
		if *at.time < before {
			return fmt.Errorf("%s is %v, earlier than %s at %v", at.name, *at.time, name, before)
		}
		before, name = *at.time, at.name
	}
	return nil
}

// validateParts checks the attempts and the stages.
func (s Span) validateParts() error {
	if len(s.Attempts) > sim.MaxAttempts {
		return fmt.Errorf("%d attempts, must be at most %d", len(s.Attempts), sim.MaxAttempts)
	}
	for i, a := range s.Attempts {
		if !sim.IsTime(a.Started) || !sim.IsTime(a.Ended) {
			return fmt.Errorf("attempt %d is from %v to %v, must be finite and not negative", i, a.Started, a.Ended)
		}
		if a.Ended < a.Started {
			return fmt.Errorf("attempt %d: ended_s is %v, earlier than started_s at %v", i, a.Ended, a.Started)
		}
	}
	if len(s.Stages) > maxStages {
		return fmt.Errorf("%d stages, must be at most %d", len(s.Stages), maxStages)
	}
	for name, v := range s.Stages {
		if !sim.IsTime(v) {
			return fmt.Errorf("stage %q is %v, must be finite and not negative", name, v)
		}
	}
	return nil
}

// ReadTrace reads a trace that was written as JSON, and validates it. Unknown fields and data after
// the object are errors; a file larger than 512 MiB is an error too.
func ReadTrace(r io.Reader) (Trace, error) {
	var t Trace
	d := json.NewDecoder(io.LimitReader(r, maxFile))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return Trace{}, fmt.Errorf("%w: %w", ErrTrace, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Trace{}, fmt.Errorf("%w: data after the JSON object", ErrTrace)
	}
	if err := t.Validate(); err != nil {
		return Trace{}, err
	}
	return t, nil
}

// Write writes the trace as one JSON object. Times are written so that reading them yields the same
// float64 values. Write validates the trace first.
func (t Trace) Write(w io.Writer) error {
	if err := t.Validate(); err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	if err := e.Encode(t); err != nil {
		return fmt.Errorf("sim: writing the trace: %w", err)
	}
	return nil
}

// FromSchedule returns the trace that a run with the given schedule would have recorded.
func FromSchedule(s sim.Schedule) Trace {
	t := Trace{Servers: s.Servers, Spans: make([]Span, len(s.Released))}
	for i := range t.Spans {
		t.Spans[i] = Span{
			ID:        strconv.Itoa(i),
			Generated: s.Released[i],
			Started:   new(s.Started[i]),
			Scored:    new(s.Finished[i]),
			Worker:    strconv.Itoa(s.Server[i]),
		}
		if s.Attempts != nil {
			t.Spans[i].Attempts = s.Attempts[i]
		}
	}
	return t
}
