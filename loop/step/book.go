package step

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Limits are the settings of a Book.
type Limits struct {
	// Timeout is the time to the deadline of a step if its client does not set one.
	Timeout time.Duration
	// OnDeadline selects the rewards of a step at its deadline if its client does not:
	// wire.DeadlineMask, DeadlineShortfall or DeadlineFail.
	OnDeadline string
	// Bytes is the approximate maximum size of the rows and declared ids of all steps.
	Bytes int64
	// Age is the time after which the rows of a step without samples in flight are deleted if they
	// were neither read nor written.
	Age time.Duration
	// Examine is the number of samples of each step that are shown for inspection.
	Examine int
}

// kept bounds the steps that are remembered of a run, those with samples in flight aside.
const kept = 64

// The rows of steps that nobody has asked for, by a word about the step or by fetching: they
// are kept for who fetches late, and not for longer.
const (
	// unaskedAge is how long, once they have their results and a later step has begun.
	unaskedAge = time.Minute
	// unaskedShare is the part of Limits.Bytes that those of one run may take.
	unaskedShare = 8
)

// Book contains the steps of all runs. It is guarded by the gateway's mutex.
type Book struct {
	limits Limits
	runs   map[string]*shelf
	bytes  int64 // of all rows and declared ids
}

// shelf holds the steps of one run.
type shelf struct {
	steps map[Key]*Step
	log   []*Step       // in order of first word or sample
	news  chan struct{} // closed when a step has got further; nil: nobody waits

	bytes   int64 // of all rows and declared ids
	unasked int64 // of those the rows of steps that nobody has asked for
}

// progress tells whoever waits for rewards that there may be more.
func (s *shelf) progress() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// progress tells whoever waits for rewards of the run.
func (b *Book) progress(run string) {
	if s := b.runs[run]; s != nil {
		s.progress()
	}
}

// NewBook returns an empty book.
func NewBook(l Limits) *Book { return &Book{limits: l, runs: map[string]*shelf{}} }

func (b *Book) shelf(run string) *shelf {
	s := b.runs[run]
	if s == nil {
		s = &shelf{steps: map[Key]*Step{}}
		b.runs[run] = s
	}
	return s
}

// Bytes returns the approximate size of the rows and the declared ids of all steps.
func (b *Book) Bytes() int64 { return b.bytes }

// count adds n bytes to those of a step's rows and declared ids. The run is in the book.
func (b *Book) count(st *Step, n int64) {
	s := b.runs[st.key.Run]
	b.bytes += n
	s.bytes += n
	if !st.asked {
		s.unasked += n
	}
}

// ask notes that somebody wants the rewards of a step as a whole.
func (b *Book) ask(st *Step) {
	if !st.asked {
		st.asked = true
		if st.assembly != nil {
			b.runs[st.key.Run].unasked -= st.assembly.bytes
		}
	}
}

// Step returns the step with that key, or nil if the book does not have it.
func (b *Book) Step(k Key) *Step {
	if s := b.runs[k.Run]; s != nil {
		return s.steps[k]
	}
	return nil
}

// Has reports whether st is still in the book.
func (b *Book) Has(st *Step) bool { return b.Step(st.key) == st }

// Steps returns the steps of a run in the order of their first message or sample.
func (b *Book) Steps(run string) iter.Seq[*Step] { return slices.Values(b.log(run)) }

// Newest returns the steps of a run, the latest first.
func (b *Book) Newest(run string) iter.Seq[*Step] {
	return func(yield func(*Step) bool) {
		for _, st := range slices.Backward(b.log(run)) {
			if !yield(st) {
				return
			}
		}
	}
}

func (b *Book) log(run string) []*Step {
	if s := b.runs[run]; s != nil {
		return s.log
	}
	return nil
}

// News returns a channel that is closed when a step of the run has progressed or was forgotten.
func (b *Book) News(run string) <-chan struct{} {
	s := b.shelf(run)
	if s.news == nil {
		s.news = make(chan struct{})
	}
	return s.news
}

// Wake closes the channels of all callers of News.
func (b *Book) Wake() {
	for _, s := range b.runs {
		s.progress()
	}
}

