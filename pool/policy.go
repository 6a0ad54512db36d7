package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
)

const (
	// maxBatchQueues is how many batch queues a device remembers. Beyond it the one without work
	// that had an item longest ago is forgotten, with what it measured. BatchQueues with
	// work are bounded by the items there are.
	maxBatchQueues = 256
	// closing is how long a flush holds. Of the step's last samples, some are still
	// being decoded when it comes, or are in the model before this one.
	closing = time.Second
	// debt is how many seconds of the device a tenant's model may have had more than its
	// others: a first batch that took a minute to warm up is not held against it for
	// a minute.
	debt = 10
)

// policy decides which items of a device run together and when. It has no
// goroutine, no lock and no clock: the device owns it, calls it under its mutex
// and tells it the time.
type policy struct {
	cfg         Config
	device      string // its name
	slots       int    // of the device; 0: it is not open
	batchQueues map[batchQueueKey]*batchQueue
	runs        []*batch // that were handed out

	book    fair.Book[guest]  // what the tenants have had of the device
	turns   *fair.Line[guest] // those with something to run
	outside *fair.Line[guest] // those with items for which there is no room yet
	ingress *fair.Line[guest] // those with visits that wait

	items, bytes int     // in batch queues
	full         int     // items for which there is no room
	atIngress    int     // visits that wait
	inside       int     // visits that make something ready, or wait for what it came to
	worth        int     // items of the largest batch that a batch queue may be about to make
	seq          uint64  // of the newest item
	round        uint64  // of choosing
	eager        bool    // sizes are trusted at their first batch, see fit.eager
	longest      float64 // seconds that a batch may be expected to take; 0: not bounded
	flushed      uint64  // items up to this seq wait for no company,
	flushedUntil time.Time
}

type batchQueueKey struct {
	account *account
	key     string
}

func newPolicy(cfg Config, device string) *policy {
	p := &policy{cfg: cfg, device: device, batchQueues: make(map[batchQueueKey]*batchQueue), worth: 1}
	p.turns, p.outside, p.ingress = fair.NewLine(&p.book), fair.NewLine(&p.book), fair.NewLine(&p.book)
	return p
}

// add takes an item in: into its batch queue, or to those that wait for room.
func (p *policy) add(it *item, now time.Time) {
	p.seq++
	it.seq = p.seq
	it.holder = p.book.Hold(it.tenant, now)
	if p.full == 0 && p.room(it) {
		p.admit(it, now)
		return
	}
	g := &it.holder.Data
	if g.outside.push(it); !g.entry.Taken() {
		p.outside.Add(&g.entry, it.holder, now)
	}
	p.full++
}

// enter takes an item out of those that wait for room.
func (p *policy) enter(it *item) {
	g := &it.holder.Data
	if g.outside.remove(it); g.outside.n == 0 {
		p.outside.Remove(&g.entry)
	}
	p.full--
}

// room says whether an item may be queued. One that is larger than the bound by
// itself may when nothing else is.
func (p *policy) room(it *item) bool {
	return p.items == 0 || p.items < p.cfg.QueueItems && p.bytes+it.bytes <= p.cfg.QueueBytes
}

func (p *policy) admit(it *item, now time.Time) {
	l := p.batchQueue(it)
	l.came(it, now)
	it.queue = p.queue(l, it.holder, now)
	it.queue.insertDue(it)
	l.n++
	p.items++
	p.bytes += it.bytes
}

// refill admits who waits for room: of the tenant that has had least of the device, in the
// order they came.
func (p *policy) refill(now time.Time) {
	for p.full > 0 {
		it := p.outside.First(0, now).Data.outside.head
		if !p.room(it) {
			return
		}
		p.enter(it)
		p.admit(it, now)
	}
}

