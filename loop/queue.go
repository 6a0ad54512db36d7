package loop

import (
	"cmp"
	"container/list"
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/loop/step"
)

// This file is about samples that wait for a ticket. Each step has a lane, in which they
// stand in the order in which they came; of a run's lanes the one whose step closes first
// goes first, and of the runs the one that has had the least of its share (core.turn).

// lane is a step's samples on their way: those in the queue, and those that workers have.
type lane struct {
	step  *step.Step
	first time.Time // when the first one was queued
	// queues are those that wait, by profile, so that samples which no live worker can
	// score do not stand before others: in the order in which their profiles came, hardly
	// ever two.
	queues []*profileQueue
	queued int // in all of them
	// running are those without a backup, in the order in which they were claimed; kept
	// where there are backups only.
	running list.List
	backups int // sent
}

// profileQueue is the waiting samples of a step that have the same profile.
type profileQueue struct {
	profile string
	samples ranking[*entry, byArrival]
}

type byArrival struct{}

func (byArrival) before(a, b *entry) bool { return a.order < b.order }
func (byArrival) place(e *entry) *int     { return &e.place }

// maxLanes bounds the lanes of a run whose steps never end.
const maxLanes = 2 * step.Kept

// laneOf returns the lane of a step, making it on first sight.
func (r *run) laneOf(st *step.Step) *lane {
	l := r.lanes[st]
	if l == nil {
		if len(r.lanes) >= maxLanes {
			for old := range r.lanes {
				if old.InFlight() == 0 {
					delete(r.lanes, old)
				}
			}
		}
		l = &lane{step: st}
		r.lanes[st] = l
	}
	return l
}

func (l *lane) of(profile string) *profileQueue {
	for _, q := range l.queues {
		if q.profile == profile {
			return q
		}
	}
	q := &profileQueue{profile: profile}
	l.queues = append(l.queues, q)
	return q
}

func (l *lane) add(e *entry) {
	if l.first.IsZero() {
		l.first = e.arrived
	}
	l.of(e.profile).samples.add(e)
	l.queued++
}

func (l *lane) remove(e *entry) {
	l.of(e.profile).samples.remove(e)
	l.queued--
}

// next is the sample that came first of those with a profile that may go; nil: there is
// none.
func (l *lane) next(may func(profile string) bool) *entry {
	var best *entry
	for _, q := range l.queues {
		if q.samples.Len() == 0 || !may(q.profile) {
			continue
		}
		if e := q.samples.first(); best == nil || e.order < best.order {
			best = e
		}
	}
	return best
}

// start files an entry as the one that was claimed last.
func (l *lane) start(e *entry) {
	l.stop(e)
	e.watched = l.running.PushBack(e)
}

func (l *lane) stop(e *entry) {
	if e.watched != nil {
		l.running.Remove(e.watched)
		e.watched = nil
	}
}

// unrank takes an entry from those that may get a backup.
func (c *core) unrank(e *entry) {
	if e.watched != nil {
		e.run.laneOf(e.step).stop(e)
	}
}

// toCome estimates how many samples of the step are still to come, and how long until
// the last of them is here, at the rate so far.
func (l *lane) toCome(now time.Time) (n int, last time.Duration) {
	st := l.step
	n = st.Expected() - st.Arrived()
	if st.Whole() || n <= 0 || st.Arrived() < 2 {
		return 0, 0
	}
	each := st.Last().Sub(l.first) / time.Duration(st.Arrived()-1)
	return n, max(time.Duration(n)*each-now.Sub(st.Last()), 0)
}

// next is the run's sample that is served next, of those with a profile that may go; nil:
// there is none. The step that closes first goes first, then order of arrival, so that a
// sample that comes back for another attempt goes first.
func (r *run) next(may func(profile string) bool) *entry {
	var best *entry
	for _, l := range r.lanes {
		if l.queued == 0 {
			continue
		}
		if e := l.next(may); e != nil && (best == nil || e.compare(best) < 0) {
			best = e
		}
	}
	return best
}

func (e *entry) compare(o *entry) int {
	return cmp.Or(e.step.Closes().Compare(o.step.Closes()), cmp.Compare(e.order, o.order))
}

// waitingLanes are those with samples in the queue, in the order in which they are served.
func (r *run) waitingLanes() []*lane {
	var out []*lane
	for _, l := range r.lanes {
		if l.queued > 0 {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *lane) int { return a.next(anyProfile).compare(b.next(anyProfile)) })
	return out
}

func anyProfile(string) bool { return true }

// enqueue puts an entry into its run's queue. A run that was idle starts at the
// virtual time of now: idling earns no credit.
func (c *core) enqueue(e *entry) {
	if e.run.queued == 0 {
		e.run.vtime = math.Max(e.run.vtime, c.vnow)
	}
	e.state = queued
	e.run.queued++
	e.run.laneOf(e.step).add(e)
	c.alarms.put(&e.alarm, e.lastCall())
	if _, hopeless := c.hopeless(e.profile); hopeless {
		c.doomed = append(c.doomed, e)
	}
}

// dequeue takes an entry out of its run's queue.
func (c *core) dequeue(e *entry) {
	e.run.queued--
	e.run.laneOf(e.step).remove(e)
}

// serveable reports whether a sample waits for workers that are there.
func (c *core) serveable() bool {
	for _, r := range c.runs {
		if r.queued > 0 && r.next(c.served) != nil {
			return true
		}
	}
	return false
}

// waiting reports whether any sample is queued, or in the engine for some workers only:
// who is there may change without a word.
func (c *core) waiting() bool {
	if len(c.bench.aimed) > 0 {
		return true
	}
	for _, r := range c.runs {
		if r.queued > 0 {
			return true
		}
	}
	return false
}
