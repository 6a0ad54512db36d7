package workers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Profile is a reward that a worker serves.
type Profile struct {
	Manager *rewards.Manager
	// Queue is the name of the queue of the profile's tickets.
	Queue string
	// Config is a digest of the profile's configuration, which each result carries.
	Config string
	// Capacity is the number of samples of the profile that the worker can score at the same time.
	// 0: the capacity of the manager's components, divided among the workers of the process.
	Capacity int
	// Missing describes what the machine lacks to score the profile; empty: nothing. If Missing is
	// set, Manager is nil, and the worker takes no samples of the profile and announces the reason.
	Missing string
}

// bay is what a worker has for one profile: its places, its puller, and what goes wrong
// there. One profile's samples take no place from another's.
type bay struct {
	// Immutable.
	name      string
	names     []string                // of the same profile, name among them
	now       atomic.Pointer[Profile] // what is served; replaced under the worker's mutex
	places    *rewards.Places
	changed   chan struct{} // capacity 1: a place may be free
	reliant   bool          // a component may have a dependency that is down
	contended atomic.Int64  // when an executor last had calls of other profiles too, Unix nanoseconds

	// Guarded by the worker's mutex.
	asked     int                // of the Take that is open
	refile    context.CancelFunc // ends the Take that is open
	aside     time.Time          // it asks for nothing until then
	full      bool               // a ticket found no room for its bytes; until some are given back
	bytes     int64              // of the samples that the worker has
	used      map[string]int     // samples by gateway
	abandoned int                // scorers that overran and still run
	outage    outage
}

// sick reports whether too many scorers have overrun. The caller holds the worker's mutex.
func (w *Worker) sick(b *bay) bool {
	most := w.cfg.MaxAbandoned
	if most == 0 {
		most = max(1, b.places.Capacity()/2)
	}
	return b.abandoned > most
}

// info is what the worker tells of the profile. The caller holds the worker's mutex.
func (w *Worker) profileInfo(b *bay) wire.ProfileInfo {
	p := wire.ProfileInfo{Name: b.name, Queue: b.now.Load().Queue, Capacity: max(b.places.Capacity()-b.abandoned, 0), Narrow: b.places.Narrow()}
	for gateway, n := range b.used {
		if p.Used == nil {
			p.Used = make(map[string]int, len(b.used))
		}
		p.Used[gateway] = n
	}
	p.State, p.Waits = b.outage.state, b.outage.waits
	switch p.State {
	case wire.WorkerWaiting:
		p.Capacity = 0
	case wire.WorkerTrying:
		p.Capacity = min(p.Capacity, 1)
	}
	if w.sick(b) {
		p.Capacity, p.State = 0, wire.WorkerSick
		p.Waits = fmt.Sprintf("%d scorers of the profile overran their deadlines and still run", b.abandoned)
	}
	return p
}

// pull is the one goroutine that takes tickets of a profile's queue: for exactly as many
// places as are free, again whenever one more is.
func (w *Worker) pull(ctx, work context.Context, b *bay) {
	for ctx.Err() == nil {
		n, pause := w.wanted(b)
		if n == 0 {
			if !b.waitChange(ctx, pause) {
				return
			}
			continue
		}
		tctx, cancel := context.WithCancel(ctx)
		of := b.now.Load()
		w.opened(b, of, n, cancel)
		leases, err := w.source.Take(tctx, of.Queue, n)
		w.opened(b, of, 0, nil)
		cancel()
		for _, l := range leases {
			w.begin(work, b, of, l)
		}
		if err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "fetching tickets failed; retrying", "worker", w.cfg.ID, "reward", b.name, "error", err)
			b.waitChange(ctx, 200*time.Millisecond)
		}
	}
}

// wanted returns how many tickets to ask for; if none, how long to wait for a change.
func (w *Worker) wanted(b *bay) (n int, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until := w.aside
	if b.aside.After(until) {
		until = b.aside
	}
	if now := time.Now(); until.After(now) {
		return 0, until.Sub(now)
	}
	return w.startable(b), time.Second // executors may have become more without a word
}

// startable returns how many samples of a profile may start now. The caller holds mu.
func (w *Worker) startable(b *bay) int {
	switch {
	case b.full || w.sick(b) || b.outage.state == wire.WorkerWaiting:
		return 0
	case b.outage.state == wire.WorkerTrying && b.outage.probe != nil:
		return 0
	case b.outage.state == wire.WorkerTrying:
		return min(b.places.Free(), 1)
	}
	n := b.places.Free()
	if n == 0 && time.Since(time.Unix(0, b.contended.Load())) < contention && b.places.Ahead() {
		return 1
	}
	return n
}

