package pool

import (
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// visit is a caller that makes something ready for a device: it decodes a picture, say, and
// asks models about it. Guarded by the device's mutex; granted gets the visit when the caller may
// begin, or when err says why it may not. Visits of one caller at several devices share it.
type visit struct {
	device  *device
	holder  *holder
	granted chan *visit // with room for every visit that shares it
	err     error       // set before granted has the visit

	state      visiting
	prev, next *visit // in visits
}

type visiting uint8

const (
	waits visiting = iota
	entered
	departed
)

// visits are those of a tenant that wait, the oldest first.
type visits struct{ head, tail *visit }

// batchesAhead is how many batches' worth of items may be made ready for each slot of a card:
// one that runs, and one to follow it.
const batchesAhead = 2

// bound is how many visits there may be at a time. On the CPU it is as many as there are
// slots: a larger batch takes longer there, who makes one ready takes the time from those that
// run, and so what enters is what the device does, in the order of turns. For a model in Python it
// is what fills two of its largest batches for each of its processes.
func (p *policy) bound() int {
	switch {
	case p.device == cpu:
		return max(1, p.slots)
	case p.eager:
		return batchesAhead * max(1, p.slots) * p.cfg.MaxBatch
	}
	return batchesAhead * max(1, p.slots) * p.worth
}

// knock takes in a visit.
func (p *policy) knock(v *visit, t fair.Tenant, now time.Time) {
	v.holder = p.book.Hold(t, now)
	g := &v.holder.Data
	if v.prev = g.visits.tail; v.prev == nil {
		g.visits.head = v
		p.ingress.Add(&g.ingress, v.holder, now)
	} else {
		v.prev.next = v
	}
	g.visits.tail = v
	p.atIngress++
	p.welcome(now)
}

// welcome lets visits in while there is room: of the tenant that has had least of the device,
// in the order they came.
func (p *policy) welcome(now time.Time) {
	for p.inside < p.bound() && p.atIngress > 0 {
		v := p.ingress.First(0, now).Data.visits.head
		p.unlink(v)
		v.state = entered
		p.inside++
		v.granted <- v
	}
}

// unlink takes a visit out of those that wait.
func (p *policy) unlink(v *visit) {
	p.atIngress--
	g := &v.holder.Data
	if v.prev == nil {
		g.visits.head = v.next
	} else {
		v.prev.next = v.next
	}
	if v.next == nil {
		g.visits.tail = v.prev
	} else {
		v.next.prev = v.prev
	}
	v.prev, v.next = nil, nil
	if g.visits.head == nil {
		p.ingress.Remove(&g.ingress)
	}
}

// depart ends a visit, whether it was let in or not. A second call does nothing.
func (p *policy) depart(v *visit, now time.Time) {
	switch v.state {
	case departed:
		return
	case waits:
		p.unlink(v)
	case entered:
		p.inside--
	}
	v.state = departed
	p.book.Drop(v.holder)
	p.welcome(now)
}

// measure takes in what the batch queues have learned: how many items the largest batch may have that
// is made next.
func (p *policy) measure(now time.Time) {
	if p.inside == 0 && p.atIngress == 0 {
		return
	}
	p.worth = 1
	for _, l := range p.batchQueues {
		b := l.fit.size(l.limit)
		if l.probe >= probeEvery { // it tries twice as many
			b = min(2*b, l.limit)
		}
		p.worth = max(p.worth, b)
	}
	p.welcome(now)
}

// turnAway refuses the visits that wait.
func (p *policy) turnAway(err error, now time.Time) {
	for p.atIngress > 0 {
		v := p.ingress.First(0, now).Data.visits.head
		p.unlink(v)
		v.state, v.err = departed, err
		p.book.Drop(v.holder)
		v.granted <- v
	}
}
