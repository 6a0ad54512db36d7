package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Board contains all profiles of a gateway: their queues, and the workers that serve them.
type Board struct {
	gateway  string
	cfg      Config
	breakers Breakers
	profiles []*Profile // by name
	byName   map[string]*Profile
	turn     int // which of them is looked at first

	version int               // of the list of workers
	workers []wire.WorkerInfo // of the last look; it is replaced and never changed
	revs    []uint64          // of these, in which only counters move while the number stays
}

// Breakers reports which workers get no samples of a profile.
type Breakers interface {
	// Any reports whether there is such a worker.
	Any() bool
	// Places returns how many of the worker's capacity places for the profile may be used.
	Places(worker, profile string, capacity int) int
}

// announced is where a worker says what it is to a profile.
type announced struct{ worker, profile int }

// NewBoard returns the board of a gateway. queues maps the name of each profile to the name of its
// ticket queue; names with the same queue are one profile.
func NewBoard(gateway string, cfg Config, queues map[string]string, breakers Breakers) *Board {
	b := &Board{gateway: gateway, cfg: cfg, breakers: breakers, byName: map[string]*Profile{}}
	by := map[string]*Profile{}
	for _, name := range slices.Sorted(maps.Keys(queues)) { // the default one has two names and one queue
		queue := queues[name]
		if p := by[queue]; p != nil {
			b.byName[name] = p
			continue
		}
		p := &Profile{
			name: name, queue: queue, board: b, waiting: newQueue(), runs: map[string]*Run{}, policy: newPolicy(cfg.Policy), backup: newBackup(cfg),
			busy: map[string]int{}, outages: map[string]*outage{}, aimed: map[Sample][]string{}, counted: -1,
		}
		b.profiles = append(b.profiles, p)
		b.byName[name], by[queue] = p, p
	}
	return b
}

// Expect announces the ticket queues that profiles are about to have. Workers that already take
// tickets from the new queue then do not count as workers with another configuration.
func (b *Board) Expect(queues map[string]string) {
	for name, queue := range queues {
		if p := b.byName[name]; p != nil {
			p.coming = queue
		}
	}
}

// Rename changes the ticket queues of profiles, and returns the profiles whose queue has changed.
// The workers of all profiles are unknown until the next Survey.
func (b *Board) Rename(queues map[string]string) map[*Profile]bool {
	renamed := map[*Profile]bool{}
	for name, queue := range queues {
		if p := b.byName[name]; p != nil && p.queue != queue {
			p.queue = queue
			renamed[p] = true
		}
	}
	for _, p := range b.profiles {
		p.coming = ""
	}
	b.version++
	b.workers, b.revs = nil, nil
	for _, p := range b.profiles {
		p.serving, p.other, p.counted = p.serving[:0], "", -1
	}
	return renamed
}

// Profile returns the profile of that name, or nil if the gateway has no such profile.
func (b *Board) Profile(name string) *Profile { return b.byName[name] }

// Profiles returns all profiles, sorted by name. The caller must not change the slice.
func (b *Board) Profiles() []*Profile { return b.profiles }

// Survey updates the list of live workers, and reports whether anything except counters has changed
// since the last Survey. The caller must not change workers afterwards.
func (b *Board) Survey(workers []wire.WorkerInfo) (fresh bool) {
	if len(b.workers) == len(workers) && (len(workers) == 0 || &b.workers[0] == &workers[0]) {
		return false
	}
	b.version++
	fresh = len(b.workers) != len(workers)
	for i := range workers {
		fresh = fresh || b.workers[i].ID != workers[i].ID || workers[i].Rev == 0 || b.revs[i] != workers[i].Rev
	}
	b.workers = workers
	if !fresh {
		return false
	}
	b.revs = b.revs[:0]
	for _, p := range b.profiles {
		p.serving, p.other = p.serving[:0], ""
	}
	for i := range workers {
		b.revs = append(b.revs, workers[i].Rev)
		for k, info := range workers[i].Profiles {
			p := b.byName[info.Name]
			switch {
			case p == nil:
			case p.queue != info.Queue && (p.coming == "" || p.coming != info.Queue):
				p.other = workers[i].ID
			default:
				p.serving = append(p.serving, announced{i, k})
			}
		}
	}
	return true
}

// Next returns the next sample to publish; the profiles take turns. If found is false, due is the
// time at which a backup request may be needed, or zero if that time is unknown.
func (b *Board) Next(now time.Time) (d Decision, found bool, due time.Time) {
	for k := range b.profiles {
		at := (b.turn + k) % len(b.profiles)
		p := b.profiles[at]
		p.wake(now)
		if len(p.waiting.waiting) == 0 || !p.Room(now) {
			continue
		}
		if d, found = p.policy.Choose(view{now, p}); found {
			b.turn = at + 1
			return d, true, due
		}
	}
	if b.cfg.BackupAfter == 0 {
		return d, false, due
	}
	for _, p := range b.profiles {
		s, at := p.secondTry(now)
		if s != nil {
			return Decision{Sample: s, Backup: true, Aside: p.backup.slow(view{now, p}, s)}, true, due
		}
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return d, false, due
}

// Reconsider returns the published samples whose tickets must be withdrawn at the time now.
func (b *Board) Reconsider(now time.Time) (back []Sample) {
	for _, p := range b.profiles {
		if len(p.aimed) > 0 {
			back = append(back, p.policy.Reconsider(view{now, p})...)
		}
	}
	return back
}

// Waiting reports whether any sample is queued, backs off, or is published for some of the workers
// only. The list of live workers may change without a notification, and therefore has to be checked
// while such samples exist.
func (b *Board) Waiting() bool {
	return slices.ContainsFunc(b.profiles, func(p *Profile) bool { return len(p.waiting.waiting) > 0 || len(p.aimed) > 0 || p.AnyBackingOff() })
}

// Forget deletes the state of a run. No sample of the run may be queued.
func (b *Board) Forget(run string) {
	for _, p := range b.profiles {
		delete(p.runs, run)
	}
}

// Clear deletes the steps of the run's finished epoch. No sample of the run may be queued.
func (b *Board) Clear(run string) {
	for _, p := range b.profiles {
		if r := p.runs[run]; r != nil {
			clear(r.stepQueues)
		}
	}
}

// Of returns how many samples of a run wait for a ticket, and the mean service time of one attempt,
// over all profiles.
func (b *Board) Of(run string) (queued int, mean time.Duration) {
	results := 0
	for _, p := range b.profiles {
		if r := p.runs[run]; r != nil {
			queued += r.queued + r.backingOff
			results += r.n
		}
	}
	for _, p := range b.profiles {
		if r := p.runs[run]; r != nil && results > 0 {
			mean += time.Duration(float64(r.mean) * float64(r.n) / float64(results))
		}
	}
	return queued, mean
}
