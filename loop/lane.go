package loop

import (
	"cmp"
	"container/heap"
	"container/list"
	"slices"
	"time"
)

// lane is a step's samples on their way: those in the queue, and those that workers have.
type lane struct {
	step  *step
	first time.Time // when the first one was queued
	queue laneQueue
	// running are those without a backup, in the order in which they were claimed; kept
	// where there are backups only.
	running list.List
	backups int // sent
}

// maxLanes bounds the lanes of a run whose steps never end.
const maxLanes = 2 * keptSteps

// laneOf returns the lane of a step, making it on first sight.
func (r *run) laneOf(st *step) *lane {
	l := r.lanes[st]
	if l == nil {
		if len(r.lanes) >= maxLanes {
			for old := range r.lanes {
				if old.inflight == 0 {
					delete(r.lanes, old)
				}
			}
		}
		l = &lane{step: st}
		r.lanes[st] = l
	}
	return l
}

func (l *lane) add(e *entry) {
	if l.first.IsZero() {
		l.first = e.arrived
	}
	heap.Push(&l.queue, e)
}

func (l *lane) remove(e *entry) {
	if e.stepIndex >= 0 {
		heap.Remove(&l.queue, e.stepIndex)
	}
}

// start files an entry as the one that was claimed last.
func (l *lane) start(e *entry) {
	l.stop(e)
	e.runs = l.running.PushBack(e)
}

func (l *lane) stop(e *entry) {
	if e.runs != nil {
		l.running.Remove(e.runs)
		e.runs = nil
	}
}

// unrank takes an entry from those that may get a backup.
func (c *core) unrank(e *entry) {
	if e.runs != nil {
		e.run.laneOf(e.step).stop(e)
	}
}

// laneQueue is the queue of one step: samples by their order of arrival.
type laneQueue []*entry

func (q laneQueue) Len() int           { return len(q) }
func (q laneQueue) Less(i, j int) bool { return q[i].order < q[j].order }
func (q laneQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].stepIndex, q[j].stepIndex = i, j
}

// first is the first sample of a profile that may go, of a queue that is not empty; nil:
// there is none.
func (q laneQueue) first(may func(profile string) bool) *entry {
	if may(q[0].profile) {
		return q[0]
	}
	var best *entry
	for _, e := range q { // no worker for the first one: that is seldom
		if may(e.profile) && (best == nil || e.order < best.order) {
			best = e
		}
	}
	return best
}

// Push is for container/heap.
func (q *laneQueue) Push(x any) {
	e, _ := x.(*entry)
	e.stepIndex = len(*q)
	*q = append(*q, e)
}

// Pop is for container/heap.
func (q *laneQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	e.stepIndex = -1
	return e
}

// waitingLanes are those with samples in the queue, the step that closes first first.
func (r *run) waitingLanes() []*lane {
	var out []*lane
	for _, l := range r.lanes {
		if len(l.queue) > 0 {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *lane) int {
		return cmp.Or(a.step.closes.Compare(b.step.closes), cmp.Compare(a.queue[0].order, b.queue[0].order))
	})
	return out
}

// toCome estimates how many samples of the step are still to come, and how long until
// the last of them is here, at the rate so far.
func (l *lane) toCome(now time.Time) (n int, last time.Duration) {
	st := l.step
	n = st.expected - st.arrived
	if st.whole() || n <= 0 || st.arrived < 2 {
		return 0, 0
	}
	each := st.last.Sub(l.first) / time.Duration(st.arrived-1)
	return n, max(time.Duration(n)*each-now.Sub(st.last), 0)
}
