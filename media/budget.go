package media

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/rewards"
)

// budget is a number of bytes for pixels that are decoded or read. Who finds it empty waits:
// tenants take turns by the bytes that they have had, a tenant's claims are granted in the
// order they came, and a large one is not starved by small ones.
//
// Who reads pixels waits for nobody, with one exception: a component that reads several
// pictures at once holds the first while it waits for the next. Two of them could wait for
// each other. So such a claim is granted before others, and beyond the budget if need be:
// for one component at a time, and for no more than the budget once again.
type budget struct {
	total int64

	mu     sync.Mutex
	free   int64               // guarded by mu; below 0: overdrawn
	queue  *fair.Queue[*claim] // guarded by mu; of those that hold nothing
	urgent list.List           // guarded by mu; of *claim, of those that read other pixels
	drawer *rewards.Reader     // guarded by mu; who has overdrawn
	parked list.List           // guarded by mu; of *booking that nobody reads, the oldest in front
	idle   int64               // guarded by mu; the bytes of those
	waste  garbage             // guarded by mu
}

// claim is a wait for bytes.
type claim struct {
	n      int64
	reader *rewards.Reader
	ready  chan struct{} // closed, under mu, by whoever grants or refuses the claim
	err    error         // why it was refused; set before ready is closed
	call   *fair.Call[*claim]
	place  *list.Element // in urgent
}

func newBudget(total int64) *budget {
	return &budget{total: total, free: total, queue: fair.NewQueue[*claim]()}
}

// acquire waits for n bytes, which must not be more than total.
func (b *budget) acquire(ctx context.Context, n int64) (*booking, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("before decoding: %w", err)
	}
	c := &claim{n: n, reader: rewards.ReaderOf(ctx), ready: make(chan struct{})}
	b.mu.Lock()
	if c.reader.Borrows() > 0 {
		c.place = b.urgent.PushBack(c)
	} else {
		c.call = b.queue.Push(fair.Tenant(rewards.TenantOf(ctx)), c, time.Now())
	}
	b.grant()
	b.mu.Unlock()
	select {
	case <-c.ready:
		return b.granted(c)
	default:
	}
	err := rewards.Aside(ctx, func() {
		select {
		case <-c.ready:
		case <-ctx.Done():
		}
	})
	if err == nil && ctx.Err() == nil {
		return b.granted(c)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.ready: // granted in the same moment: hand it on
		if c.err == nil {
			b.free += n
		}
	default:
		b.withdraw(c)
	}
	b.grant()
	return nil, rewards.Ended(ctx, false, rewards.BlameReward, fmt.Errorf("waiting for %d of %d bytes to decode into: %w", n, b.total, ctx.Err()))
}

func (b *budget) granted(c *claim) (*booking, error) {
	if c.err != nil {
		return nil, c.err
	}
	return &booking{of: b, n: c.n}, nil
}

// withdraw takes back a claim that waits. The caller holds mu.
func (b *budget) withdraw(c *claim) {
	if c.place != nil {
		b.urgent.Remove(c.place)
	} else {
		b.queue.Remove(c.call)
	}
}

// grant serves those that wait, as far as the bytes reach. The caller holds mu.
func (b *budget) grant() {
	if b.free >= 0 {
		b.drawer = nil
	}
	for b.urgent.Len() > 0 {
		c := b.pressing()
		if !b.room(c.n) && !b.overdraw(c) {
			return
		}
		b.urgent.Remove(c.place)
		close(c.ready)
	}
	for now := time.Now(); b.queue.Len() > 0; {
		next := b.queue.First(0, now)
		c := next.Value
		if !b.room(c.n) {
			return
		}
		b.queue.Take(next, now)
		b.queue.Charge(next, float64(c.n), now)
		b.queue.End(next, now)
		close(c.ready)
	}
}

// pressing is the urgent claim to serve next: the oldest of whoever has overdrawn, because the
// others wait for that one, else the oldest. The caller holds mu.
func (b *budget) pressing() *claim {
	for e := b.urgent.Front(); e != nil && b.drawer != nil; e = e.Next() {
		if c, _ := e.Value.(*claim); c.reader == b.drawer {
			return c
		}
	}
	c, _ := b.urgent.Front().Value.(*claim)
	return c
}

// room takes n bytes if they are free or can be freed. The caller holds mu.
func (b *budget) room(n int64) bool {
	if b.free+b.idle < n {
		return false
	}
	for b.free < n {
		oldest, _ := b.parked.Front().Value.(*booking)
		oldest.drop()
	}
	if b.free+garbageRoom < n+b.waste.bytes() {
		b.collect()
		return false
	}
	b.free -= n
	return true
}

// overdraw takes the bytes that a claim lacks, or refuses it, unless others or the collector
// must be waited for. The caller holds mu.
func (b *budget) overdraw(c *claim) (settled bool) {
	if b.drawer != nil && b.drawer != c.reader {
		return false
	}
	if b.waste.bytes() > garbageRoom {
		b.collect()
		return false
	}
	if b.free-c.n < -b.total {
		c.err = bad("decoding the pictures that are read together needs more than the budget of %d bytes", b.total)
		return true
	}
	b.free -= c.n
	b.drawer = c.reader
	return true
}

// booked is how many bytes are out.
func (b *budget) booked() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.free
}

// booking is bytes of a budget. It keeps the pixels that they are for while nobody reads them.
type booking struct {
	of *budget
	n  int64 // guarded by of.mu, as is what follows; 0: given back

	px    *rewards.Pixels // parked
	place *list.Element   // in of.parked
}

var _ rewards.Keeper = (*booking)(nil)

// shrink gives back all but n bytes.
func (k *booking) shrink(n int64) {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.of.free += k.n - n
	k.of.waste.add(k.n - n)
	k.n = n
	k.of.grant()
}

// reuse says that n bytes of the booking are garbage and are to be allocated again. Where there
// is no room for both, it waits for the collector.
func (k *booking) reuse(n int64) {
	k.of.mu.Lock()
	k.of.waste.add(n)
	full := k.of.free+garbageRoom < k.of.waste.bytes()
	k.of.mu.Unlock()
	if full {
		k.of.collectNow()
	}
}

// Park implements rewards.Keeper.
func (k *booking) Park(px *rewards.Pixels) {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.px, k.place = px, k.of.parked.PushBack(k)
	k.of.idle += k.n
	k.of.grant()
}

// Take implements rewards.Keeper.
func (k *booking) Take() *rewards.Pixels {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	px := k.px
	k.unpark()
	return px
}

// Release implements rewards.Keeper.
func (k *booking) Release() {
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.drop()
	k.of.grant()
}

// drop gives the bytes back. The caller holds of.mu.
func (k *booking) drop() {
	k.unpark()
	k.of.free += k.n
	k.of.waste.add(k.n)
	k.n = 0
}

// unpark forgets the pixels. The caller holds of.mu.
func (k *booking) unpark() {
	if k.place != nil {
		k.of.parked.Remove(k.place)
		k.of.idle -= k.n
		k.px, k.place = nil, nil
	}
}
