package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

const (
	// maxLanes is how many lanes a device remembers. Beyond it the one without work
	// that had an item longest ago is forgotten, with what it measured. Lanes with
	// work are bounded by the items there are.
	maxLanes = 256
	// closing is how long a flush holds. Of the step's last samples, some are still
	// being decoded when it comes, or are in the model before this one.
	closing = time.Second
	// debt is how many seconds of the device a model may have had more than the
	// others: a first batch that took a minute to warm up is not held against it for
	// a minute.
	debt = 10
)

// policy decides which items of a device run together and when. It has no
// goroutine, no lock and no clock: the device owns it, calls it under its mutex
// and tells it the time.
type policy struct {
	cfg    Config
	lanes  map[laneKey]*lane
	active []*account // the models with work
	full   list       // items for which there is no room yet

	items, bytes int     // in lanes
	seq          uint64  // of the newest item
	clock        float64 // account.used of the model that was served last
	flushed      uint64  // items up to this seq wait for no company,
	flushedUntil time.Time
}

type laneKey struct {
	account *account
	key     string
}

func newPolicy(cfg Config) *policy {
	return &policy{cfg: cfg, lanes: make(map[laneKey]*lane)}
}

// add takes an item in: into its lane, or to the end of those that wait for room.
func (p *policy) add(it *item, now time.Time) {
	p.seq++
	it.seq = p.seq
	if p.full.n > 0 || !p.room(it) {
		p.full.push(it)
		return
	}
	p.admit(it, now)
}

// room says whether an item may be queued. One that is larger than the bound by
// itself may when nothing else is.
func (p *policy) room(it *item) bool {
	return p.items == 0 || p.items < p.cfg.QueueItems && p.bytes+it.bytes <= p.cfg.QueueBytes
}

func (p *policy) admit(it *item, now time.Time) {
	l := p.lane(it)
	if l.n == 0 {
		it.account.ready = append(it.account.ready, l)
		p.activate(it.account)
	}
	p.items++
	p.bytes += it.bytes
	l.add(it, now)
}

// refill admits who waits for room, in order.
func (p *policy) refill(now time.Time) {
	for p.full.head != nil && p.room(p.full.head) {
		it := p.full.head
		p.full.remove(it)
		p.admit(it, now)
	}
}

// lane finds or makes the lane of an item.
func (p *policy) lane(it *item) *lane {
	k := laneKey{it.account, it.key}
	if l := p.lanes[k]; l != nil {
		return l
	}
	if len(p.lanes) >= maxLanes {
		p.forget()
	}
	top := p.cfg.MaxBatch
	if it.account.top > 0 {
		top = min(top, it.account.top)
	}
	if it.req.Whole {
		top = 1
	}
	if it.bytes > 0 { // all items of a lane are of the same size
		top = min(top, max(1, p.cfg.BatchBytes/it.bytes))
	}
	l := &lane{account: it.account, key: it.key, top: top, limit: top}
	p.lanes[k] = l
	return l
}

// forget drops the lane without work whose last item came first. Its totals stay
// with its model.
func (p *policy) forget() {
	var oldest *lane
	for _, l := range p.lanes {
		if l.n == 0 && l.open == 0 && (oldest == nil || l.last.Before(oldest.last)) {
			oldest = l
		}
	}
	if oldest != nil {
		oldest.account.past.add(oldest.counts)
		delete(p.lanes, laneKey{oldest.account, oldest.key})
	}
}

// activate lets a model with work take part. Time that it left unused is not made
// up for: it begins where the others are.
func (p *policy) activate(a *account) {
	if !a.active {
		a.active = true
		a.used = max(a.used, p.clock)
		p.active = append(p.active, a)
	}
}

// settle takes a model that has no work left out again.
func (p *policy) settle(a *account) {
	if a.active && len(a.ready) == 0 && len(a.redo) == 0 {
		a.active = false
		p.active = slices.DeleteFunc(p.active, func(o *account) bool { return o == a })
	}
}

// leave takes an item out of its lane.
func (p *policy) leave(it *item) {
	l := it.lane
	l.remove(it)
	p.items--
	p.bytes -= it.bytes
	if l.n == 0 {
		l.waiting = false
		a := l.account
		a.ready = slices.DeleteFunc(a.ready, func(o *lane) bool { return o == l })
		p.settle(a)
	}
}

// cancel gives up an item whose caller has left, wherever it is. A batch that runs
// for nobody any more is ended.
func (p *policy) cancel(it *item, err error, now time.Time) {
	switch it.state {
	case settled:
		return
	case outside:
		p.full.remove(it)
	case queued:
		p.leave(it)
	case parked, running:
		b := it.batch
		if b.live--; b.live == 0 && b.cancel != nil {
			b.cancel()
		}
	}
	p.counts(it).Left++
	it.answer(nil, err)
	p.refill(now)
}

// counts is where an item is counted.
func (p *policy) counts(it *item) *Counts {
	if it.lane == nil {
		return &it.account.past
	}
	return &it.lane.counts
}

// flush lets nothing wait for company that is queued now or comes soon.
func (p *policy) flush(now time.Time) {
	p.flushed, p.flushedUntil = p.seq, now.Add(closing)
}

// closes says whether a lane belongs to the end of a step.
func (p *policy) closes(l *lane, now time.Time) bool {
	return l.head.seq <= p.flushed || now.Before(p.flushedUntil)
}