// batchQueue finds or makes the batch queue of an item.
func (p *policy) batchQueue(it *item) *batchQueue {
	k := batchQueueKey{it.account, it.key}
	if l := p.batchQueues[k]; l != nil {
		return l
	}
	if len(p.batchQueues) >= maxBatchQueues {
		p.forget()
	}
	top := p.cfg.MaxBatch
	if it.account.top > 0 {
		top = min(top, it.account.top)
	}
	if it.req.Whole {
		top = 1
	}
	if it.bytes > 0 && it.req.Message == nil { // all items of a batch queue are of the same size
		top = min(top, max(1, p.cfg.BatchBytes/it.bytes))
	}
	l := &batchQueue{
		account: it.account, key: it.key, top: top, limit: top, queues: make(map[*holder]*queue, 1), turns: fair.NewLine(&p.book),
	}
	l.fit.eager, l.longest = p.eager, p.longest
	p.batchQueues[k] = l
	return l
}

// forget drops the batch queue without work whose last item came first. Its totals stay
// with its model.
func (p *policy) forget() {
	var oldest *batchQueue
	for _, l := range p.batchQueues {
		if l.n == 0 && l.open == 0 && (oldest == nil || l.last.Before(oldest.last)) {
			oldest = l
		}
	}
	if oldest != nil {
		oldest.account.past.add(oldest.counts)
		delete(p.batchQueues, batchQueueKey{oldest.account, oldest.key})
	}
}

// leave takes an item out of its batch queue.
func (p *policy) leave(it *item) {
	q := it.queue
	l := q.batchQueue
	it.queue = nil
	q.remove(it)
	l.n--
	p.items--
	p.bytes -= it.bytes
	if l.n == 0 {
		l.waiting = false
	}
	if q.n == 0 {
		p.empty(q)
	}
}

// cancel gives up an item whose caller has left, wherever it is. A batch that runs
// for nobody any more is ended.
func (p *policy) cancel(it *item, err error, now time.Time) {
	switch it.state {
	case settled:
		return
	case running:
		b := it.batch
		if b.live--; b.live == 0 && b.cancel != nil {
			b.cancel()
		}
	default:
		p.withdraw(it)
	}
	p.counts(it).Left++
	p.give(it, nil, err)
	p.refill(now)
}

// withdraw takes out an item that waits, wherever it does.
func (p *policy) withdraw(it *item) {
	switch it.state {
	case outside:
		p.enter(it)
	case queued:
		p.leave(it)
	case parked:
		it.batch.live--
	}
}

// give settles an item. Its tenant's account is let go when it is in no batch that runs.
func (p *policy) give(it *item, out []infer.Tensor, err error) {
	runs := it.state == running
	if it.answer(out, err); !runs {
		p.book.Drop(it.holder)
	}
}

// counts is where an item is counted.
func (p *policy) counts(it *item) *Counts {
	if it.batchQueue == nil {
		return &it.account.past
	}
	return &it.batchQueue.counts
}

// flush lets nothing wait for company that is queued now or comes soon.
func (p *policy) flush(now time.Time) {
	p.flushed, p.flushedUntil = p.seq, now.Add(closing)
}

// closes says whether a batch queue belongs to the end of a step.
func (p *policy) closes(l *batchQueue, now time.Time) bool {
	return now.Before(p.flushedUntil) || l.old(p.flushed)
}

// next makes the batch that one of idle (1 or more) free slots should run now.
// With none it says how long to wait before asking again; negative: until
// something happens. Items whose deadline has passed are answered on the way.
func (p *policy) next(now time.Time, idle int) (*batch, time.Duration) {
	for {
		x, q, wait := p.choose(now, idle)
		if x == nil {
			p.countWaits()
			return nil, wait
		}
		p.book.Turn(x.holder, now)
		x.holder.Data.clock = max(x.holder.Data.clock, x.used)
		var b *batch
		if q == nil {
			b = p.again(x, now)
		} else {
			b = p.take(q, p.share(q.batchQueue, now, idle), now)
		}
		p.refill(now)
		if b == nil {
			continue // nobody waits for any of it: it is out, there is less to choose from
		}
		each := b.batchQueue.fit.seconds(len(b.items)) / float64(len(b.items))
		for _, it := range b.items {
			it.charged = each
			p.part(it.holder, it.account).used += each
		}
		return b, 0
	}
}

