package step

import "time"

// Events are what a change of the book means to others.
type Events struct {
	// Alarms are to be set or cleared, in this order.
	Alarms []Alarm
	// Whole says that all that is to come of the step has arrived.
	Whole bool
	// Over are steps that have ended and have rows: there is something to measure.
	Over []*Step
	// Forgotten is how many steps have lost their rows, for whatever reason.
	Forgotten int
	// Dropped are steps that the book no longer has.
	Dropped []*Step
}

// Alarm says when Book.Due is to be called for a step.
type Alarm struct {
	Step *Step
	At   time.Time // zero: it is not
}

func (ev *Events) set(st *Step, at time.Time) { ev.Alarms = append(ev.Alarms, Alarm{st, at}) }

func (ev *Events) clear(st *Step) { ev.set(st, time.Time{}) }
