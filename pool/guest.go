package pool

import (
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// holder is a tenant's account with a device: the device time it has had, by its weight.
type holder = fair.Account[guest]

// guest is what a device has of a tenant. Guarded by the device's mutex.
type guest struct {
	turn   fair.Place[guest] // in policy.turns, while it has something to run
	parts  map[*account]*part
	active []*part // with something to run
	clock  float64 // part.used of the model that was served last

	outside list              // items for which there is no room yet
	entry   fair.Place[guest] // in policy.outside, while there are any

	visits  visits            // that wait for leave to make something ready
	ingress fair.Place[guest] // in policy.ingress, while there are any
}

// part is a tenant's part of a model's work.
type part struct {
	holder  *holder
	account *account

	active bool     // it has work: it is in guest.active
	ready  []*queue // with items
	redo   []*batch // made up already: what did not fit or failed, in parts
	used   float64  // seconds of the device that the tenant's items of the model have had, on the guest's clock
}

// queue is the items of a tenant in a batch queue.
type queue struct {
	list

	batchQueue *batchQueue
	part       *part
	turn       fair.Place[guest] // in batch queue.turns
}

// part finds or makes a tenant's part of a model.
func (p *policy) part(h *holder, a *account) *part {
	g := &h.Data
	x := g.parts[a]
	if x == nil {
		if g.parts == nil {
			g.parts = make(map[*account]*part, 1)
		}
		x = &part{holder: h, account: a}
		g.parts[a] = x
	}
	return x
}

// queue finds or makes a tenant's queue in a batch queue, for an item.
func (p *policy) queue(l *batchQueue, h *holder, now time.Time) *queue {
	if q := l.queues[h]; q != nil {
		return q
	}
	q := l.spare
	if l.spare = nil; q == nil {
		q = &queue{batchQueue: l}
	}
	q.part = p.part(h, l.account)
	l.turns.Add(&q.turn, h, now)
	l.queues[h] = q
	q.part.ready = append(q.part.ready, q)
	p.activate(q.part, now)
	return q
}

// empty takes a queue that has no items left out of its batch queue.
func (p *policy) empty(q *queue) {
	l, x := q.batchQueue, q.part
	delete(l.queues, x.holder)
	l.turns.Remove(&q.turn)
	x.ready = slices.DeleteFunc(x.ready, func(o *queue) bool { return o == q })
	l.spare = q
	p.settle(x)
}

// activate lets a model with work of a tenant take part. Time that it left unused is not made
// up for: it begins where the tenant's others are.
func (p *policy) activate(x *part, now time.Time) {
	if x.active {
		return
	}
	g := &x.holder.Data
	x.active = true
	x.used = max(x.used, g.clock)
	g.active = append(g.active, x)
	if !g.turn.Taken() {
		p.turns.Add(&g.turn, x.holder, now)
	}
}

// settle takes a model that a tenant has no work for any more out again.
func (p *policy) settle(x *part) {
	if !x.active || len(x.ready) > 0 || len(x.redo) > 0 {
		return
	}
	g := &x.holder.Data
	x.active = false
	g.active = slices.DeleteFunc(g.active, func(o *part) bool { return o == x })
	if len(g.active) == 0 {
		p.turns.Remove(&g.turn)
	}
}
