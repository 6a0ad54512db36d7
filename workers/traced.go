package workers

import (
	"cmp"
	"time"

	"github.com/rewardloop/rewardloop/internal/timing"
	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about the spans of a worker's part in a sample: its attempt, which is below the one of the gateway, and
// in it the claim, each component, and what the stages know (internal/timing). The methods do nothing on nil, which is
// the trace of a job that is not traced.

// traced is the trace of a job. Its goroutine owns it.
type traced struct {
	tracer  *tracing.Tracer
	parent  tracing.SpanID
	own     tracing.Context
	claimed time.Time
	stages  *timing.Stages
	parts   []rewards.ComponentResult
}

// traced begins the worker's part of a ticket's trace, if it has one.
func (w *Worker) traced(t wire.Ticket) *traced {
	if w.tracer == nil || t.Traceparent == "" {
		return nil
	}
	sample, err := tracing.Parse(t.Traceparent)
	if err != nil || !sample.Traced() {
		return nil
	}
	attempt := sample.Attempt(t.Attempt, w.cfg.ID)
	return &traced{tracer: w.tracer, parent: attempt.Span, own: attempt.Child()}
}

// scores notes that the payload is there, and keeps the times of its stages.
func (t *traced) scores(now time.Time) {
	if t != nil {
		t.claimed = now
	}
}

// watch keeps when the stages of the sample are.
func (t *traced) watch(stages *timing.Stages) {
	if t != nil {
		t.stages = stages
		stages.Keep()
	}
}

// components notes what components have said, those among them that did so in another attempt.
func (t *traced) components(list []rewards.ComponentResult) {
	if t != nil {
		t.parts = list
	}
}

// below makes a span within the worker's.
func (t *traced) below(name string, from, to time.Time) *tracing.Span {
	return &tracing.Span{Context: t.own.Child(), Parent: t.own.Span, Name: name, Kind: tracing.Internal, Start: from, End: to}
}

// end makes the spans of an attempt that is over.
func (t *traced) end(w *Worker, j *job, start time.Time, res *wire.Result) {
	if t == nil {
		return
	}
	now := time.Now()
	t.tracer.End(t.below("claim", start, t.claimed))
	for i := range t.parts {
		c := &t.parts[i]
		if c.Began.Before(t.claimed) { // skipped, or of another attempt
			continue
		}
		s := t.below("component/"+c.Key, c.Began, c.Began.Add(c.Took))
		s.Attributes = append(make([]tracing.Attribute, 0, 4),
			tracing.Text("rewardloop.component", c.Key), tracing.Text("rewardloop.status", string(c.Status)), tracing.Whole("rewardloop.tries", int64(c.Attempts)))
		if c.Class != "" {
			s.Fail(string(c.Class), c.Message)
		}
		t.tracer.End(s)
	}
	if t.stages != nil {
		for _, at := range t.stages.Kept() {
			t.tracer.End(t.below(at.Stage, at.From, at.To))
		}
	}
	outcome := string(res.Outcome)
	if res.Waits != "" {
		outcome = "returned"
	}
	s := &tracing.Span{
		Context: t.own, Parent: t.parent, Name: "score", Kind: tracing.Server, Start: start, End: now,
		Attributes: append(make([]tracing.Attribute, 0, 6),
			tracing.Text("rewardloop.sample.id", j.ticket.ID), tracing.Text("rewardloop.worker", w.cfg.ID), tracing.Text("rewardloop.reward", cmp.Or(j.bay.name, "default")),
			tracing.Text("rewardloop.outcome", outcome)),
	}
	if res.Outcome == rewards.Failed && len(res.Errors) > 0 && res.Partial == nil {
		s.Fail(string(res.Errors[0].Class), res.Errors[0].Message)
	}
	t.tracer.End(s)
}
