package step

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file is about what is kept of steps for their trainers, and for how long.

// trim forgets the rows of the steps that nobody has touched for longest until the rest is
// within Limits.Bytes; steps with samples in flight go last.
func (b *Book) trim(ev *Events) {
	for b.bytes > b.limits.Bytes {
		var victim *Step
		for _, run := range slices.Sorted(maps.Keys(b.runs)) {
			for _, st := range b.runs[run].log {
				if st.assembly == nil || victim != nil && !before(st, victim) {
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

// before reports whether a's rows are to be forgotten before b's.
func before(a, b *Step) bool {
	if (a.inflight == 0) != (b.inflight == 0) {
		return a.inflight == 0
	}
	return a.assembly.touched.Before(b.assembly.touched)
}

// Age forgets the rows of a run's steps that are over and that nobody has touched for
// Limits.Age.
func (b *Book) Age(now time.Time, run string) Events {
	var ev Events
	for _, st := range b.log(run) {
		if st.assembly != nil && st.inflight == 0 && now.Sub(st.assembly.touched) > b.limits.Age {
			b.forget(st, fmt.Sprintf("nobody has touched them for loop.step_age = %v", b.limits.Age), &ev)
		}
	}
	return ev
}

// Drop ends a run's steps, because it begins anew or is no longer used.
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
		b.bytes -= nameBytes(id)
	}
	st.names = nil
	if st.assembly == nil {
		return
	}
	b.bytes -= st.assembly.bytes
	for _, r := range st.assembly.rows {
		r.flight, r.group = nil, nil
	}
	st.assembly, st.absent, st.forgotten = nil, nil, why
	ev.Forgotten++
	b.progress(st.key.Run)
}