// next makes the batch that one of idle (1 or more) free slots should run now.
// With none it says how long to wait before asking again; negative: until
// something happens. Items whose deadline has passed are answered on the way.
func (p *policy) next(now time.Time, idle int) (*batch, time.Duration) {
	for {
		a, l, wait := p.choose(now, idle)
		if a == nil {
			p.countWaits()
			return nil, wait
		}
		p.clock = max(p.clock, a.used)
		var b *batch
		if l == nil {
			b = p.again(a, now)
		} else {
			b = p.take(l, p.share(l, now, idle), now)
		}
		p.refill(now)
		if b == nil {
			continue // nobody waits for any of it: it is out, there is less to choose from
		}
		b.charged = b.lane.fit.seconds(len(b.items))
		a.used += b.charged
		return b, 0
	}
}

// choose finds who is served next: of the models with something to run, the one
// that has had least of the device, and of that model what is to be run again (no
// lane), or the lane whose first item is due earliest. Lanes that wait for company
// are passed over while that costs them nothing: the last free slot goes to whose
// turn it is. Otherwise a wait of milliseconds would cost them the run of another.
func (p *policy) choose(now time.Time, idle int) (*account, *lane, time.Duration) {
	a, l, wait := p.fairest(now, idle, true)
	if a != nil && wait > 0 && idle == 1 {
		a, l, _ = p.fairest(now, idle, false)
	}
	return a, l, wait
}

// fairest is choose among those that need not wait, if waits are kept, or else
// among all. It returns the shortest of the waits that were kept, else -1.
func (p *policy) fairest(now time.Time, idle int, waits bool) (best *account, turn *lane, wait time.Duration) {
	var due time.Time
	wait = -1
	better := func(a *account, at time.Time) bool {
		return best == nil || a.used < best.used || !(a.used > best.used) && at.Before(due)
	}
	for _, a := range p.active {
		if len(a.redo) > 0 {
			if at := a.redo[0].items[0].due; better(a, at) {
				best, turn, due = a, nil, at
			}
			continue
		}
		for _, l := range a.ready {
			if w := p.wait(l, now, idle); waits && w > 0 {
				if wait < 0 || w < wait {
					wait = w
				}
			} else if better(a, l.head.due) {
				best, turn, due = a, l, l.head.due
			}
		}
	}
	return best, turn, wait
}

// countWaits counts the lanes that a slot is kept idle for, now that there is
// nothing else to run, each once until it is served.
func (p *policy) countWaits() {
	for _, a := range p.active {
		for _, l := range a.ready {
			if !l.waiting {
				l.waiting = true
				l.counts.Waits++
			}
		}
	}
}

// wait is how long a lane should wait for more items; 0 or less: not at all.
func (p *policy) wait(l *lane, now time.Time, idle int) time.Duration {
	if l.n >= l.size() || p.closes(l, now) {
		return 0
	}
	return l.until(now, p.cfg.MaxWait, idle > 1).Sub(now)
}

// share is how many items of a lane go into its next batch: what is queued is
// split over the idle slots, because k batches of q/k end after a + c·q/k and one
// of q ends after a + c·q. At the end of a step nothing else counts. Before it, no
// batch is made smaller than the fixed cost is worth, because every batch more
// costs its a of the time of slots that others may need in a moment.
func (p *policy) share(l *lane, now time.Time, idle int) int {
	size := l.size()
	slots := max(1, (2*idle*l.n+p.items)/(2*p.items)) // the lane's part of them, rounded
	part := (l.n + slots - 1) / slots
	if !p.closes(l, now) {
		part = max(part, l.fit.even(size))
	}
	return min(part, size)
}

// again hands out the model's first batch to be run again; nil if nobody waits for
// it any more.
func (p *policy) again(a *account, now time.Time) *batch {
	b := a.redo[0]
	a.redo = slices.Delete(a.redo, 0, 1)
	p.settle(a)
	items := b.items[:0]
	for _, it := range b.items {
		if it.state == parked && !p.expired(it, now) {
			items = append(items, it)
		}
	}
	b.items = items
	return p.handOut(b)
}

// take makes a batch of the lane's first n items; nil if all had expired.
func (p *policy) take(l *lane, n int, now time.Time) *batch {
	b := &batch{lane: l, items: make([]*item, 0, n)}
	l.waiting = false
	l.open++
	for l.head != nil && len(b.items) < n {
		it := l.head
		p.leave(it)
		l.counts.Queue += now.Sub(it.at)
		if !p.expired(it, now) {
			b.items = append(b.items, it)
		}
	}
	return p.handOut(b)
}

// expired answers an item whose deadline has passed; its caller may not have
// noticed yet.
func (p *policy) expired(it *item, now time.Time) bool {
	if it.deadline.IsZero() || now.Before(it.deadline) {
		return false
	}
	p.counts(it).Expired++
	it.answer(nil, it.late(fmt.Errorf("%w: %w before its turn came", infer.ErrTimeout, context.DeadlineExceeded)))
	return true
}

// handOut marks what runs.
func (p *policy) handOut(b *batch) *batch {
	if len(b.items) == 0 {
		b.lane.open--
		return nil
	}
	b.live, b.reading = len(b.items), true
	b.lane.running++
	for _, it := range b.items {
		it.state, it.batch = running, b
	}
	return b
}

// clear answers everything that does not run with err.
func (p *policy) clear(err error) {
	refuse := func(it *item) {
		p.counts(it).Failed++
		it.answer(nil, err)
	}
	for p.full.head != nil { // first, or they would be admitted
		it := p.full.head
		p.full.remove(it)
		refuse(it)
	}
	for len(p.active) > 0 {
		a := p.active[0]
		for len(a.ready) > 0 {
			it := a.ready[0].head
			p.leave(it)
			refuse(it)
		}
		for _, b := range a.redo {
			b.lane.open--
			for _, it := range b.waiting() {
				refuse(it)
			}
		}
		a.redo = nil
		p.settle(a)
	}
}
