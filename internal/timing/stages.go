package timing

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// The stages that are told of.
const (
	// Decode is from encoded bytes to pixels.
	Decode = "decode"
	// BatchWait is the wait of a request for a batch to join and a device to be free, and of its
	// sample for leave to be made ready.
	BatchWait = "batch_wait"
	// Infer is the run of the batch.
	Infer = "infer"
)

// Stages sums the times of one sample, by stage. Stages of components that run at once add up,
// so that their sum may exceed the time that has passed. It is safe for concurrent use.
type Stages struct {
	mu   sync.Mutex
	took map[string]time.Duration // guarded by mu; nil until there is one
	keep bool                     // guarded by mu
	kept []Interval               // guarded by mu
}

// Interval is one of the times that were summed.
type Interval struct {
	Stage    string
	From, To time.Time
}

// MaxKept bounds the intervals that are kept of a sample.
const MaxKept = 64

type key struct{}

// WithStages returns a context whose work is summed.
func WithStages(ctx context.Context) (context.Context, *Stages) {
	s := new(Stages)
	return context.WithValue(ctx, key{}, s), s
}

// Spent adds the time between two moments to a stage of the context's sample, if it has one.
func Spent(ctx context.Context, stage string, from, to time.Time) {
	if s, ok := ctx.Value(key{}).(*Stages); ok {
		s.Add(stage, from, to)
	}
}

// Keep has the intervals kept that come from now on, the first MaxKept of them.
func (s *Stages) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = true
}

// Kept returns the intervals so far, in the order in which they were added.
func (s *Stages) Kept() []Interval {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// Add adds the time between two moments to a stage.
func (s *Stages) Add(stage string, from, to time.Time) {
	d := to.Sub(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keep && len(s.kept) < MaxKept {
		s.kept = append(s.kept, Interval{stage, from, to})
	}
	if s.took == nil {
		s.took = make(map[string]time.Duration, 4)
	}
	s.took[stage] += d
}

// Took returns what was added so far; nil: nothing.
func (s *Stages) Took() map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.took)
}