// Open returns the step with that key, and creates it for its first message or sample. If the run
// then has more than 64 steps, the oldest step without samples in flight is dropped.
func (b *Book) Open(now time.Time, k Key) (*Step, Events) {
	var ev Events
	return b.open(now, k, &ev), ev
}

func (b *Book) open(now time.Time, k Key, ev *Events) *Step {
	s := b.shelf(k.Run)
	if st := s.steps[k]; st != nil {
		return st
	}
	st := &Step{key: k, first: now, closes: now.Add(b.limits.Timeout), counts: map[rewards.Outcome]int{}, policy: b.limits.OnDeadline}
	s.steps[k] = st
	s.log = append(s.log, st)
	if len(s.log) > kept {
		for i, old := range s.log {
			if old.inflight == 0 && old != st {
				b.forget(old, fmt.Sprintf("%d later steps have begun", kept), ev)
				ev.Dropped = append(ev.Dropped, old)
				delete(s.steps, old.key)
				s.log = slices.Delete(s.log, i, i+1)
				break
			}
		}
	}
	return st
}

// maxNames bounds the ids that a step may be told of, and the rows that are made at its
// deadline for samples without one.
const maxNames = 1 << 17

// Declare records a client's message about a step: its number of samples, their ids, and its
// deadline. The error wraps rewards.Expired if the deadline of the step has passed, and
// rewards.TooLarge if there are too many ids. The caller must handle the events also when there is
// an error.
func (b *Book) Declare(now time.Time, run string, from Client, msg *wire.Step) (Events, error) {
	var ev Events
	st := b.open(now, KeyOf(run, msg.Split, msg.Step), &ev)
	if st.closed {
		return ev, fmt.Errorf("%w: step %d (%s) ended at its deadline", rewards.Expired, st.key.Step, st.key.Split)
	}
	b.ask(st)
	if err := b.name(st, msg.IDs, &ev); err != nil {
		return ev, err
	}
	if msg.Total {
		st.expected, st.declared = int(msg.Expected), nil
	} else {
		if st.declared == nil {
			st.declared = map[Client]int{}
		}
		st.declared[from] = int(msg.Expected)
		st.expected = 0
		for _, n := range st.declared {
			st.expected += n
		}
	}
	if msg.OnDeadline != "" {
		st.policy = msg.OnDeadline
	}
	if msg.DeadlineMS > 0 {
		st.closes = now.Add(time.Duration(msg.DeadlineMS) * time.Millisecond)
	}
	if st.expected > 0 {
		ev.set(st, st.closes)
	}
	b.heard(st, &ev)
	return ev, nil
}

// name notes the ids of samples that are to come, and their places: whoever comes back
// says again what was said before.
func (b *Book) name(st *Step, ids []string, ev *Events) error {
	fresh := make(map[string]int, len(ids))
	var size int64
	for _, id := range ids {
		_, known := st.names[id]
		if _, again := fresh[id]; !known && !again {
			fresh[id] = len(st.names) + len(fresh)
			size += nameBytes(id)
		}
	}
	if len(st.names)+len(fresh) > maxNames {
		return fmt.Errorf("%w: more than %d ids for step %d (%s)", rewards.TooLarge, maxNames, st.key.Step, st.key.Split)
	}
	b.count(st, size)
	b.trim(ev)
	if b.bytes > b.limits.Bytes {
		b.count(st, -size)
		return fmt.Errorf("%w: the ids of step %d (%s) do not fit into loop.step_bytes = %d with those of other steps: declare the step without ids, or raise loop.step_bytes",
			rewards.TooLarge, st.key.Step, st.key.Split, b.limits.Bytes)
	}
	if st.names == nil && len(fresh) > 0 {
		st.names = make(map[string]int, len(fresh))
	}
	maps.Copy(st.names, fresh)
	return nil
}

// nameBytes is what a declared id costs.
func nameBytes(id string) int64 { return int64(len(id)) + 64 }

