package dispatch

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// speedWeighted is SpeedWeighted: it looks at each run in turn, and at each step of it: the
// first sample that a free worker may have is next. Those that had better wait for a faster
// worker stay where they are, and do not stand in the way of others.
//
// Where workers differ, a ticket is published only when a place is free that may take it:
// one that lay in the queue of tickets would be taken by whoever is free first, on a
// judgement that has grown old. Where they do not, it is as under Random.
type speedWeighted struct{ rating rating }

// Choose implements Policy.
func (p *speedWeighted) Choose(v view) (Decision, bool) {
	for _, r := range v.profile.waiting.runs() {
		f := p.rating.paceTable(v, r)
		if !f.uneven {
			return Decision{Sample: r.next()}, true
		}
		for _, l := range r.waitingStepQueues() {
			s := l.next()
			slow := f.tooSlow(v, l, s)
			free, refused := f.free(s, slow)
			if free > v.profile.out {
				return Decision{Sample: s, Aside: slow}, true
			}
			if i := s.Item(); refused > 0 && i.refused.IsZero() {
				i.refused = v.now
			}
		}
	}
	return Decision{}, false
}

// settled is how long a ticket that not every worker may take is left alone.
const settled = 100 * time.Millisecond

// Reconsider takes tickets back that only slower workers could take by now: the faster ones
// are gone, or busy for longer than was thought.
func (p *speedWeighted) Reconsider(v view) (back []Sample) {
	for _, d := range v.aimed() {
		if v.now.Sub(d.Sample.Published()) < settled {
			continue
		}
		i := d.Sample.Item()
		f := p.rating.paceTable(v, i.run)
		if free, _ := f.free(d.Sample, d.Aside); free > 0 {
			continue
		}
		slow := f.tooSlow(v, i.run.stepQueueOf(i.step), d.Sample)
		if free, _ := f.free(d.Sample, slow); free > 0 {
			back = append(back, d.Sample)
		}
	}
	return back
}

// rating is how fast workers are for each run of a profile, as of its latest count.
type rating struct {
	of    map[*Run]*paceTable
	looks int
}

func newRating() rating { return rating{of: map[*Run]*paceTable{}} }

// paceTable says how fast the live workers are for one run, the fastest first.
type paceTable struct {
	run      *Run
	byWorker []rated
	usual    float64 // log of the factor that the better workers have
	uneven   bool    // some are clearly slower
}

// rated is a worker with what its samples take, as a factor of the run's usual time.
type rated struct {
	workerPlaces

	factor float64
	slow   bool // beyond doubt
}

const (
	// clearly is how much slower a worker must be before it matters who gets the last
	// samples, its estimate less one standard error.
	clearly = 1.25
	// undeclared is the same for a step whose size nobody has declared: how long it will
	// go on is not known, and a place that waits may wait for nothing.
	undeclared = 2.0
)

// paceTable rates the workers for a run.
func (g *rating) paceTable(v view, r *Run) *paceTable {
	all := v.profile.count()
	if g.looks != v.profile.looks {
		g.looks = v.profile.looks
		clear(g.of)
	}
	if f := g.of[r]; f != nil {
		return f
	}
	f := &paceTable{run: r}
	g.of[r] = f
	places := 0
	for _, s := range all {
		if s.capacity == 0 {
			continue
		}
		factor, _ := r.pace.factor(s.id)
		f.byWorker = append(f.byWorker, rated{workerPlaces: s, factor: factor})
		places += s.capacity
	}
	slices.SortStableFunc(f.byWorker, func(a, b rated) int { return cmp.Compare(a.factor, b.factor) })
	for i, n := 0, 0; i < len(f.byWorker); i++ { // the place at a quarter: one lucky worker is no measure
		if n += f.byWorker[i].capacity; 4*n >= places {
			f.usual = f.byWorker[i].factor
			break
		}
	}
	for i := range f.byWorker {
		s := &f.byWorker[i]
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
func (f *paceTable) tooSlow(v view, l *stepQueue, s Sample) []string {
	var out []string
	i := s.Item()
	unit, limit := f.run.pace.level.value, clearly
	coming, last := l.toCome(v.now)
	if l.step.Expected() == 0 {
		limit = undeclared
	}
	ahead := v.profile.out + coming
	for _, o := range f.run.stepQueues {
		if o == l || o.samples.Len() > 0 && o.step.Closes().Before(l.step.Closes()) {
			ahead += o.samples.Len()
		}
	}
	share := v.profile.waiting.share(f.run)
	for k := range f.byWorker {
		w := &f.byWorker[k]
		if !w.slow || w.factor < limit*f.usual {
			continue
		}
		speed, idle := 0.0, 0
		for n := range f.byWorker { // by factor: the faster ones come first
			o := &f.byWorker[n]
			if o.factor*clearly > w.factor {
				break
			}
			speed += float64(o.capacity) / o.factor
			idle += o.free
		}
		own := seconds(unit * w.factor)
		if speed == 0 || !i.refused.IsZero() && v.now.Sub(i.refused) >= own {
			continue
		}
		queue := seconds(float64(max(ahead-idle, 0)) * unit / (speed * share))
		done := max(last, queue) + seconds(unit*f.usual)
		if own > done {
			out = append(out, w.id)
		}
	}
	return out
}

func seconds(s float64) time.Duration {
	return time.Duration(math.Min(s, 1e6) * float64(time.Second))
}

// free counts the free places of workers that may have the sample, and of those that are
// thought too slow for it.
func (f *paceTable) free(s Sample, slow []string) (free, refused int) {
	spurned := 0
	for k := range f.byWorker {
		w := &f.byWorker[k]
		switch {
		case slices.Contains(slow, w.id):
			refused += w.free
		case s.Avoids(w.id) || s.HeldBy(w.id):
			spurned += w.free
		default:
			free += w.free
		}
	}
	if free == 0 && spurned > 0 && s.Tried() >= len(f.byWorker)-len(slow) {
		free = spurned // whoever is left has failed it before
	}
	return free, refused
}
