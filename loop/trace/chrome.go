package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// The tracks of a drawn trace. The rollout's come first.
const (
	rolloutProcess = 1
	workersProcess = 2
	generatedTrack = 1
)

// maxDrawn is the latest time that can be drawn, in seconds (292 years): the
// format's readers count nanoseconds in 64 bits.
const maxDrawn = math.MaxInt64 / 1e9

// chromeEvent is one entry of the Chrome trace-event format. Times are µs.
type chromeEvent struct {
	Name string `json:"name"`
	// Phase is X for a span with a duration, i for an instant, b and e for the ends
	// of a span that may overlap others of its track, C for counters, M for names.
	Phase    string         `json:"ph"`
	Category string         `json:"cat,omitempty"`
	ID       string         `json:"id,omitempty"`
	TS       micros         `json:"ts"`
	Duration *micros        `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Track    int            `json:"tid"`
	Scope    string         `json:"s,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// micros is a time in nanoseconds that is written in µs, exactly.
type micros int64

// MarshalJSON writes whole µs and three digits of nanoseconds.
func (m micros) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%03d", m/1000, m%1000), nil
}

func nanos(seconds float64) micros { return micros(math.Round(seconds * 1e9)) }

// WriteChrome writes the trace in the trace-event format of ui.perfetto.dev and chrome://tracing.
// Process "rollout" has an instant for every generated sample, a span for its time in the queue,
// and counters of the samples queued and in flight. Process "workers" has one track for each
// worker, or as many as the worker's overlapping spans need; each span is on the first free track.
// A sample with Attempts has a span for each attempt.
func (t Trace) WriteChrome(w io.Writer) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if last := t.last(); last > maxDrawn {
		return fmt.Errorf("%w: a trace of %v s cannot be drawn, want at most %v s", ErrTrace, last, maxDrawn)
	}
	out := &chromeWriter{w: bufio.NewWriter(w)}
	out.text(`{"displayTimeUnit":"ms","traceEvents":[`)
	out.name("process_name", rolloutProcess, 0, "rollout")
	out.name("process_name", workersProcess, 0, "workers")
	out.name("thread_name", rolloutProcess, generatedTrack, "generated")
	for i, s := range t.Spans {
		out.rollout(i, s)
	}
	out.workers(t.Spans)
	out.counters(t.Spans)
	out.text("\n]}\n")
	if out.err == nil {
		out.err = out.w.Flush()
	}
	if out.err != nil {
		return fmt.Errorf("sim: drawing the trace: %w", out.err)
	}
	return nil
}

// last is the latest time in the trace.
func (t Trace) last() float64 {
	last := 0.0
	for _, s := range t.Spans {
		last = max(last, s.Generated)
		for _, at := range []*float64{s.Queued, s.Scored, s.Returned} {
			if at != nil {
				last = max(last, *at)
			}
		}
		for _, a := range s.Attempts {
			last = max(last, a.Ended)
		}
	}
	return last
}

// chromeWriter writes events and keeps the first error.
type chromeWriter struct {
	w    *bufio.Writer
	some bool // an event was written
	err  error
}

func (c *chromeWriter) text(s string) {
	if c.err == nil {
		_, c.err = c.w.WriteString(s)
	}
}

func (c *chromeWriter) event(e chromeEvent) {
	if c.err != nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		c.err = err
		return
	}
	if c.some {
		c.text(",")
	}
	c.some = true
	c.text("\n")
	c.text(string(b))
}

func (c *chromeWriter) name(kind string, process, track int, name string) {
	c.event(chromeEvent{Name: kind, Phase: "M", Process: process, Track: track, Args: map[string]any{"name": name}})
}

