package dispatch

import (
	"container/list"
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Samples that a worker has returned because a dependency is down are queued, and back off: no
// ticket is made for them until it is back, because each would only come back once more.
//
// Where no worker takes samples of the profile at all, they are let go as soon as one does
// again. Where workers do, because only some samples need the dependency, one of them finds
// out from time to time, a different one each time, and all are let go when one that was
// tried is answered.

const (
	// firstTrial is how long after the first return a sample that backs off is tried, where workers
	// take others of the profile; lastTrial is the longest such pause, which doubles.
	firstTrial = time.Second
	lastTrial  = 30 * time.Second
)

// outage is the samples of a profile that wait for one dependency.
type outage struct {
	samples list.List // of Sample, in the order in which they were returned
	whole   bool      // all samples of the profile wait for it where the last one came from
	next    time.Time // when one of them is tried; zero: nobody has looked
	pause   time.Duration
}

// BackOff queues a sample that a worker returned because a dependency is down. whole reports
// whether all samples of the profile wait for the dependency at that worker.
func (p *Profile) BackOff(s Sample, dependency string, whole bool) {
	r := p.outages[dependency]
	if r == nil {
		r = &outage{pause: firstTrial}
		p.outages[dependency] = r
	}
	i := s.Item()
	r.whole = whole
	i.outage, i.backingOff, i.trial = r, r.samples.PushBack(s), nil
	i.run.backingOff++
}

// Answered records that a worker has answered a sample, whatever the answer. The dependency of the
// sample is therefore available again, and all samples that back off from it are queued.
func (p *Profile) Answered(s Sample) {
	if r := s.Item().trial; r != nil {
		s.Item().trial = nil
		p.letGo(r)
	}
}

// resume takes a sample that backs off out.
func (p *Profile) resume(i *Item) {
	i.outage.samples.Remove(i.backingOff)
	i.outage, i.backingOff = nil, nil
	i.run.backingOff--
}

// letGo queues all that back off from a dependency.
func (p *Profile) letGo(r *outage) {
	for r.samples.Len() > 0 {
		s, _ := r.samples.Front().Value.(Sample)
		p.resume(s.Item())
		p.waiting.add(s)
	}
	maps.DeleteFunc(p.outages, func(_ string, o *outage) bool { return o == r })
}

// wake queues the samples that back off and may go.
func (p *Profile) wake(now time.Time) {
	if len(p.outages) == 0 {
		return
	}
	ready, trying := false, false
	for _, s := range p.count() {
		ready = ready || s.capacity > 0 && !s.trying
		trying = trying || s.free > 0 && s.trying
	}
	for _, name := range slices.Sorted(maps.Keys(p.outages)) {
		r := p.outages[name]
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
func (p *Profile) try(r *outage) {
	s, _ := r.samples.Front().Value.(Sample)
	p.resume(s.Item())
	s.Item().trial = r
	p.waiting.add(s)
}

// AnyBackingOff reports whether any sample of the profile backs off.
func (p *Profile) AnyBackingOff() bool {
	for _, r := range p.outages {
		if r.samples.Len() > 0 {
			return true
		}
	}
	return false
}

// BackingOff reports whether the sample backs off.
func (i *Item) BackingOff() bool { return i.backingOff != nil }

// Awaits returns the dependency that the live workers of the profile wait for. The result is empty
// if one of the workers accepts samples or if no worker reports a dependency.
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