// choose finds who is served next: of the tenants with something to run, the one that has
// had least of the device by its weight; of its models the one that has had least; and of that
// what is to be run again (no queue), or the queue whose first item is due earliest. BatchQueues that
// wait for company are passed over while that costs them nothing: the last free slot goes to
// whose turn it is. Otherwise a wait of milliseconds would cost them the run of another.
func (p *policy) choose(now time.Time, idle int) (*part, *queue, time.Duration) {
	x, q, wait := p.fairest(now, idle, true)
	if x != nil && wait > 0 && idle == 1 {
		x, q, _ = p.fairest(now, idle, false)
	}
	return x, q, wait
}

// fairest is choose among those that need not wait, if waits are kept, or else
// among all. It returns the shortest of the waits that were kept, else -1.
func (p *policy) fairest(now time.Time, idle int, waits bool) (best *part, turn *queue, shortest time.Duration) {
	p.round++
	if p.turns.Len() == 1 { // as mostly
		return p.fairestOf(&p.turns.First(p.slots, now).Data, now, idle, waits)
	}
	shortest = -1
	for h := range p.turns.InTurn(p.slots, now) {
		var wait time.Duration
		best, turn, wait = p.fairestOf(&h.Data, now, idle, waits)
		if wait >= 0 && (shortest < 0 || wait < shortest) {
			shortest = wait
		}
		if best != nil {
			break
		}
	}
	return best, turn, shortest
}

// fairestOf is fairest among the models and batch queues of a tenant.
func (p *policy) fairestOf(g *guest, now time.Time, idle int, waits bool) (best *part, turn *queue, wait time.Duration) {
	var due time.Time
	wait = -1
	better := func(x *part, at time.Time) bool {
		return best == nil || x.used < best.used || !(x.used > best.used) && at.Before(due)
	}
	for _, x := range g.active {
		if len(x.redo) > 0 {
			if at := x.redo[0].items[0].due; better(x, at) {
				best, turn, due = x, nil, at
			}
			continue
		}
		for _, q := range x.ready {
			if w := p.wait(q.batchQueue, now, idle); waits && w > 0 {
				if wait < 0 || w < wait {
					wait = w
				}
			} else if better(x, q.head.due) {
				best, turn, due = x, q, q.head.due
			}
		}
	}
	return best, turn, wait
}

// countWaits counts the batch queues that a slot is kept idle for, now that there is
// nothing else to run, each once until it is served.
func (p *policy) countWaits() {
	for _, l := range p.batchQueues {
		if l.n > 0 && !l.waiting {
			l.waiting = true
			l.counts.Waits++
		}
	}
}

// wait is how long a batch queue should wait for more items; 0 or less: not at all. It is computed
// once in each round, for all tenants.
func (p *policy) wait(l *batchQueue, now time.Time, idle int) time.Duration {
	if l.asked != p.round {
		l.asked, l.wait = p.round, 0
		if l.n < l.size() && !p.closes(l, now) {
			l.wait = l.until(now, p.cfg.MaxWait, idle > 1).Sub(now)
		}
	}
	return l.wait
}

// share is how many items of a batch queue go into its next batch: the size that is big enough, or
// up to a third more where that saves a batch. What is queued is split over the idle slots, because k batches of q/k end after a + c·q/k and one
// of q ends after a + c·q. At the end of a step nothing else counts. Before it, no
// batch is made smaller than the fixed cost is worth, because every batch more
// costs its a of the time of slots that others may need in a moment.
func (p *policy) share(l *batchQueue, now time.Time, idle int) int {
	size := l.withRest()
	slots := max(1, (2*idle*l.n+p.items)/(2*p.items)) // the batch queue's part of them, rounded
	part := (l.n + slots - 1) / slots
	if !p.closes(l, now) {
		part = max(part, l.fit.even(size))
	}
	return min(part, size)
}

