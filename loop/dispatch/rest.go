package dispatch

import (
	"container/list"
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Samples that a worker has returned because a dependency is down are queued, and rest: no
// ticket is made for them until it is back, because each would only come back once more.
//
// Where no worker takes samples of the profile at all, they are let go as soon as one does
// again. Where workers do, because only some samples need the dependency, one of them finds
// out from time to time, a different one each time, and all are let go when one that was
// tried is answered.

const (
	// firstTrial is how long after the first return a resting sample is tried, where workers
	// take others of the profile; lastTrial is the longest such pause, which doubles.
	firstTrial = time.Second
	lastTrial  = 30 * time.Second
)

// rest is the samples of a profile that wait for one dependency.
type rest struct {
	samples list.List // of Sample, in the order in which they were returned
	whole   bool      // all samples of the profile wait for it where the last one came from
	next    time.Time // when one of them is tried; zero: nobody has looked
	pause   time.Duration
}

// Rest queues a sample that was returned because a dependency is down. Whole says that all
// samples of the profile wait for it at the worker that returned it.
func (p *Profile) Rest(s Sample, dependency string, whole bool) {
	r := p.rests[dependency]
	if r == nil {
		r = &rest{pause: firstTrial}
		p.rests[dependency] = r
	}
	i := s.Item()
	r.whole = whole
	i.rest, i.resting, i.trial = r, r.samples.PushBack(s), nil
	i.run.resting++
}

// Answered notes that a worker has answered a sample, whatever it said: what it needed is
// there, and whoever rests for it is let go.
func (p *Profile) Answered(s Sample) {
	if r := s.Item().trial; r != nil {
		s.Item().trial = nil
		p.letGo(r)
	}
}

// unrest takes a resting sample out.
func (p *Profile) unrest(i *Item) {
	i.rest.samples.Remove(i.resting)
	i.rest, i.resting = nil, nil
	i.run.resting--
}

// letGo queues all that rest for a dependency.
func (p *Profile) letGo(r *rest) {
	for r.samples.Len() > 0 {
		s, _ := r.samples.Front().Value.(Sample)
		p.unrest(s.Item())
		p.waiting.add(s)
	}
	maps.DeleteFunc(p.rests, func(_ string, o *rest) bool { return o == r })
}

// wake queues the resting samples that may go.
func (p *Profile) wake(now time.Time) {
	if len(p.rests) == 0 {
		return
	}
	ready, trying := false, false
	for _, s := range p.count() {
		ready = ready || s.capacity > 0 && !s.trying
		trying = trying || s.free > 0 && s.trying
	}
	for _, name := range slices.Sorted(maps.Keys(p.rests)) {
		r := p.rests[name]
		if r.next.IsZero() {
			r.next = now.Add(firstTrial)
		}
		switch {
		case ready && r.whole, r.samples.Len() == 0 && !now.Before(r.next.Add(lastTrial)): // or all have gone otherwise
			p.letGo(r)
		case r.samples.Len() == 0:
		case ready && !now.Before(r.next):
			r.next, r.pause = now.Add(r.pause), min(2*r.pause, lastTrial)
			p.try(r)
		case !ready && trying && len(p.waiting.waiting) == 0 && p.out == 0: // there is no other to find out
			p.try(r)
		}
	}
}

// try queues the sample that has rested longest.
func (p *Profile) try(r *rest) {
	s, _ := r.samples.Front().Value.(Sample)
	p.unrest(s.Item())
	s.Item().trial = r
	p.waiting.add(s)
}

// AnyResting reports whether any sample rests.
func (p *Profile) AnyResting() bool {
	for _, r := range p.rests {
		if r.samples.Len() > 0 {
			return true
		}
	}
	return false
}

// Resting reports whether the sample rests.
func (i *Item) Resting() bool { return i.resting != nil }

// Awaits says for what all live workers that serve the profile wait; "": one of them takes
// samples, or none says that it waits.
func (p *Profile) Awaits() (what string) {
	for _, a := range p.serving {
		switch w, info := p.said(a); {
		case info.State == wire.WorkerWaiting, info.State == wire.WorkerTrying:
			what = info.Waits
		case w.State == wire.WorkerReady && info.Capacity > 0:
			return ""
		}
	}
	return what
}
