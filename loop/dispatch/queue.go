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

// Step is a step, as package dispatch uses it.
type Step interface {
	// Closes returns the latest time at which the step ends. The queue is ordered by this time.
	Closes() time.Time
	// Whole reports whether all expected samples of the step have arrived.
	Whole() bool
	// Expected returns the declared number of samples, or 0 if no client has declared it. Arrived
	// returns the number of samples that have arrived, and Last the time of the latest arrival.
	Expected() int
	Arrived() int
	Last() time.Time
	// InFlight returns the number of samples that have arrived and are not answered.
	InFlight() int
}

// Item is the state that dispatch keeps for one sample.
type Item struct {
	// Immutable after NewItem.
	order   uint64
	arrived time.Time
	profile *Profile
	run     *Run
	step    Step

	place      int           // in its queue, from 1; 0: it is not queued
	watched    *list.Element // among those of its step that may get a backup; nil: it is not
	refused    time.Time     // when a free worker was first thought too slow for it
	outage     *outage       // that it is in; nil: it does not wait for a dependency
	backingOff *list.Element // in the outage
	trial      *outage       // whose samples are let go if this one is answered; nil: none
}

// NewItem returns the item of a sample. order is the order of arrival over all runs and profiles.
func NewItem(p *Profile, run *Run, step Step, order uint64, arrived time.Time) Item {
	return Item{order: order, arrived: arrived, profile: p, run: run, step: step}
}

// Queued reports whether the sample is in the queue or backs off.
func (i *Item) Queued() bool { return i.place > 0 || i.outage != nil }

// Profile returns the sample's profile.
func (i *Item) Profile() *Profile { return i.profile }

// Run returns the record of the sample's run in its profile.
func (i *Item) Run() *Run { return i.run }

// Accepted records that a worker has claimed the sample.
func (i *Item) Accepted() { i.refused = time.Time{} }

// queue is the samples of a profile that wait for a ticket. Each step has a step queue, in which
// they stand in the order in which they came; of a run's step queues the one whose step closes
// first goes first, and of the runs the one that has had the least of its share.
type queue struct {
	waiting map[*Run]bool // runs with samples in the queue
	vnow    float64       // virtual time of the run that was served last
}

func newQueue() queue { return queue{waiting: map[*Run]bool{}} }

// add puts a sample into its run's queue. A run that was idle starts at the virtual time of
// now: idling earns no credit.
func (q *queue) add(s Sample) {
	i := s.Item()
	if i.run.queued == 0 {
		i.run.vtime = math.Max(i.run.vtime, q.vnow)
		q.waiting[i.run] = true
	}
	i.run.queued++
	i.run.stepQueueOf(i.step).add(s)
}

// remove takes a sample out of its run's queue.
func (q *queue) remove(s Sample) {
	i := s.Item()
	if i.run.queued--; i.run.queued == 0 {
		delete(q.waiting, i.run)
	}
	i.run.stepQueueOf(i.step).samples.Remove(s)
}

// serve takes a sample out to be published: its run is the one that is served now.
func (q *queue) serve(s Sample) {
	q.remove(s)
	q.vnow = s.Item().run.vtime
}

// turn is the sample that is served next: the first of the run that has had the least of
// its share; nil: no sample waits.
func (q *queue) turn() Sample {
	var least *Run
	for r := range q.waiting {
		if least == nil || r.precedes(least) {
			least = r
		}
	}
	if least == nil {
		return nil
	}
	return least.next()
}

// runs are those with samples in the queue, in the order in which they are served.
func (q *queue) runs() []*Run {
	return slices.SortedFunc(maps.Keys(q.waiting), func(a, b *Run) int {
		if a.precedes(b) {
			return -1
		}
		return 1
	})
}

// share is the part of the places that is the run's among those with samples waiting.
func (q *queue) share(r *Run) float64 {
	sum := 0.0
	if !q.waiting[r] {
		sum = r.weight
	}
	for o := range q.waiting {
		sum += o.weight
	}
	return r.weight / sum
}

// stepQueue is a step's samples of one profile on their way: those in the queue, and those that
// workers have.
type stepQueue struct {
	step    Step
	first   time.Time // arrival of the first one that was queued
	samples ranking.Heap[Sample, byArrival]
	// running are those without a backup, in the order in which they were claimed; kept
	// where there are backups only.
	running list.List
	backups int // sent
}

type byArrival struct{}

func (byArrival) Before(a, b Sample) bool { return a.Item().order < b.Item().order }
func (byArrival) Place(s Sample) *int     { return &s.Item().place }

func (l *stepQueue) add(s Sample) {
	if l.first.IsZero() {
		l.first = s.Item().arrived
	}
	l.samples.Add(s)
}

// next is the sample that came first; nil: there is none.
func (l *stepQueue) next() Sample {
	if l.samples.Len() == 0 {
		return nil
	}
	return l.samples.First()
}

// toCome estimates how many samples of the step are still to come, and how long until
// the last of them is here, at the rate so far.
func (l *stepQueue) toCome(now time.Time) (n int, last time.Duration) {
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
