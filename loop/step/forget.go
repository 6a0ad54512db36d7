package step

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// This file is about what is kept of steps for their trainers, and for how long.

// trim forgets rows until the rest is within Limits.Bytes: those of the run that has most, of
// the step that nobody has touched for longest; steps with samples in flight go last.
func (b *Book) trim(ev *Events) {
	for b.bytes > b.limits.Bytes {
		var victim *Step
		for _, run := range slices.Sorted(maps.Keys(b.runs)) {
			for _, st := range b.runs[run].log {
				if st.assembly == nil || victim != nil && !b.before(st, victim) {
					continue
				}
				victim = st
			}
		}
		if victim == nil {
			return
		}
		b.forget(victim, fmt.Sprintf("loop.step_bytes = %d is full", b.limits.Bytes), ev)
	}
}

// before reports whether x's rows are to be forgotten before y's.
func (b *Book) before(x, y *Step) bool {
	if (x.inflight == 0) != (y.inflight == 0) {
		return x.inflight == 0
	}
	if more, less := b.runs[x.key.Run].bytes, b.runs[y.key.Run].bytes; more != less {
		return more > less
	}
	return x.assembly.touched.Before(y.assembly.touched)
}

// trimUnasked keeps the rows of a run that nobody has asked for within their share.
func (b *Book) trimUnasked(run string, ev *Events) {
	for s := b.runs[run]; s.unasked > b.limits.Bytes/unaskedShare; {
		var victim *Step
		for _, st := range s.log {
			if st.assembly != nil && !st.asked && (victim == nil || b.before(st, victim)) {
				victim = st
			}
		}
		if victim == nil {
			return
		}
		b.forget(victim, fmt.Sprintf("no client has declared or fetched the step, and rows of such steps may use an eighth of loop.step_bytes = %d", b.limits.Bytes), ev)
	}
}

// Age deletes the rows of a run's steps that have no samples in flight and were not read or written
// for Limits.Age. For steps that no client has declared or fetched, the limit is one minute once a
// later step of the split has begun; the samples of the latest step may arrive minutes apart.
func (b *Book) Age(now time.Time, run string) Events {
	var ev Events
	followed := map[rewards.Split]bool{}
	for st := range b.Newest(run) {
		latest := !followed[st.key.Split]
		followed[st.key.Split] = true
		if st.assembly == nil || st.inflight > 0 {
			continue
		}
		switch idle := now.Sub(st.assembly.touched); {
		case idle > b.limits.Age:
			b.forget(st, fmt.Sprintf("no client has read or written the rows for loop.step_age = %v", b.limits.Age), &ev)
		case idle > unaskedAge && !st.asked && !latest:
			b.forget(st, fmt.Sprintf("no client has declared or fetched the step within %v of its last result", unaskedAge), &ev)
		}
	}
	return ev
}

// Drop removes all steps of a run, because the run starts again or is no longer used.
func (b *Book) Drop(run string) Events {
	var ev Events
	s := b.runs[run]
	if s == nil {
		return ev
	}
	for _, st := range s.log {
		b.forget(st, "the run has ended", &ev)
	}
	ev.Dropped = s.log
	s.progress()
	delete(b.runs, run)
	return ev
}

// forget drops a step's rows.
func (b *Book) forget(st *Step, why string, ev *Events) {
	if st.inflight > 0 && st.expected > 0 && !st.closed {
		ev.set(st, st.closes) // its deadline stands
	} else {
		ev.clear(st)
	}
	for id := range st.names {
		b.count(st, -nameBytes(id))
	}
	st.names = nil
	if st.assembly == nil {
		return
	}
	b.count(st, -st.assembly.bytes)
	for _, r := range st.assembly.rows {
		r.flight, r.group = nil, nil
	}
	st.assembly, st.absent, st.forgotten = nil, nil, why
	ev.Forgotten++
	b.progress(st.key.Run)
}