// rollout draws when a sample was generated and how long it was queued.
func (c *chromeWriter) rollout(i int, s Span) {
	args := map[string]any{}
	if s.UID != "" {
		args["uid"] = s.UID
	}
	if s.Outcome != "" {
		args["outcome"] = s.Outcome
	}
	e := chromeEvent{Name: s.ID, Phase: "i", Scope: "t", TS: nanos(s.Generated), Process: rolloutProcess, Track: generatedTrack, Args: args}
	c.event(e)
	if s.Started == nil {
		return
	}
	e = chromeEvent{Name: s.ID, Phase: "b", Category: "queue", ID: strconv.Itoa(i), TS: nanos(s.ready()), Process: rolloutProcess}
	c.event(e)
	e.Phase, e.TS = "e", nanos(*s.Started)
	c.event(e)
}

// ready is when the sample could have been started.
func (s Span) ready() float64 {
	if s.Queued != nil {
		return *s.Queued
	}
	return s.Generated
}

// drawn is one attempt with its sample.
type drawn struct {
	sim.Attempt
	span *Span
}

// workers draws what each worker did.
func (c *chromeWriter) workers(spans []Span) {
	byWorker := make(map[string][]drawn)
	for i := range spans {
		s := &spans[i]
		for _, a := range s.Attempts {
			byWorker[a.Worker] = append(byWorker[a.Worker], drawn{a, s})
		}
		if len(s.Attempts) == 0 && s.Started != nil {
			a := sim.Attempt{Worker: s.Worker, Started: *s.Started, Ended: *s.Scored, Outcome: s.Outcome}
			byWorker[a.Worker] = append(byWorker[a.Worker], drawn{a, s})
		}
	}
	names := make([]string, 0, len(byWorker))
	for name := range byWorker {
		names = append(names, name)
	}
	slices.SortFunc(names, byNumber)
	track := 0
	for _, name := range names {
		ends := c.tracks(byWorker[name], track)
		for row := range ends {
			label := cmp.Or(name, "(not named)")
			if len(ends) > 1 {
				label += " #" + strconv.Itoa(row+1)
			}
			c.name("thread_name", workersProcess, track+row+1, label)
		}
		track += len(ends)
	}
}

// byNumber sorts w2 before w10.
func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// tracks draws the attempts of one worker on the tracks after the given one, each
// on the first that is free, and returns when each track's last ends.
func (c *chromeWriter) tracks(all []drawn, track int) (ends []micros) {
	slices.SortStableFunc(all, func(a, b drawn) int {
		return cmp.Or(cmp.Compare(nanos(a.Started), nanos(b.Started)), cmp.Compare(nanos(a.Ended), nanos(b.Ended)))
	})
	for _, d := range all {
		start, end := nanos(d.Started), nanos(d.Ended)
		row := slices.IndexFunc(ends, func(free micros) bool { return free <= start })
		if row < 0 {
			row = len(ends)
			ends = append(ends, 0)
		}
		ends[row] = end
		c.event(chromeEvent{
			Name: d.span.ID, Phase: "X", Category: "score", TS: start, Duration: new(end - start),
			Process: workersProcess, Track: track + row + 1, Args: d.args(),
		})
	}
	return ends
}

func (d drawn) args() map[string]any {
	args := map[string]any{}
	if d.span.UID != "" {
		args["uid"] = d.span.UID
	}
	if d.Outcome != "" {
		args["outcome"] = d.Outcome
	}
	if d.Backup {
		args["backup"] = true
	}
	if len(d.span.Stages) > 0 {
		args["stages_s"] = d.span.Stages
	}
	return args
}

// counters draws how many samples were queued and in flight at each moment. A
// sample that was never started is in neither.
func (c *chromeWriter) counters(spans []Span) {
	type change struct {
		at               micros
		queued, inFlight int
	}
	var changes []change
	for _, s := range spans {
		if s.Started != nil {
			changes = append(changes, change{nanos(s.ready()), 1, 0}, change{nanos(*s.Started), -1, 1}, change{nanos(*s.Scored), 0, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	queued, inFlight := 0, 0
	for i, ch := range changes {
		queued += ch.queued
		inFlight += ch.inFlight
		if i+1 < len(changes) && changes[i+1].at == ch.at {
			continue
		}
		c.event(chromeEvent{Name: "samples", Phase: "C", TS: ch.at, Process: rolloutProcess, Args: map[string]any{"queued": queued, "in flight": inFlight}})
	}
}
