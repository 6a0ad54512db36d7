package rewards

import (
	"math"
	"sync"
	"sync/atomic"
)

// Places counts the samples of one profile in one worker, by component, and computes how many more
// the worker can take. A sample occupies every component of its profile from Begin until that
// component is finished with the sample. So a sample that the worker takes does not wait for an
// executor.
//
// The concurrency of a process is divided among its workers. Places is safe for concurrent use.
type Places struct {
	m               atomic.Pointer[Manager]
	worker, workers int
	fixed           int // of every component, whatever its scorer says; 0: as it says

	mu         sync.Mutex
	unfinished []int // guarded by mu; samples whose component is unfinished, by component
	samples    int   // guarded by mu; those of which any is
}

// NewPlaces returns the places of one of a process's workers, which are numbered from 0.
func NewPlaces(m *Manager, worker, workers int) *Places {
	p := &Places{worker: worker, workers: workers, unfinished: make([]int, m.count())}
	p.m.Store(m)
	return p
}

// FixedPlaces returns the places of a worker in which every component can have n samples, whatever
// concurrency its scorer reports.
func FixedPlaces(m *Manager, n int) *Places {
	p := NewPlaces(m, 0, 1)
	p.fixed = n
	return p
}

// Follow replaces the manager by another manager with the same components (see Manager.With).
func (p *Places) Follow(m *Manager) { p.m.Store(m) }

// share is the worker's part of the process's n. What is left over by the division is
// with the first workers, of all profiles with the same ones, so that a worker which has
// a place of one component has one of the others.
func (p *Places) share(n int) int {
	own := n / p.workers
	if p.worker < n%p.workers {
		own++
	}
	return own
}

// Capacity returns the worker's share of the profile's capacity. It is 0 for the last workers of a
// process that has more workers than the profile has capacity.
func (p *Places) Capacity() int {
	if p.fixed > 0 {
		return p.fixed
	}
	return p.share(p.m.Load().Capacity())
}

// concurrency is the worker's part of a component's.
func (p *Places) concurrency(component int) int {
	if p.fixed > 0 {
		return p.fixed
	}
	return p.share(p.m.Load().concurrency(component))
}

// Narrow returns how many samples can begin at the same time if none is in flight: the worker's
// share of the lowest concurrency of a component.
func (p *Places) Narrow() int {
	n := p.Capacity()
	for i := range p.unfinished {
		n = min(n, p.concurrency(i))
	}
	return n
}

// Free returns how many more samples the worker can take: the minimum, over all components, of the
// component's concurrency minus its unfinished samples, and at most ManagerConfig.Concurrency minus
// the samples with any unfinished component. It is 0 if a concurrency has fallen below the number
// of samples in flight.
func (p *Places) Free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := math.MaxInt
	if bound := p.m.Load().cfg.Concurrency; bound > 0 && p.fixed == 0 {
		free = p.share(bound) - p.samples
	}
	for i, n := range p.unfinished {
		free = min(free, p.concurrency(i)-n)
	}
	return max(free, 0)
}

// Ahead reports whether the worker can take one sample beyond Free, which waits for an executor
// together with the calls of other profiles. Without such a sample, of two profiles that share one
// session, the profile with the greater weight would get no more calls than the other. Ahead is
// true if every component without a free place is exactly full, is executed by this process, and
// gets its concurrency from its scorer.
func (p *Places) Ahead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fixed > 0 || p.m.Load().cfg.Concurrency > 0 {
		return false
	}
	for i, n := range p.unfinished {
		if free := p.concurrency(i) - n; free < 0 || free == 0 && (p.concurrency(i) == 0 || !p.m.Load().computes(i)) {
			return false
		}
	}
	return true
}

// Begin lets one sample, or one group, occupy all components. The caller must end each component
// with End, or call Leave.
func (p *Places) Begin() *Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples++
	for i := range p.unfinished {
		p.unfinished[i]++
	}
	return &Place{of: p, ended: make([]bool, len(p.unfinished)), left: len(p.unfinished)}
}

// Place is the room that one sample occupies.
type Place struct {
	of    *Places
	ended []bool // guarded by the Places' mu; by component
	left  int    // guarded by the Places' mu; those that are not
}

// End marks a component as finished with the sample. A second call does nothing.
func (p *Place) End(component int) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.end(component)
}

// Leave ends all components that have not ended, for a sample that is not run after all.
func (p *Place) Leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	for i := range p.ended {
		p.end(i)
	}
}

// end is End. The caller holds the Places' mu.
func (p *Place) end(component int) {
	if p.ended[component] {
		return
	}
	p.ended[component] = true
	p.of.unfinished[component]--
	if p.left--; p.left == 0 {
		p.of.samples--
	}
}
