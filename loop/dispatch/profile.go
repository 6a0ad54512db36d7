package dispatch

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Profile contains the queue of one reward and the capacity for it. Profiles are isolated from each
// other: the queued, published and running samples of one profile do not use resources of another.
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

// Name returns the name of the profile; "" is the default profile.
func (p *Profile) Name() string { return p.name }

// Queue returns the name of the profile's ticket queue.
func (p *Profile) Queue() string { return p.queue }

// Run returns the profile's record of a run, and creates it for a new run.
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

// Remove removes a sample from the queue.
func (p *Profile) Remove(s Sample) {
	if i := s.Item(); i.outage != nil {
		p.resume(i)
		return
	}
	p.waiting.remove(s)
}

// Serve removes a sample from the queue so that its ticket can be published. The sample's run
// becomes the run that was served last.
func (p *Profile) Serve(s Sample) { p.waiting.serve(s) }

// Queued returns the number of samples that wait for a ticket.
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

// Offered records that the ticket of s is published, and which workers must leave s to faster
// workers.
func (p *Profile) Offered(s Sample, aside []string) {
	p.out++
	if len(aside) > 0 {
		p.aimed[s] = aside
	}
}

// Unoffered records that the published ticket of s was claimed or withdrawn.
func (p *Profile) Unoffered(s Sample) {
	p.out--
	delete(p.aimed, s)
}

// Out returns the number of published tickets that no worker has claimed.
func (p *Profile) Out() int { return p.out }

// Enter records that a worker has one more attempt of this gateway. Leave records its end.
func (p *Profile) Enter(worker string) {
	p.busy[worker]++
	p.counted = -1
}

// Leave records the end of an attempt that Enter has recorded.
func (p *Profile) Leave(worker string) {
	p.counted = -1
	if p.busy[worker]--; p.busy[worker] <= 0 {
		delete(p.busy, worker)
	}
}

// Busy returns the number of attempts of this gateway by worker. The caller must not change the
// map.
func (p *Profile) Busy() map[string]int { return p.busy }

// rateSpan is over how long completions are averaged.
const rateSpan = 2 * time.Second

// Done records that an attempt of a sample has ended.
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

// Room reports whether another ticket may be published. The number of unclaimed tickets may exceed
// the number of free places by one for each worker, or by the number of samples that workers
// complete in 10 ms if that is more, but not by more than the profile's whole capacity.
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

// Served reports whether a live worker accepts samples of the profile.
func (p *Profile) Served() bool { return p.Capacity() > 0 }

// Capacity returns how many samples of the profile live workers can score at the same time.
func (p *Profile) Capacity() int {
	p.count()
	return p.capacity
}

// Free returns the number of free places.
func (p *Profile) Free() int {
	p.count()
	return p.free
}

// Workers returns the ids of the live workers that serve the profile, in a fixed order, including
// workers that do not accept samples of the profile at the moment.
func (p *Profile) Workers() []string {
	out := make([]string, 0, len(p.serving))
	for _, a := range p.serving {
		out = append(out, p.board.workers[a.worker].ID)
	}
	return out
}

// Serves reports whether a live worker with that id serves the profile.
func (p *Profile) Serves(worker string) bool {
	return slices.ContainsFunc(p.serving, func(a announced) bool { return p.board.workers[a.worker].ID == worker })
}

// Stranger returns a live worker that serves a profile of this name with another configuration, and
// therefore gets no samples of it, or "" if there is no such worker.
func (p *Profile) Stranger() string { return p.other }

// Fit reports whether a live worker that accepts samples of the profile is not in but.
func (p *Profile) Fit(but []string) bool {
	return slices.ContainsFunc(p.count(), func(s workerPlaces) bool { return s.capacity > 0 && !slices.Contains(but, s.id) })
}

// Unserved returns the reason why no live worker accepts samples of the profile, or "" if a worker
// accepts samples.
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

// Said returns the message of a worker that serves the profile about an engine or a service that
// does not answer, or "" if there is no such message.
func (p *Profile) Said() string {
	for _, a := range p.serving {
		if _, info := p.said(a); info.Waits != "" && info.State != wire.WorkerMissing {
			return info.Waits
		}
	}
	return ""
}

// Lacking returns a message with a live worker that cannot score the profile because of something
// missing on its machine, and with the missing thing, or "" if there is no such worker.
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
