package python

import (
	"fmt"
	"slices"
	"sync"

	"github.com/rewardloop/rewardloop/rewards"
)

// Functions are all Python functions of a process: what makes their scorers, and
// what these count together. The zero value is not usable; it is safe for
// concurrent use.
type Functions struct {
	cfg     Config
	devices Devices
	share   *share

	mu     sync.Mutex
	made   []*Scorer // guarded by mu; with those that are closed
	models []*Runner // guarded by mu; likewise
}

// NewFunctions takes the configuration that all functions share, and what runs models; nil: nothing
// does. Nothing is started.
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

// Len is how many functions were made.
func (f *Functions) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.made)
}

// Each calls do with every function, by file or module and name, and how
// its processes are. Two entries may have one function; do is called for each.
func (f *Functions) Each(do func(function string, s Stats)) {
	f.mu.Lock()
	made := slices.Clone(f.made)
	f.mu.Unlock()
	for _, one := range made {
		do(one.opts.label(), one.Stats())
	}
}

// Stats adds up what the processes of all functions are and count; LastError is the
// last of any that has one.
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
