package dispatch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Profile is one reward's queue and the capacity that there is for it. Profiles are
// bulkheads: what one of them has queued, published or running takes nothing from another.
type Profile struct {
	name   string
	queue  string // of tickets
	coming string // the queue that it is about to have; "": it keeps its own
	board  *Board

	waiting queue
	outages map[string]*outage // samples that wait for a dependency, by its name
	runs    map[string]*Run
	policy  policy
	backup  *backup

	serving                 []announced         // live workers that serve it, by id
	other                   string              // a worker that serves one of the same name in another configuration; "": none
	byWorker                []workerPlaces      // the same, with their places
	capacity, free, workers int                 // of all places; workers are those with a place
	firm                    int                 // capacity of those places that are not tried
	looks                   int                 // how often the places were counted
	counted                 int                 // the board's version that they are of; -1: something has changed since
	busy                    map[string]int      // this gateway's attempts by worker, less those whose lease has lapsed
	out                     int                 // tickets that no worker has claimed
	aimed                   map[Sample][]string // published, and to be left by these workers to faster ones
	done                    float64             // completions a second, an exponential mean
	at                      time.Time           // when done was last brought up to date
}

// workerPlaces is a live worker and its places for a profile.
type workerPlaces struct {
	id       string
	capacity int // places, less what its breaker forbids
	free     int
	trying   bool // one sample finds out whether a dependency is back
}

// Name is the profile's; "" is the default one.
func (p *Profile) Name() string { return p.name }

// Queue is the name of the profile's queue of tickets.
func (p *Profile) Queue() string { return p.queue }

// Run returns the profile's record of a run, making it on first sight.
func (p *Profile) Run(name string, weight float64) *Run {
	r := p.runs[name]
	if r == nil {
		r = newRun(name, weight)
		p.runs[name] = r
	}
	return r
}

// Add puts a sample into the queue.
func (p *Profile) Add(s Sample) { p.waiting.add(s) }

// Remove takes a sample out of the queue.
func (p *Profile) Remove(s Sample) {
	if i := s.Item(); i.outage != nil {
		p.resume(i)
		return
	}
	p.waiting.remove(s)
}

// Serve takes a sample out to be published: its run is the one that is served now.
func (p *Profile) Serve(s Sample) { p.waiting.serve(s) }

// Queued is how many samples wait for a ticket.
func (p *Profile) Queued() int {
	n := 0
	for r := range p.waiting.waiting {
		n += r.queued
	}
	for _, r := range p.outages {
		n += r.samples.Len()
	}
	return n
}

// Offered notes a ticket that nobody has claimed, and the workers that are to leave the
// sample to faster ones.
func (p *Profile) Offered(s Sample, aside []string) {
	p.out++
	if len(aside) > 0 {
		p.aimed[s] = aside
	}
}

// Unoffered notes that there is one ticket less.
func (p *Profile) Unoffered(s Sample) {
	p.out--
	delete(p.aimed, s)
}

// Out is how many tickets no worker has claimed.
func (p *Profile) Out() int { return p.out }

// Enter notes that a worker has one attempt more, Leave one less.
func (p *Profile) Enter(worker string) {
	p.busy[worker]++
	p.counted = -1
}

// Leave is the end of an Enter.
func (p *Profile) Leave(worker string) {
	p.counted = -1
	if p.busy[worker]--; p.busy[worker] <= 0 {
		delete(p.busy, worker)
	}
}

// Busy is how many attempts each worker has of this gateway.
func (p *Profile) Busy() map[string]int { return p.busy }

// rateSpan is over how long completions are averaged.
const rateSpan = 2 * time.Second

// Done notes that a sample's attempt has ended.
func (p *Profile) Done(now time.Time) {
	p.rate(now)
	p.done += 1 / rateSpan.Seconds()
}

// rate is how many attempts end in a second.
func (p *Profile) rate(now time.Time) float64 {
	if d := now.Sub(p.at); d > 0 {
		p.done *= math.Exp(-d.Seconds() / rateSpan.Seconds())
		p.at = now
	}
	return p.done
}

// ahead is for how long places that are not free yet have tickets waiting for them: the time
// in which a place that is freed gets its next sample must not be that of a round trip.
const ahead = 10 * time.Millisecond

// Room reports whether a ticket may be published: the queue holds at most as many that
// nobody has claimed as places are free, and beside these one for each worker, or what
// workers complete in 10 ms, but no more than the profile's whole capacity.
func (p *Profile) Room(now time.Time) bool {
	p.count()
	return p.out < p.free+min(p.firm, max(p.workers, int(math.Ceil(p.rate(now)*ahead.Seconds()))))
}