// EndStep records a client's message that it sends no more samples of the step.
func (b *Book) EndStep(now time.Time, run string, msg *wire.EndOfStep) Events {
	var ev Events
	st := b.open(now, KeyOf(run, msg.Split, msg.Step), &ev)
	b.ask(st)
	st.ended = true
	if st.inflight > 0 {
		ev.set(st, st.closes)
	}
	b.heard(st, &ev)
	return ev
}

// heard says what is to be done after a word about a step.
func (b *Book) heard(st *Step, ev *Events) {
	ev.Whole = st.arrived > 0 && st.Whole()
	b.noteOver(st, ev)
	b.progress(st.key.Run)
}

// Arrived records an arrived sample. It returns the sample's step, the sample's row if the rewards
// of the step can be fetched as a whole, and events.
func (b *Book) Arrived(now time.Time, k Key, a Arrival) (*Step, *Row, Events) {
	var ev Events
	st := b.open(now, k, &ev)
	st.arrived++
	r := b.assemble(st, a)
	st.inflight++
	came := now
	if !a.Received.IsZero() {
		came = a.Received // as the report of the step has it
	}
	if came.After(st.last) {
		st.last = came
	}
	return st, r, ev
}

// Finished records the final result of a sample of st. bytes is the size of the result without its
// details, and places is the number of live places. r is the sample's row, or nil if the sample has
// none.
func (b *Book) Finished(now time.Time, st *Step, r *Row, res *wire.Result, bytes int64, places int) Events {
	var ev Events
	st.inflight--
	st.counts[res.Outcome]++
	st.finished = now
	st.places = max(st.places, places)
	if a := st.assembly; a != nil && r != nil {
		before := a.bytes
		r.settle(now, res, st.closed)
		a.bytes += bytes
		if a.finish(now, r) {
			b.progress(st.key.Run)
		}
		b.count(st, a.bytes-before)
		b.trim(&ev)
		b.trimUnasked(st.key.Run, &ev)
	}
	b.noteOver(st, &ev)
	return ev
}

// Due must be called at the time of a step's alarm. ends reports whether the deadline ends the
// step: then the samples in flight expire now, no more samples are accepted, and the gateway must
// call Short.
func (b *Book) Due(st *Step) (ends bool, ev Events) {
	ev.clear(st)
	if st.concluded() {
		return false, ev
	}
	st.closed = true
	return true, ev
}

// Short completes a step that its deadline has ended, after all samples in flight have ended.
func (b *Book) Short(now time.Time, st *Step) Events {
	var ev Events
	b.findAbsent(now, st)
	b.noteOver(st, &ev)
	b.trim(&ev)
	b.progress(st.key.Run)
	return ev
}

// noteOver reports the end of a step, once.
func (b *Book) noteOver(st *Step, ev *Events) {
	if st.told || !st.concluded() || st.arrived == 0 && !st.closed {
		return
	}
	st.told = true
	ev.clear(st)
	b.progress(st.key.Run)
	if st.assembly != nil {
		ev.Over = append(ev.Over, st)
	}
}

// Examine counts a sample of st for inspection, and reports whether the sample is one of the first
// Limits.Examine samples.
func (b *Book) Examine(st *Step) bool {
	if st.examined >= b.limits.Examine {
		return false
	}
	st.examined++
	return true
}

// Events are the effects of a change of the book that the gateway must handle.
type Events struct {
	// Alarms are the alarms to set or clear, in this order.
	Alarms []Alarm
	// Whole reports whether all expected samples of the step have arrived.
	Whole bool
	// Over are the steps that have ended and have rows, so that a report can be made.
	Over []*Step
	// Forgotten is the number of steps whose rows were deleted, for any reason.
	Forgotten int
	// Dropped are the steps that the book no longer has.
	Dropped []*Step
}

// Alarm is the time at which Book.Due must be called for a step.
type Alarm struct {
	Step *Step
	At   time.Time // zero: clear the alarm
}

func (ev *Events) set(st *Step, at time.Time) { ev.Alarms = append(ev.Alarms, Alarm{st, at}) }

func (ev *Events) clear(st *Step) { ev.set(st, time.Time{}) }
