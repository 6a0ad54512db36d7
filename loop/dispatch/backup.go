package dispatch

import (
	"math"
	"slices"
	"time"
)

// Backup is about backup requests: near the end of a step, when places are idle anyway, a
// sample that runs far longer than samples do gets a second ticket. A worker that hangs, or a
// server's hiccup, then costs the step a second service time instead of its own. The first
// result wins; the gateway takes the other attempt back.
type Backup struct {
	cfg    Config
	rating rating
}

// NewBackup makes what decides about backup requests.
func NewBackup(cfg Config) *Backup {
	return &Backup{cfg: cfg, rating: rating{of: map[*Run]*field{}}}
}

// On reports whether there are backup requests at all.
func (b *Backup) On() bool { return b.cfg.BackupAfter > 0 }

// minObserved is how many results a run must have before it is known what is long.
const minObserved = 8

// Choose picks a sample that is to have a second ticket, or none; due is then when there may
// be one, and zero if that is not known. It is called when no sample waits that a live worker
// could take, and looks only when a place is idle, and then at the oldest of each step's
// running samples, so that its cost is the number of steps with samples in flight plus that
// of the samples which are overdue: 5,120 that run cost nothing.
func (b *Backup) Choose(v View, runs func(yield func(*Run) bool)) (best Sample, due time.Time) {
	v.seats()
	if v.Bench.free() <= v.Unclaimed {
		return nil, due
	}
	var bestDue time.Time
	for r := range runs {
		patience := r.patience(b.cfg.BackupAfter)
		for _, l := range r.lanes {
			if patience == 0 || !l.step.Whole() || l.backups >= l.mayHave(b.cfg.BackupShare) {
				continue
			}
			s, at := b.oldest(&v, l, patience)
			switch {
			case s == nil:
				if !at.IsZero() && (due.IsZero() || at.Before(due)) {
					due = at
				}
			case best == nil || at.Before(bestDue) || at.Equal(bestDue) && s.Item().order < best.Item().order:
				best, bestDue = s, at
			}
		}
	}
	return best, due
}

// patience is how long a sample of the run may run: so many times its usual service time.
func (r *Run) patience(after float64) time.Duration {
	if r.pace.usual.n < minObserved {
		return 0
	}
	return seconds(after * r.pace.usual.value)
}

// mayHave is how many backups a step may have.
func (l *lane) mayHave(share float64) int {
	return max(1, int(math.Floor(share*float64(max(l.step.Expected(), l.step.Arrived())))))
}

// overlooked bounds the overdue samples that are looked at for one whose worker is not
// the only idle one.
const overlooked = 64

// oldest returns the sample of a lane that has run too long for longest and that another
// idle worker could take, and since when; if none has, when one will have.
func (b *Backup) oldest(v *View, l *lane, patience time.Duration) (Sample, time.Time) {
	seen := 0
	for el := l.running.Front(); el != nil && seen < overlooked; el = el.Next() {
		s, _ := el.Value.(Sample)
		due := s.Claimed().Add(patience)
		if due.After(v.Now) {
			return nil, due
		}
		if b.idleFor(v, s) && v.Room(s.Item().profile) {
			return s, due
		}
		seen++
	}
	return nil, time.Time{}
}

// idleFor reports whether a worker is idle that neither has the sample nor has failed it
// nor is known to be slow.
func (b *Backup) idleFor(v *View, s Sample) bool {
	slow := b.Slow(*v, s)
	seats := v.seats()
	for k := range seats {
		w := &seats[k]
		if w.free > 0 && v.Bench.serves(w, s.Item().profile) && !s.Avoids(w.id) && !s.HeldBy(w.id) && !slices.Contains(slow, w.id) {
			return true
		}
	}
	return false
}

// Slow names the workers that are too slow to help with a sample that is late already.
func (b *Backup) Slow(v View, s Sample) []string {
	if b.cfg.Policy != SpeedWeighted {
		return nil
	}
	var out []string
	for _, w := range b.rating.field(&v, s.Item().run).seats {
		if w.slow {
			out = append(out, w.id)
		}
	}
	return out
}

// Running files a sample as the one of its step that was claimed last: it may get a backup.
func (b *Backup) Running(s Sample) {
	b.Over(s)
	i := s.Item()
	i.watched = i.run.laneOf(i.step).running.PushBack(s)
}

// Over takes a sample from those that may get a backup.
func (b *Backup) Over(s Sample) {
	if i := s.Item(); i.watched != nil {
		i.run.laneOf(i.step).running.Remove(i.watched)
		i.watched = nil
	}
}

// Sent notes that a sample has its backup.
func (b *Backup) Sent(s Sample) {
	b.Over(s)
	i := s.Item()
	i.run.laneOf(i.step).backups++
}