// count brings the places up to date.
func (p *Profile) count() []workerPlaces {
	b := p.board
	if p.counted == b.version && !b.breakers.Any() {
		return p.byWorker
	}
	p.counted = b.version
	p.looks++
	p.byWorker = p.byWorker[:0]
	p.capacity, p.firm, p.free, p.workers = 0, 0, 0, 0
	for _, a := range p.serving {
		w, info := p.said(a)
		s := workerPlaces{id: w.ID, trying: info.State == wire.WorkerTrying}
		switch w.State {
		case wire.WorkerReady:
			s.capacity = b.breakers.Places(w.ID, p.name, info.Capacity)
		case wire.WorkerBroken: // whether it reaches a gateway again shows by a sample
			s.capacity = b.breakers.Places(w.ID, p.name, min(info.Capacity, 1))
		}
		others := 0
		for gateway, n := range info.Used {
			if gateway != b.gateway {
				others += n
			}
		}
		s.free = max(min(s.capacity-p.busy[w.ID]-others, info.Narrow), 0)
		p.byWorker = append(p.byWorker, s)
		p.capacity += s.capacity
		p.free += s.free
		if s.capacity > 0 && !s.trying { // what is tried has nothing ahead of it
			p.workers++
			p.firm += s.capacity
		}
	}
	return p.byWorker
}

// said is what a worker says of itself, and of the profile.
func (p *Profile) said(a announced) (*wire.WorkerInfo, *wire.ProfileInfo) {
	w := &p.board.workers[a.worker]
	return w, &w.Profiles[a.profile]
}

// Served reports whether a live worker takes samples of the profile.
func (p *Profile) Served() bool { return p.Capacity() > 0 }

// Capacity is how many samples live workers can use at a time.
func (p *Profile) Capacity() int {
	p.count()
	return p.capacity
}

// Free is how many places are free.
func (p *Profile) Free() int {
	p.count()
	return p.free
}

// Workers are the live workers that serve the profile, whether or not they take samples of
// it now, in a fixed order.
func (p *Profile) Workers() []string {
	out := make([]string, 0, len(p.serving))
	for _, a := range p.serving {
		out = append(out, p.board.workers[a.worker].ID)
	}
	return out
}

// Serves reports whether a live worker serves the profile.
func (p *Profile) Serves(worker string) bool {
	return slices.ContainsFunc(p.serving, func(a announced) bool { return p.board.workers[a.worker].ID == worker })
}

// Stranger is a live worker that serves a profile of this name in another configuration, and
// so gets no samples of it; "": there is none.
func (p *Profile) Stranger() string { return p.other }

// Fit reports whether a live worker that takes samples of the profile is none of these.
func (p *Profile) Fit(but []string) bool {
	return slices.ContainsFunc(p.count(), func(s workerPlaces) bool { return s.capacity > 0 && !slices.Contains(but, s.id) })
}

// Unserved says why no live worker takes samples of the profile, as far as workers say it;
// "": they do, or say nothing.
func (p *Profile) Unserved() string {
	serving := p.serving
	switch {
	case len(serving) == 0 && p.other != "":
		return fmt.Sprintf("worker %s serves a profile %q of another configuration than this gateway's: use the same configuration for both", p.other, shown(p.name))
	case len(serving) == 0:
		return fmt.Sprintf("no worker serves the profile %q", shown(p.name))
	}
	if awaits := p.Awaits(); awaits != "" {
		return awaits
	}
	for _, a := range serving {
		if w, info := p.said(a); w.State == wire.WorkerReady && info.Capacity > 0 {
			return ""
		}
	}
	for _, a := range serving {
		if w, info := p.said(a); info.Waits != "" {
			return fmt.Sprintf("worker %s: %s", w.ID, info.Waits)
		}
	}
	w, _ := p.said(serving[0])
	return fmt.Sprintf("none of the %d workers that serve the profile %q accepts samples: worker %s is %s",
		len(serving), shown(p.name), w.ID, w.State)
}

// Said is what a worker that serves the profile says of an engine or a service that does
// not answer; "": none says anything.
func (p *Profile) Said() string {
	for _, a := range p.serving {
		if _, info := p.said(a); info.Waits != "" && info.State != wire.WorkerMissing {
			return info.Waits
		}
	}
	return ""
}

// Lacking says which live worker cannot score the profile, because its machine lacks
// something, and what; "": none.
func (p *Profile) Lacking() string {
	for _, a := range p.serving {
		if w, info := p.said(a); info.State == wire.WorkerMissing {
			return fmt.Sprintf("worker %s cannot score the profile: %s", w.ID, info.Waits)
		}
	}
	return ""
}

// shown is the name of a profile for people.
func shown(profile string) string { return cmp.Or(profile, "default") }
