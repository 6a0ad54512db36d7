package loop

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// chooseBySpeed looks at each run in turn, and at each step of it: the first sample that
// a free worker may have is next. Those that had better wait for a faster worker stay
// where they are, and do not stand in the way of others.
//
// Where workers differ, a ticket is published only when a slot is free that may take it:
// one that lay in the engine would be taken by whoever is free first, on a judgement that
// has grown old. Where they do not, it is as under Random.
func (c *core) chooseBySpeed(now time.Time, workers []wire.WorkerInfo) (*entry, []string) {
	c.bench.see(workers)
	var waiting []*run
	for _, r := range c.runs {
		if r.queued > 0 {
			waiting = append(waiting, r)
		}
	}
	slices.SortFunc(waiting, func(a, b *run) int {
		if a.precedes(b) {
			return -1
		}
		return 1
	})
	for _, r := range waiting {
		f := c.fieldOf(r)
		if !f.uneven {
			if e := r.next(c.room); e != nil {
				return e, nil
			}
			continue
		}
		for _, l := range r.waitingLanes() {
			e := l.next(c.room)
			if e == nil {
				continue
			}
			slow := f.tooSlow(now, c, l, e)
			free, refused := f.free(e, slow)
			if free > c.unclaimed {
				return e, slow
			}
			if refused > 0 && e.refused.IsZero() {
				e.refused = now
			}
		}
	}
	return nil, nil
}

// field is how fast the live workers are for one run, the fastest first.
type field struct {
	run    *run
	seats  []rated
	usual  float64 // log of the factor that the better workers have
	uneven bool    // some are clearly slower
}

// rated is a worker with what its samples take, as a factor of the run's usual time.
type rated struct {
	seat

	factor float64
	slow   bool // beyond doubt
}

const (
	// clearly is how much slower a worker must be before it matters who gets the last
	// samples, its estimate less one standard error.
	clearly = 1.25
	// undeclared is the same for a step whose size nobody has declared: how long it will
	// go on is not known, and a slot that waits may wait for nothing.
	undeclared = 2.0
)

// fieldOf rates the workers for a run.
func (c *core) fieldOf(r *run) *field {
	if f := c.bench.field[r]; f != nil {
		return f
	}
	f := &field{run: r}
	c.bench.field[r] = f
	slots := 0
	for _, s := range c.bench.seats {
		factor, _ := r.pace.factor(s.id)
		f.seats = append(f.seats, rated{seat: s, factor: factor})
		slots += s.slots
	}
	slices.SortStableFunc(f.seats, func(a, b rated) int { return cmp.Compare(a.factor, b.factor) })
	for i, n := 0, 0; i < len(f.seats); i++ { // the slot at a quarter: one lucky worker is no measure
		if n += f.seats[i].slots; 4*n >= slots {
			f.usual = f.seats[i].factor
			break
		}
	}
	for i := range f.seats {
		s := &f.seats[i]
		_, doubt := r.pace.factor(s.id)
		s.slow = s.factor/doubt >= clearly*f.usual
		f.uneven = f.uneven || s.slow
	}
	return f
}

// tooSlow names the workers that are to leave a sample to faster ones: those that would
// answer after the whole step could be done without them. A step cannot be done before
// its last sample has come, nor before the faster workers have been through the queue;
// and then that last sample has to be scored by one of them.
//
// A sample is kept from a worker no longer than that worker would have needed for it:
// whatever is wrong with the estimate, no more than that is lost.
func (f *field) tooSlow(now time.Time, c *core, l *lane, e *entry) []string {
	var out []string
	unit, limit := f.run.pace.level.value, clearly
	coming, last := l.toCome(now)
	if l.step.Expected() == 0 {
		limit = undeclared
	}
	ahead := c.unclaimed + coming
	for _, o := range f.run.lanes {
		if o == l || o.queued > 0 && o.step.Closes().Before(l.step.Closes()) {
			ahead += o.queued
		}
	}
	share := c.share(f.run)
	for _, s := range f.seats {
		if !s.slow || s.factor < limit*f.usual || !s.serves(e.profile) {
			continue
		}
		speed, idle := 0.0, 0
		for _, o := range f.seats { // by factor: the faster ones come first
			if o.factor*clearly > s.factor {
				break
			}
			if !o.serves(e.profile) {
				continue
			}
			speed += float64(o.slots) / o.factor
			idle += o.free
		}
		own := seconds(unit * s.factor)
		if speed == 0 || !e.refused.IsZero() && now.Sub(e.refused) >= own {
			continue
		}
		queue := seconds(float64(max(ahead-idle, 0)) * unit / (speed * share))
		done := max(last, queue) + seconds(unit*f.usual)
		if own > done {
			out = append(out, s.id)
		}
	}
	return out
}

func seconds(s float64) time.Duration {
	return time.Duration(math.Min(s, 1e6) * float64(time.Second))
}

// share is the part of the slot time that is the run's among those with samples waiting.
func (c *core) share(r *run) float64 {
	sum := 0.0
	for _, o := range c.runs {
		if o == r || o.queued > 0 {
			sum += o.weight
		}
	}
	return r.weight / sum
}

// free counts the free slots of workers that may have the entry, and of those that are
// thought too slow for it.
func (f *field) free(e *entry, slow []string) (free, refused int) {
	spurned := 0
	for _, s := range f.seats {
		switch {
		case !s.serves(e.profile):
		case slices.Contains(slow, s.id):
			refused += s.free
		case slices.Contains(e.avoid, s.id) || e.heldBy(s.id):
			spurned += s.free
		default:
			free += s.free
		}
	}
	if free == 0 && spurned > 0 && len(e.avoid)+len(e.holders) >= len(f.seats)-len(slow) {
		free = spurned // whoever is left has failed it before
	}
	return free, refused
}

// rateAgain takes tickets back that only slower workers could take by now: the faster
// ones are gone, or busy for longer than was thought.
func (c *core) rateAgain(now time.Time, workers []wire.WorkerInfo, fx *effects) {
	for _, e := range inOrder(maps.Keys(c.bench.aimed)) {
		if now.Sub(e.published) < presencePoll {
			continue
		}
		c.bench.see(workers)
		f := c.fieldOf(e.run)
		if free, _ := f.free(e, e.slow); free > 0 {
			continue
		}
		slow := f.tooSlow(now, c, e.run.laneOf(e.step), e)
		if free, _ := f.free(e, slow); free == 0 {
			continue
		}
		c.takeBack(now, e, fx)
	}
}
