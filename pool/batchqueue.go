package pool

import (
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
)

const (
	// patience is how much later than another an item may have come and still be
	// served first because its deadline presses.
	patience = time.Second
	// shortestWait is not worth a timer, which is as late as that by itself.
	shortestWait = 100 * time.Microsecond
	// coalesce is the share of the fixed cost that is waited for the rest of a burst
	// while other slots are idle: who comes later would start at once all the same.
	coalesce = 0.1
	// gapMemory is how many gaps between arrivals a batch queue remembers.
	gapMemory = 8
	// probeEvery is after how many batches a batch queue with a long queue tries twice its
	// size, so that a size learned in a bad hour is not kept for ever.
	probeEvery = 64
	// growAfter is how many batches must go well before a batch queue whose device ran out
	// of memory may have one more item in a batch.
	growAfter = 100
)

// account is what a device knows of one model: its batch queues, and what it did. Guarded by the
// device's mutex.
type account struct {
	model infer.Model
	top   int // items a batch may have; 0: the pool's bound

	past Counts // of what belongs to no batch queue, and of batch queues that were forgotten

	residence
}

// batchQueue is the queue of one model's items of one key. Guarded by the device's mutex.
type batchQueue struct {
	account *account
	key     string
	n       int                // its items
	queues  map[*holder]*queue // of the tenants that have some
	turns   *fair.Line[guest]  // the same tenants
	spare   *queue             // one that is empty, for the next tenant
	open    int                // its batches that run or are to be run again
	running int                // its batches that run

	longest float64 // seconds that a batch may take as far as is known; 0: not bounded

	top   int // items a batch may have at most
	limit int // the same, lowered while memory is short
	good  int // batches that went well since limit changed
	fit   fit
	probe int // batches since a size above the learned one was tried

	last    time.Time                // the newest arrival
	gaps    [gapMemory]time.Duration // between arrivals, a ring
	arrived int                      // items that came
	waiting bool                     // a free slot is kept for it
	asked   uint64                   // policy.round when wait was computed
	wait    time.Duration            // how long it should wait for company

	counts Counts
}

// came notes an arrival.
func (l *batchQueue) came(it *item, now time.Time) {
	if l.arrived > 0 {
		l.gaps[(l.arrived-1)%gapMemory] = now.Sub(l.last)
	}
	l.arrived++
	l.last = now
	it.state, it.batchQueue, it.at = queued, l, now
	it.due = now.Add(patience)
	if !it.deadline.IsZero() && it.deadline.Before(it.due) {
		it.due = it.deadline
	}
}

// size is how many items the next batch should have; it may be more than there are.
func (l *batchQueue) size() int {
	b := l.fit.size(l.limit)
	if l.tooLong(b) {
		return max(1, int((l.longest-l.fit.a)/l.fit.c))
	}
	if l.probe >= probeEvery && l.n >= 2*b {
		return min(2*b, l.limit)
	}
	return b
}

// lastBatches is how many batches at most are left of a queue that is made even: a rest is worth
// looking at, the batches of a long queue are not.
const lastBatches = 3

// withRest is size, or a little more where that saves one of the last batches: who is left over would
// pay for a whole one. 412 items at 200 are two batches of 206, not two of 200 and one of 12.
func (l *batchQueue) withRest() int {
	size := l.size()
	fewer := (l.n+size-1)/size - 1
	if fewer < 1 || fewer > lastBatches || !l.fit.settled(size) {
		return size
	}
	part := (l.n + fewer - 1) / fewer
	if part > size+size/3 || part > l.limit || l.tooLong(part) {
		return size
	}
	return part
}

// tooLong says whether a batch is known to take longer than it may.
func (l *batchQueue) tooLong(items int) bool {
	return l.longest > 0 && l.fit.c > 0 && l.fit.seconds(items) > l.longest
}

// frequent says whether at least half of the newest arrivals came within gap of
// the one before.
func (l *batchQueue) frequent(gap time.Duration) bool {
	n := min(l.arrived-1, gapMemory)
	near := 0
	for _, g := range l.gaps[:max(0, n)] {
		if g <= gap {
			near++
		}
	}
	return n > 0 && 2*near >= n
}

// until is when a batch that is not full yet should go all the same; now or
// earlier: at once.
//
// Waiting τ for one more item costs the n that wait n·τ. Not waiting costs the
// newcomer a whole run S(n) if no other slot is idle. So a slot waits for at most
// the gap S(n)/(n+1) after the newest arrival. With another slot idle the newcomer
// would start at once: only the fixed cost is saved, and only the rest of a burst
// is waited for. Where arrivals are seldom that near, nothing is waited for.
func (l *batchQueue) until(now time.Time, window time.Duration, otherIdle bool) time.Time {
	if !l.fit.known() || window <= 0 {
		return now
	}
	gain := l.fit.seconds(l.n) / float64(l.n+1)
	if otherIdle {
		gain = coalesce * l.fit.a
	}
	gap := min(duration(gain), window)
	if gap < shortestWait || !l.frequent(gap) {
		return now
	}
	end := l.last.Add(gap)
	run := duration(l.fit.seconds(l.n + 1))
	for _, q := range l.queues {
		for it := q.head; it != nil; it = it.next {
			end = earlier(end, it.at.Add(window))
			if !it.deadline.IsZero() {
				end = earlier(end, it.deadline.Add(-run))
			}
		}
	}
	return end
}

// old reports whether it has an item that came no later than seq.
func (l *batchQueue) old(seq uint64) bool {
	for _, q := range l.queues {
		if q.head.seq <= seq {
			return true
		}
	}
	return false
}

// short takes in that there was no memory for a batch of b items: half may fit.
func (l *batchQueue) short(b int) {
	l.limit = max(1, min(l.limit, b/2))
	l.good = 0
	l.counts.Splits++
}

// ran takes in that a batch of b items went well in the given time.
func (l *batchQueue) ran(b int, took time.Duration) {
	if l.probe++; b > l.fit.size(l.limit) {
		l.probe = 0
	}
	l.fit.observe(b, took.Seconds())
	if l.good++; l.good >= growAfter && l.limit < l.top {
		l.limit++
		l.good = 0
	}
	l.counts.batch(b)
}

func duration(seconds float64) time.Duration {
	return time.Duration(min(seconds, 1e6) * float64(time.Second)) // 1e6 s: 11 days, far from overflow
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
