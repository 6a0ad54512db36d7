package dispatch

import (
	"math"
	"slices"
	"time"
)

// backup is about backup requests: near the end of a step, when places are idle anyway, a
// sample that runs far longer than samples do gets a second ticket. A worker that hangs, or a
// server's hiccup, then costs the step a second service time instead of its own. The first
// result wins; the gateway takes the other attempt back.
type backup struct {
	cfg    Config
	rating rating
}

func newBackup(cfg Config) *backup { return &backup{cfg, newRating()} }

// minObserved is how many results a run must have before it is known what is long.
const minObserved = 8

// secondTry picks a sample that is to have a second ticket, or none; due is then when there may
// be one, and zero if that is not known. It looks only where no sample waits that a worker
// could take and a place is free, and then at the oldest of each step's running samples, so
// that its cost is the number of steps with samples in flight plus that of the samples which
// are overdue: 5,120 that run cost nothing.
func (p *Profile) secondTry(now time.Time) (best Sample, due time.Time) {
	if len(p.waiting.waiting) > 0 && p.Served() || p.Free() <= p.out || !p.Room(now) {
		return nil, due
	}
	v, b := view{now, p}, p.backup
	var bestDue time.Time
	for _, r := range p.runs {
		patience := r.patience(b.cfg.BackupAfter)
		for _, l := range r.stepQueues {
			if patience == 0 || !l.step.Whole() || l.backups >= l.mayHave(b.cfg.BackupShare) {
				continue
			}
			s, at := b.oldest(v, l, patience)
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
func (l *stepQueue) mayHave(share float64) int {
	return max(1, int(math.Floor(share*float64(max(l.step.Expected(), l.step.Arrived())))))
}

// overlooked bounds the overdue samples that are looked at for one whose worker is not
// the only idle one.
const overlooked = 64

// oldest returns the sample of a step queue that has run too long for longest and that another
// idle worker could take, and since when; if none has, when one will have.
func (b *backup) oldest(v view, l *stepQueue, patience time.Duration) (Sample, time.Time) {
	seen := 0
	for el := l.running.Front(); el != nil && seen < overlooked; el = el.Next() {
		s, _ := el.Value.(Sample)
		due := s.Claimed().Add(patience)
		if due.After(v.now) {
			return nil, due
		}
		if b.idleFor(v, s) {
			return s, due
		}
		seen++
	}
	return nil, time.Time{}
}

// idleFor reports whether a worker is idle that neither has the sample nor has failed it
// nor is known to be slow.
func (b *backup) idleFor(v view, s Sample) bool {
	slow := b.slow(v, s)
	return slices.ContainsFunc(v.profile.count(), func(w workerPlaces) bool {
		return w.free > 0 && !s.Avoids(w.id) && !s.HeldBy(w.id) && !slices.Contains(slow, w.id)
	})
}

// slow names the workers that are too slow to help with a sample that is late already.
func (b *backup) slow(v view, s Sample) []string {
	if b.cfg.Policy != SpeedWeighted {
		return nil
	}
	var out []string
	for _, w := range b.rating.paceTable(v, s.Item().run).byWorker {
		if w.slow {
			out = append(out, w.id)
		}
	}
	return out
}

// Running records that s is the sample of its step that was claimed last, so that s may get a
// backup request later.
func Running(s Sample) {
	Over(s)
	i := s.Item()
	i.watched = i.run.stepQueueOf(i.step).running.PushBack(s)
}

// Over removes s from the samples that may get a backup request.
func Over(s Sample) {
	if i := s.Item(); i.watched != nil {
		i.run.stepQueueOf(i.step).running.Remove(i.watched)
		i.watched = nil
	}
}

// Sent records that s has its backup request.
func Sent(s Sample) {
	Over(s)
	i := s.Item()
	i.run.stepQueueOf(i.step).backups++
}
