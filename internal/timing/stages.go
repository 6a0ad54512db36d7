package timing

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// The stages that are reported.
const (
	// Decode is the decoding of encoded bytes to pixels.
	Decode = "decode"
	// BatchWait is the time that a request waits for a batch and a free device, and that its sample
	// waits for admission to its preparation.
	BatchWait = "batch_wait"
	// Infer is the run of the batch.
	Infer = "infer"
)

// Stages contains the times of one sample by stage. The times of components that run concurrently
// are added, so that their sum may exceed the elapsed time. Stages is safe for concurrent use.
type Stages struct {
	mu   sync.Mutex
	took map[string]time.Duration // guarded by mu; nil until there is one
	keep bool                     // guarded by mu
	kept []Interval               // guarded by mu
}

// Interval is one of the times that were added.
type Interval struct {
	Stage    string
	From, To time.Time
}

// MaxKept is the maximum number of intervals that are kept for a sample.
const MaxKept = 64

type key struct{}

// WithStages returns a context whose work is recorded in the returned Stages.
func WithStages(ctx context.Context) (context.Context, *Stages) {
	s := new(Stages)
	return context.WithValue(ctx, key{}, s), s
}

// Spent adds the time between two points in time to a stage of the context's sample, if the context
// has Stages.
func Spent(ctx context.Context, stage string, from, to time.Time) {
	if s, ok := ctx.Value(key{}).(*Stages); ok {
		s.Add(stage, from, to)
	}
}

// Keep keeps the intervals that are added from now on, the first MaxKept of them.
func (s *Stages) Keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep = true
}

// Kept returns the kept intervals, in the order in which they were added.
func (s *Stages) Kept() []Interval {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// Add adds the time between two points in time to a stage.
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

// Took returns the total time of each stage, or nil if there is none.
func (s *Stages) Took() map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.took)
}
