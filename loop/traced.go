package loop

import (
	"iter"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about the spans of a sample for OpenTelemetry: of the sample as a whole, of its waits in the queue and
// of its attempts. A worker adds those of its work, below the attempt's. Each span is made when what it describes is
// over. The methods do nothing on nil, which is the trace of a sample that is not traced.

// traced is the trace of an entry. The manager's mutex guards it, as the entry.
type traced struct {
	tracer *tracing.Tracer
	own    tracing.Context // of the entry's own span
	parent tracing.SpanID
	since  time.Time         // the entry's span begins
	queued time.Time         // it waits in the queue since then; zero: it does not
	links  []tracing.Context // of a group's own entry: its members
	failed string            // likewise: its outcome, if there is none for its members
	errors []rewards.ComponentError
}

// traced begins the trace of a sample, or goes on with its client's.
func (c *core) traced(a *admission, arrived time.Time) *traced {
	if c.tracer == nil || strings.HasPrefix(a.profile, "_") { // the process's own
		return nil
	}
	own, parent := c.tracer.Begin(a.sample.Traceparent)
	if !own.Traced() {
		return nil
	}
	t := &traced{tracer: c.tracer, own: own, parent: parent, since: arrived, queued: arrived}
	if !a.received.IsZero() && a.received.Before(arrived) {
		t.since = a.received
		t.end(&tracing.Span{Context: own.Child(), Parent: own.Span, Name: "receive", Kind: tracing.Internal, Start: a.received, End: arrived})
	}
	return t
}

// tracedGroup begins a trace for the scoring of a whole group, if a member of it is traced.
func (c *core) tracedGroup(now time.Time, members iter.Seq[*entry]) *traced {
	if c.tracer == nil {
		return nil
	}
	var links []tracing.Context
	for e := range members {
		if e.trace != nil {
			links = append(links, e.trace.own)
		}
	}
	if links == nil {
		return nil
	}
	return &traced{tracer: c.tracer, own: tracing.Fresh(), since: now, queued: now, links: links}
}

func (t *traced) end(s *tracing.Span) { t.tracer.End(s) }

// traceparent is what tickets carry.
func (t *traced) traceparent() string {
	if t == nil {
		return ""
	}
	return t.own.String()
}

// waited makes the span of a wait in the queue that is over.
func (t *traced) waited(now time.Time) {
	if t == nil || t.queued.IsZero() {
		return
	}
	t.end(&tracing.Span{Context: t.own.Child(), Parent: t.own.Span, Name: "queue", Kind: tracing.Internal, Start: t.queued, End: now})
	t.queued = time.Time{}
}

// tried makes the span of an attempt that is over.
func (t *traced) tried(a *attempt, now time.Time, outcome string, errs []rewards.ComponentError) {
	if t == nil {
		return
	}
	t.queued = now // unless it is the last
	s := &tracing.Span{
		Context: t.own.Attempt(a.number, a.worker), Parent: t.own.Span, Name: "attempt", Kind: tracing.Client, Start: a.since, End: now,
		Attributes: append(make([]tracing.Attribute, 0, 5),
			tracing.Whole("rewardloop.attempt", int64(a.number)), tracing.Text("rewardloop.worker", a.worker), tracing.Text("rewardloop.outcome", outcome)),
	}
	if a.backup {
		s.Attributes = append(s.Attributes, tracing.Text("rewardloop.backup", "true"))
	}
	switch rewards.Outcome(outcome) {
	case rewards.Failed:
		fail(s, errs, outcome)
	case rewards.OutcomeWorkerLost:
		fail(s, nil, outcome)
	}
	t.end(s)
}

// finished makes the span of a sample that has its result.
func (t *traced) finished(e *entry, now time.Time, res *wire.Result) {
	if t == nil {
		return
	}
	if e.claimed.IsZero() || res.Outcome != rewards.Scored && res.Outcome != rewards.Failed && e.partial == nil {
		t.waited(now) // it ended in the queue
	}
	if !e.waitsSince.IsZero() {
		t.end(&tracing.Span{Context: t.own.Child(), Parent: t.own.Span, Name: "group_wait", Kind: tracing.Internal, Start: e.waitsSince, End: now})
	}
	k := e.step.Key()
	s := &tracing.Span{
		Context: t.own, Parent: t.parent, Name: "sample", Kind: tracing.Server, Start: t.since, End: now,
		Attributes: append(make([]tracing.Attribute, 0, 12),
			tracing.Text("rewardloop.sample.id", e.key.id), tracing.Text("rewardloop.run", e.key.run), tracing.Whole("rewardloop.step", k.Step),
			tracing.Text("rewardloop.split", string(k.Split)), tracing.Text("rewardloop.reward", shown(e.profile)),
			tracing.Text("rewardloop.outcome", string(res.Outcome)), tracing.Whole("rewardloop.attempts", int64(e.claims)),
			tracing.Whole("rewardloop.bytes", e.bytes)),
	}
	if e.group != nil {
		s.Attributes = append(s.Attributes, tracing.Text("rewardloop.uid", e.group.key.uid))
	}
	if res.Worker != "" {
		s.Attributes = append(s.Attributes, tracing.Text("rewardloop.worker", res.Worker))
	}
	if res.RewardScore != nil {
		s.Attributes = append(s.Attributes, tracing.Number("rewardloop.score", *res.RewardScore))
	} else {
		fail(s, res.Errors, string(res.Outcome))
	}
	t.end(s)
}

// fail says in a span why there is no score: the first failure, or the outcome alone.
func fail(s *tracing.Span, errs []rewards.ComponentError, outcome string) {
	if len(errs) == 0 {
		s.Fail(outcome, "")
		return
	}
	s.Fail(string(errs[0].Class), errs[0].Message)
	if errs[0].Component != "" {
		s.Attributes = append(s.Attributes, tracing.Text("rewardloop.component", errs[0].Component))
	}
}

// fail notes why a group as a whole has no result.
func (t *traced) fail(errs []rewards.ComponentError, outcome rewards.Outcome) {
	if t == nil {
		return
	}
	t.failed, t.errors = string(outcome), errs
}

// scored makes the span of a group's scoring.
func (t *traced) scored(unit *entry, now time.Time) {
	if t == nil {
		return
	}
	g := unit.unit
	s := &tracing.Span{
		Context: t.own, Name: "group", Kind: tracing.Server, Start: t.since, End: now, Links: t.links,
		Attributes: []tracing.Attribute{
			tracing.Text("rewardloop.uid", g.key.uid), tracing.Text("rewardloop.run", unit.key.run), tracing.Whole("rewardloop.step", g.key.step.Step),
			tracing.Text("rewardloop.reward", shown(unit.profile)), tracing.Whole("rewardloop.attempts", int64(unit.claims)),
		},
	}
	if t.failed != "" {
		fail(s, t.errors, t.failed)
	}
	t.end(s)
}
