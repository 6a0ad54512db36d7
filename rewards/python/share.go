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

	mu    sync.Mutex
	taken int     // guarded by mu; of spare
	pools []*pool // guarded by mu
}

func newShare(cfg Config) *share {
	most := cfg.Processes
	if most == 0 {
		most = runtime.NumCPU()
	}
	return &share{spare: most - 1, explicit: cfg.Processes > 0, starting: make(chan struct{}, 1)}
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

// take takes one of the spare processes for a function; false: there is none for it.
func (s *share) take(waits bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken >= s.spare || waits && !s.explicit {
		return false
	}
	s.taken++
	return true
}

// give gives one back, and lets the functions whose calls wait have it.
func (s *share) give() {
	s.mu.Lock()
	s.taken--
	pools := slices.Clone(s.pools)
	s.mu.Unlock()
	for _, p := range pools {
		p.poke()
	}
}

func (s *share) join(p *pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools = append(s.pools, p)
}

func (s *share) leave(p *pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools = slices.DeleteFunc(s.pools, func(o *pool) bool { return o == p })
}
