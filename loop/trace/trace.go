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

// ErrTrace is the class of every refusal of a trace.
var ErrTrace = errors.New("trace: cannot be measured")

// Trace is what a run records of one step. All times are seconds on one clock
// that reads 0 when the step (the rollout) begins; who records on several
// machines subtracts the clocks' offsets first.
type Trace struct {
	// Run, Split and Step say whose step it is; empty where nobody asked, as in a
	// simulation.
	Run   string `json:"run,omitempty"`
	Split string `json:"split,omitempty"`
	Step  int64  `json:"step,omitempty"`
	// Expected is how many samples the step was declared to have; 0 where it was
	// not declared. Those that never arrived have no span.
	Expected int `json:"expected,omitempty"`
	// Servers is how many samples the pool could score at once: workers × places.
	Servers int `json:"servers"`
	// Update is what the trainer needs after the last score (log-probabilities,
	// update, weight sync); 0 where only the reward phase is of interest.
	Update float64 `json:"update_s,omitempty"`
	// Spans holds one entry per sample of the step, in the order of the batch.
	Spans []Span `json:"spans"`
}

// Span is the way of one sample. Generated ≤ Queued ≤ Started ≤ Scored ≤
// Returned; a time that was not recorded is absent (nil), never 0.
type Span struct {
	ID string `json:"id"`
	// UID is the prompt group.
	UID string `json:"uid,omitempty"`
	// Generated is when the rollout of the sample finished.
	Generated float64 `json:"generated_s"`
	// Queued is when the loop had accepted the sample.
	Queued *float64 `json:"queued_s,omitempty"`
	// Started and Scored enclose the scorer's work in the attempt that counted.
	// Both are absent if the sample never got a score.
	Started *float64 `json:"started_s,omitempty"`
	Scored  *float64 `json:"scored_s,omitempty"`
	// Returned is when the generator's side held the answer. Without it the sample
	// counts as finished when it was scored.
	Returned *float64 `json:"returned_s,omitempty"`
	// Service is the scorer's own time where it is known beforehand (a stub that
	// waits). Without it Scored − Started is taken, which also holds whatever a
	// loaded machine added, and so raises the bound along with the measurement.
	Service *float64 `json:"service_s,omitempty"`
	// Worker names where the sample was scored.
	Worker string `json:"worker,omitempty"`
	// Outcome is what became of the sample, in the words of rewards.Outcome.
	Outcome string `json:"outcome,omitempty"`
	// Attempts are the tries to score it, in the order they began, the one that
	// counted among them.
	Attempts []sim.Attempt `json:"attempts,omitempty"`
	// Stages holds seconds by name, parts of the way that the times above do not
	// tell apart: claim (from the offer of the sample to its payload at the worker,
	// the transport), decode, batch_wait, and component/<key> for every reward component. A
	// name with a slash lies within the scorer's work; none is an absent stage.
	Stages map[string]float64 `json:"stages_s,omitempty"`
}

// HasScore says that the sample has a reward. One that was answered without has an
// outcome that says so, whatever times it has.
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

// Work is the service time of a span that was answered: Service, else Scored − Started, else
// what its attempts took, without backups. One that nobody tried has none.
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

// Validate names every fault of the trace, at most ten of its spans'.
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

// ReadTrace reads and checks a trace that was written as JSON. Unknown names and
// anything after the object are errors, and so is a file over 512 MiB.
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

// Write writes the trace as one JSON object. Times are written so that they read
// back to the same bits.
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

// FromSchedule writes a schedule down as a run would have recorded it.
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
