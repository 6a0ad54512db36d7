package python

import (
	"fmt"
	"slices"
	"sync"

	"github.com/rewardloop/rewardloop/rewards"
)

// Functions creates the scorers of all Python functions of a server process, and counts their
// processes together. The zero value is not usable. Functions is safe for concurrent use.
type Functions struct {
	cfg     Config
	devices Devices
	share   *share

	mu     sync.Mutex
	made   []*Scorer // guarded by mu; with those that are closed
	models []*Runner // guarded by mu; likewise
}

// NewFunctions returns Functions with the configuration that all functions share. devices runs the
// models; if it is nil, there are no models. NewFunctions starts nothing.
func NewFunctions(cfg Config, devices Devices) *Functions {
	return &Functions{cfg: cfg, devices: devices, share: newShare(cfg)}
}

func (f *Functions) make(opts Options) (rewards.Scorer, error) {
	if opts.Grouped() {
		return nil, fmt.Errorf("python: %s scores whole prompt groups", opts.label())
	}
	if opts.Placement != nil {
		m, err := f.newModel(opts)
		if err != nil {
			return nil, err
		}
		return m.scorer(), nil
	}
	s, err := f.newScorer(opts)
	if err != nil {
		return nil, err
	}
	return s.scorer(), nil
}

// newScorer makes the processes of a function, which count among all.
func (f *Functions) newScorer(opts Options) (*Scorer, error) {
	s, err := newScorer(f.cfg, opts, f.share)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made = append(f.made, s)
	return s, nil
}

// Len returns how many functions were created.
func (f *Functions) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.made)
}

// Each calls do with every function, by its file or module and its name, and with the state of its
// processes. If two components use the same function, do is called for each of them.
func (f *Functions) Each(do func(function string, s Stats)) {
	f.mu.Lock()
	made := slices.Clone(f.made)
	f.mu.Unlock()
	for _, one := range made {
		do(one.opts.label(), one.Stats())
	}
}

// Stats returns the sums over the processes of all functions. LastError is the error of the last
// function that has one.
func (f *Functions) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	var sum Stats
	if len(f.made) > 0 {
		sum.Processes = f.share.spare
	}
	for _, one := range f.made {
		s := one.Stats()
		sum.Processes++ // its own
		sum.Alive += s.Alive
		sum.Running += s.Running
		sum.Waiting += s.Waiting
		if s.Reason != "" {
			sum.Reason, sum.BackoffUntil = s.Reason, s.BackoffUntil
		}
		sum.Async = sum.Async || s.Async
		sum.PIDs = append(sum.PIDs, s.PIDs...)
		sum.Calls += s.Calls
		sum.Restarts += s.Restarts
		sum.Crashes += s.Crashes
		sum.Timeouts += s.Timeouts
		if s.LastError != "" {
			sum.LastError = s.LastError
		}
	}
	return sum
}
