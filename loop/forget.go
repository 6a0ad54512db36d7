package loop

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file is about what is kept of steps for their trainers, and for how long.

// keptSteps and keptGroups bound what a run remembers for the status page.
const (
	keptSteps  = 64
	keptGroups = 4096
)

// trimSteps forgets the rows of the steps that nobody has touched for longest until the
// rest is within Config.StepBytes; steps with samples in flight go last.
func (c *core) trimSteps() {
	for c.stepBytes > c.cfg.StepBytes {
		var victim *step
		for _, name := range slices.Sorted(maps.Keys(c.runs)) {
			for _, st := range c.runs[name].stepLog {
				if st.assembly == nil || victim != nil && !before(st, victim) {
					continue
				}
				victim = st
			}
		}
		if victim == nil {
			return
		}
		c.forgetStep(victim, fmt.Sprintf("loop.step_bytes = %d is full", c.cfg.StepBytes))
	}
}

// before reports whether a's rows are to be forgotten before b's.
func before(a, b *step) bool {
	if (a.inflight == 0) != (b.inflight == 0) {
		return a.inflight == 0
	}
	return a.assembly.touched.Before(b.assembly.touched)
}

// ageSteps forgets the rows of steps that are over and that nobody has touched for
// Config.StepAge.
func (c *core) ageSteps(now time.Time, r *run) {
	for _, st := range r.stepLog {
		if st.assembly != nil && st.inflight == 0 && now.Sub(st.assembly.touched) > c.cfg.StepAge {
			c.forgetStep(st, fmt.Sprintf("nobody has touched them for loop.step_age = %v", c.cfg.StepAge))
		}
	}
}

// forgetStep drops a step's rows.
func (c *core) forgetStep(st *step, why string) {
	c.alarms.clear(&st.alarm)
	if st.inflight > 0 && st.expected > 0 && !st.closed {
		c.alarms.put(&st.alarm, st.closes) // its deadline stands
	}
	for id := range st.names {
		c.stepBytes -= nameBytes(id)
	}
	st.names = nil
	if st.assembly == nil {
		return
	}
	c.stepBytes -= st.assembly.bytes
	for _, r := range st.assembly.rows {
		if r.entry != nil {
			r.entry.row, r.entry.handout = nil, nil
		}
	}
	st.assembly, st.absent, st.forgotten = nil, nil, why
	c.metrics.stepsForgotten.Inc()
	st.run.progress()
}
