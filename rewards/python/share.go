package python

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// slowStart is how long a process that starts keeps others from starting: one that loads
// a large model, or hangs, lets them pass then.
const slowStart = 10 * time.Second

// share is what the functions of a server process have between them: they start one
// process at a time, and have a number of processes beyond the first of each.
type share struct {
	spare    int           // processes beyond the first of each function
	explicit bool          // the number was configured, and is for functions that wait as well
	starting chan struct{} // capacity 1: the turn to start

	mu      sync.Mutex
	taken   int                    // guarded by mu; of spare
	pools   []*processes           // guarded by mu
	demands map[*processes]*demand // guarded by mu
	ceding  bool                   // guarded by mu; a function gives one up for another
}

// demand is what a function has and wants of the processes. They go to the functions whose
// calls wait, in proportion to the weights of the tenants that these calls are of.
type demand struct {
	processes int
	weight    float64
	wants     bool // it would start one more
}

// less reports whether d, with one process more, would have less by its weight than o has, with
// so many more.
func (d *demand) less(o *demand, more int) bool {
	return float64(d.processes+1)*o.weight < float64(o.processes+more)*d.weight
}

func newShare(cfg Config) *share {
	most := cfg.Processes
	if most == 0 {
		most = runtime.NumCPU()
	}
	return &share{spare: most - 1, explicit: cfg.Processes > 0, starting: make(chan struct{}, 1), demands: map[*processes]*demand{}}
}

// turn waits for the turn to start a process. The caller calls done when it has started;
// false: stopping was closed first.
func (s *share) turn(stopping <-chan struct{}) (done func(), ok bool) {
	select {
	case s.starting <- struct{}{}:
	case <-stopping:
		return nil, false
	}
	pass := sync.OnceFunc(func() { <-s.starting })
	slow := time.AfterFunc(slowStart, pass)
	return func() {
		slow.Stop()
		pass()
	}, true
}

// take takes one of the spare processes for a function that has so many processes, and whose
// tenants have that weight. False: there is none for it, or it is another's turn; the function is
// poked when there may be one.
func (s *share) take(p *processes, waits bool, processes int, weight float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waits && !s.explicit {
		return false
	}
	d := s.demands[p]
	if d == nil { // it has been closed
		return false
	}
	*d = demand{processes, weight, true}
	if s.taken >= s.spare {
		return false
	}
	for _, o := range s.demands {
		if o != d && o.wants && o.less(d, 1) {
			return false
		}
	}
	d.wants = false
	s.taken++
	return true
}

// content says that a function wants no more processes.
func (s *share) content(p *processes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.demands[p]; d != nil {
		d.wants = false
	}
}

// cede reports whether a function should give a spare process up, because another has less by
// its weight, would not have more then, and wants one. One process is given up at a time.
func (s *share) cede(p *processes, processes int, weight float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ceding || s.taken < s.spare {
		return false
	}
	d := s.demands[p]
	if d == nil {
		return false
	}
	d.processes, d.weight = processes, weight
	for _, o := range s.demands {
		if o != d && o.wants && o.less(d, 0) {
			s.ceding = true
			return true
		}
	}
	return false
}

// give gives one back, and lets the functions whose calls wait have it.
func (s *share) give() {
	s.mu.Lock()
	s.taken--
	s.ceding = false
	pools := slices.Clone(s.pools)
	s.mu.Unlock()
	for _, p := range pools {
		p.poke()
	}
}

func (s *share) join(p *processes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools = append(s.pools, p)
	s.demands[p] = &demand{weight: 1}
}

func (s *share) leave(p *processes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools = slices.DeleteFunc(s.pools, func(o *processes) bool { return o == p })
	delete(s.demands, p)
}
