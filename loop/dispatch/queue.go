package dispatch

import (
	"cmp"
	"container/list"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/ranking"
)

// Step is what dispatch needs of a step.
type Step interface {
	// Closes is when the step ends at the latest: it orders the queue.
	Closes() time.Time
	// Whole reports whether all that is to come of the step has arrived.
	Whole() bool
	// Expected is the declared number of samples, 0 where nobody has declared it; Arrived is
	// how many have come, and Last when the latest did.
	Expected() int
	Arrived() int
	Last() time.Time
	// InFlight is how many samples have come and are not answered.
	InFlight() int
}

// Item is what dispatch keeps of one sample.
type Item struct {
	// Immutable after New.
	order   uint64
	arrived time.Time
	profile string
	run     *Run
	step    Step

	place   int           // in its queue, from 1; 0: it is not queued
	watched *list.Element // among those of its step that may get a backup; nil: it is not
	refused time.Time     // when a free worker was first thought too slow for it
}

// NewItem makes the item of a sample. Order is that of arrival over all runs.
func NewItem(run *Run, step Step, profile string, order uint64, arrived time.Time) Item {
	return Item{order: order, arrived: arrived, profile: profile, run: run, step: step}
}

// Queued reports whether the sample is in the queue.
func (i *Item) Queued() bool { return i.place > 0 }

// Order is the sample's place in the order of arrival.
func (i *Item) Order() uint64 { return i.order }

// Accepted notes that a worker has claimed the sample.
func (i *Item) Accepted() { i.refused = time.Time{} }

// Queue is the samples that wait for a ticket. Each step has a lane, in which they stand in
// the order in which they came; of a run's lanes the one whose step closes first goes first,
// and of the runs the one that has had the least of its share.
type Queue struct {
	waiting map[*Run]bool // runs with samples in the queue
	vnow    float64       // virtual time of the run that was served last
}

// NewQueue makes an empty queue.
func NewQueue() *Queue { return &Queue{waiting: map[*Run]bool{}} }

// Add puts a sample into its run's queue. A run that was idle starts at the virtual time of
// now: idling earns no credit.
func (q *Queue) Add(s Sample) {
	i := s.Item()
	if i.run.queued == 0 {
		i.run.vtime = math.Max(i.run.vtime, q.vnow)
		q.waiting[i.run] = true
	}
	i.run.queued++
	i.run.laneOf(i.step).add(s)
}

// Remove takes a sample out of its run's queue.
func (q *Queue) Remove(s Sample) {
	i := s.Item()
	if i.run.queued--; i.run.queued == 0 {
		delete(q.waiting, i.run)
	}
	i.run.laneOf(i.step).remove(s)
}

// Serve takes a sample out to be published: its run is the one that is served now.
func (q *Queue) Serve(s Sample) {
	q.Remove(s)
	q.vnow = s.Item().run.vtime
}

// Empty reports whether no sample waits.
func (q *Queue) Empty() bool { return len(q.waiting) == 0 }

// Turn is the sample that is served next: of the runs with samples of a profile that may go,
// the first of the one that has had the least of its share; nil: there is none.
func (q *Queue) Turn(may func(profile string) bool) Sample {
	var best Sample
	for r := range q.waiting {
		if best != nil && !r.precedes(best.Item().run) {
			continue
		}
		if s := r.next(may); s != nil {
			best = s
		}
	}
	return best
}

// Any reports whether a sample waits of a profile that may go.
func (q *Queue) Any(may func(profile string) bool) bool {
	for r := range q.waiting {
		if r.next(may) != nil {
			return true
		}
	}
	return false
}

// runs are those with samples in the queue, in the order in which they are served.
func (q *Queue) runs() []*Run {
	return slices.SortedFunc(maps.Keys(q.waiting), func(a, b *Run) int {
		if a.precedes(b) {
			return -1
		}
		return 1
	})
}

// share is the part of the workers' time that is the run's among those with samples waiting.
func (q *Queue) share(r *Run) float64 {
	sum := 0.0
	if !q.waiting[r] {
		sum = r.weight
	}
	for o := range q.waiting {
		sum += o.weight
	}
	return r.weight / sum
}

// lane is a step's samples on their way: those in the queue, and those that workers have.
type lane struct {
	step  Step
	first time.Time // arrival of the first one that was queued
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
	samples ranking.Heap[Sample, byArrival]
}

type byArrival struct{}

func (byArrival) Before(a, b Sample) bool { return a.Item().order < b.Item().order }
func (byArrival) Place(s Sample) *int     { return &s.Item().place }

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

func (l *lane) add(s Sample) {
	i := s.Item()
	if l.first.IsZero() {
		l.first = i.arrived
	}
	l.of(i.profile).samples.Add(s)
	l.queued++
}

func (l *lane) remove(s Sample) {
	l.of(s.Item().profile).samples.Remove(s)
	l.queued--
}

// next is the sample that came first of those with a profile that may go; nil: there is
// none.
func (l *lane) next(may func(profile string) bool) Sample {
	var best Sample
	for _, q := range l.queues {
		if q.samples.Len() == 0 || !may(q.profile) {
			continue
		}
		if s := q.samples.First(); best == nil || s.Item().order < best.Item().order {
			best = s
		}
	}
	return best
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

// compare orders samples of a run: the step that closes first goes first, then order of
// arrival, so that a sample that comes back for another attempt goes first.
func compare(a, b Sample) int {
	x, y := a.Item(), b.Item()
	return cmp.Or(x.step.Closes().Compare(y.step.Closes()), cmp.Compare(x.order, y.order))
}

func anyProfile(string) bool { return true }
