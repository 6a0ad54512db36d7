package loop

import (
	"container/heap"
	"time"
)

// run is one training run: its queue, its share, and what it remembers. All of it
// is guarded by the manager's mutex.
type run struct {
	name   string
	weight float64
	epoch  uint64

	queue backlog
	// vtime is the slot time the run has had divided by its weight: the run with
	// the smallest is served next. A ticket is charged the run's mean service time
	// when it is published and corrected when its result comes.
	vtime float64
	// mean is the running mean service time of one attempt.
	mean time.Duration
	pace *paces
	// lanes are the steps with samples on their way.
	lanes map[*step]*lane

	inflight int // accepted, not final
	sessions map[sessionID]*Session
	done     *memory
	steps    map[stepKey]*step
	stepLog  []*step // in order of first arrival; bounded
	groups   map[groupKey]*group
	groupLog []*group // in order of first arrival; bounded

	counts  map[string]uint64 // final results by outcome
	lastUse time.Time
	news    chan struct{} // closed when a step has got further; nil: nobody waits
}

// precedes reports whether r is served before o.
func (r *run) precedes(o *run) bool {
	return r.vtime < o.vtime || r.vtime == o.vtime && r.name < o.name
}

// progress tells whoever waits for rewards that there may be more.
func (r *run) progress() {
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

// defaultService is what a run's first tickets are charged before it has a mean.
const defaultService = 100 * time.Millisecond

func (r *run) expected() time.Duration {
	if r.mean == 0 {
		return defaultService
	}
	return r.mean
}

// observe folds one service time into the mean: the plain mean of the first 16,
// then an exponential one that forgets over about 16 samples.
func (r *run) observe(d time.Duration, n uint64) {
	k := time.Duration(min(n+1, 16))
	r.mean += (d - r.mean) / k
}

// before is the order of the samples of one run: the step that closes first, then order
// of arrival, so that a sample that comes back for another attempt goes first.
func (e *entry) before(o *entry) bool {
	if e.step != o.step && !e.step.closes.Equal(o.step.closes) {
		return e.step.closes.Before(o.step.closes)
	}
	return e.order < o.order
}

// runQueue is samples in that order.
type runQueue []*entry

func (q runQueue) Len() int           { return len(q) }
func (q runQueue) Less(i, j int) bool { return q[i].before(q[j]) }

func (q runQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].heapIndex, q[j].heapIndex = i, j
}

// Push is for container/heap.
func (q *runQueue) Push(x any) {
	e, _ := x.(*entry)
	e.heapIndex = len(*q)
	*q = append(*q, e)
}

// Pop is for container/heap.
func (q *runQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	e.heapIndex = -1
	return e
}

// alarm is a moment at which an entry, a group or a step needs a look.
type alarm struct {
	at    time.Time
	entry *entry // or
	group *group // or
	step  *step
	index int // in the heap; -1 outside
}

// alarms orders what needs a look by time.
type alarms []*alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

// Push is for container/heap.
func (a *alarms) Push(x any) {
	e, _ := x.(*alarm)
	e.index = len(*a)
	*a = append(*a, e)
}

// Pop is for container/heap.
func (a *alarms) Pop() any {
	old := *a
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	e.index = -1
	return e
}

// set files the alarm, or moves it.
func (a *alarms) set(al *alarm, at time.Time) {
	al.at = at
	if al.index < 0 {
		heap.Push(a, al)
		return
	}
	heap.Fix(a, al.index)
}

func (a *alarms) clear(al *alarm) {
	if al.index >= 0 {
		heap.Remove(a, al.index)
	}
}