// contention is for how long an executor that had calls of several profiles is taken to have
// them still.
const contention = time.Second

// contend notes that an executor has calls of other profiles too. It takes no lock, because
// its caller has that of the executor.
func (b *bay) contend() {
	b.contended.Store(time.Now().UnixNano())
	b.tell()
}

// tell wakes the profile's puller.
func (b *bay) tell() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// waitChange waits for a change or the pause; false when ctx ended.
func (b *bay) waitChange(ctx context.Context, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-b.changed:
	case <-t.C:
	}
	return true
}

func (w *Worker) opened(b *bay, of *Profile, n int, cancel context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b.asked, b.refile = n, cancel
	if cancel != nil && (w.asksWrongly(b) || b.now.Load() != of) { // since the counting a place was freed, or the profile replaced
		b.refile()
		b.refile = nil
	}
}

// asksWrongly reports whether the open Take asks for fewer than could start, or for some
// although the profile waits for a dependency. The caller holds mu.
func (w *Worker) asksWrongly(b *bay) bool {
	n := w.startable(b)
	return n > b.asked || n < b.asked && b.outage.state != ""
}

// stir wakes a profile's puller, and ends an open Take that asks for fewer than could start
// now, or for some although the worker rests. The caller holds mu.
func (w *Worker) stir(b *bay) {
	if b.refile != nil && w.asksWrongly(b) {
		b.refile()
		b.refile = nil
	}
	b.tell()
}

// avoidPause is how long a ticket rests that this worker must not take, or the profile
// where the ticket is in a hurry. It is at least as long and less than twice.
const avoidPause = 50 * time.Millisecond

// begin starts a lease on a place, or hands it back.
func (w *Worker) begin(work context.Context, b *bay, of *Profile, l Lease) {
	t := l.Ticket()
	pause := avoidPause + rand.N(avoidPause) //nolint:gosec // a pause needs no secret randomness
	w.mu.Lock()
	now := b.now.Load()
	switch {
	case now.Queue != of.Queue: // it was asked for by another configuration
		pause = 0
	case slices.Contains(t.Avoid, w.cfg.ID):
		if t.Aside { // a faster one is free: the worker rests, not the ticket
			b.aside = time.Now().Add(pause)
			pause = 0
		}
	case w.startable(b) == 0: // a scorer overran meanwhile, or there are fewer executors
		pause = 0
	case !w.reserve(b, t.Bytes):
		b.full = true
	default:
		j := &job{bay: b, of: now, lease: l, ticket: t, place: b.places.Begin(), renewed: time.Now()}
		b.used[t.Gateway]++
		w.jobs[j] = false
		if b.outage.state == wire.WorkerTrying {
			b.outage.probe = j
		}
		w.mu.Unlock()
		go w.score(work, j) // ends with the sample; Drain and Stop wait for it
		return
	}
	w.mu.Unlock()
	l.Return(pause)
}

// reserve books the bytes of a sample before they are claimed, if there is room: a sample
// that is larger than all of it is taken alone, and no profile has more than half while
// another one has samples or lacks room. The caller holds mu.
func (w *Worker) reserve(b *bay, size int64) bool {
	most := w.cfg.MaxBytes
	for _, o := range w.bays {
		if o != b && (o.bytes > 0 || o.full) {
			most /= 2
			break
		}
	}
	if b.bytes > 0 && b.bytes+size > most || w.bytes > 0 && w.bytes+size > w.cfg.MaxBytes {
		return false
	}
	w.bytes += size
	b.bytes += size
	return true
}

// end frees the job's place and its bytes.
func (w *Worker) end(j *job) {
	b := j.bay
	j.place.Leave()
	w.mu.Lock()
	if w.jobs[j] {
		b.abandoned--
	}
	delete(w.jobs, j)
	if b.outage.probe == j {
		b.outage.probe = nil
	}
	if b.used[j.ticket.Gateway]--; b.used[j.ticket.Gateway] <= 0 {
		delete(b.used, j.ticket.Gateway)
	}
	w.bytes -= j.ticket.Bytes
	b.bytes -= j.ticket.Bytes
	for _, o := range w.bays {
		if o == b || o.full {
			o.full = false
			w.stir(o)
		}
	}
	w.mu.Unlock()
	w.ended()
}