// again hands out the first batch of a tenant's model to be run again; nil if nobody waits for
// it any more.
func (p *policy) again(x *part, now time.Time) *batch {
	b := x.redo[0]
	x.redo = slices.Delete(x.redo, 0, 1)
	p.settle(x)
	items := b.items[:0]
	n := len(b.items)
	for _, it := range b.items {
		if it.state == parked && !p.expired(it, now) {
			items = append(items, it)
			p.charge(it, n, now)
		}
	}
	b.items = items
	p.book.Drop(x.holder) // of the batch
	return p.handOut(b, now)
}

// take makes a batch of n items of a queue's batch queue, or of as many as have BatchBytes: the
// queue's first item, and then of the tenant that has had least, those of the batch counted; nil if
// all had expired.
func (p *policy) take(q *queue, n int, now time.Time) *batch {
	l := q.batchQueue
	b := &batch{batchQueue: l, items: make([]*item, 0, n)}
	l.waiting = false
	l.open++
	for bytes := 0; len(b.items) < n; q = l.queues[l.turns.First(0, now)] {
		it := q.head
		if bytes += it.bytes; bytes > p.cfg.BatchBytes && len(b.items) > 0 {
			break
		}
		p.leave(it)
		l.counts.Queue += now.Sub(it.at)
		if !p.expired(it, now) {
			b.items = append(b.items, it)
			p.charge(it, n, now)
		}
		if l.n == 0 {
			break
		}
	}
	return p.handOut(b, now)
}

// unknown is what a batch is taken to cost before any was measured, in seconds: enough that
// tenants take turns.
const unknown = 1e-3

// charge charges an item's tenant for its part of a batch of n, in advance.
func (p *policy) charge(it *item, n int, now time.Time) {
	share := 1 / float64(n)
	it.use = p.book.Begin(it.holder, share, share*max(it.batchQueue.fit.seconds(n), unknown), now)
}

// expired answers an item whose deadline has passed; its caller may not have
// noticed yet.
func (p *policy) expired(it *item, now time.Time) bool {
	if it.deadline.IsZero() || now.Before(it.deadline) {
		return false
	}
	p.counts(it).Expired++
	p.give(it, nil, it.late(fmt.Errorf("%w: %w while the item waited in the queue", infer.ErrTimeout, context.DeadlineExceeded)))
	return true
}

// handOut marks what runs.
func (p *policy) handOut(b *batch, now time.Time) *batch {
	if len(b.items) == 0 {
		b.batchQueue.open--
		return nil
	}
	b.live, b.reading = len(b.items), true
	b.batchQueue.running++
	b.cost = duration(max(b.batchQueue.fit.seconds(len(b.items)), unknown))
	b.begin(now)
	p.runs = append(p.runs, b)
	for _, it := range b.items {
		it.state, it.batch = running, b
	}
	return b
}

// clear answers everything that does not run with err.
func (p *policy) clear(err error, now time.Time) {
	refuse := func(it *item) {
		p.counts(it).Failed++
		p.give(it, nil, err)
	}
	for p.full > 0 { // first, or they would be admitted
		it := p.outside.First(0, now).Data.outside.head
		p.enter(it)
		refuse(it)
	}
	for p.turns.Len() > 0 {
		x := p.turns.First(0, now).Data.active[0]
		for len(x.ready) > 0 {
			it := x.ready[0].head
			p.leave(it)
			refuse(it)
		}
		redo := x.redo
		x.redo = nil
		p.settle(x)
		for _, b := range redo {
			b.batchQueue.open--
			p.book.Drop(x.holder)
			for _, it := range b.waiting() {
				refuse(it)
			}
		}
	}
	p.turnAway(err, now)
}
