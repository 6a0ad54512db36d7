package timing

import (
	"context"
	"maps"
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
}

type key struct{}

// WithStages returns a context whose work is summed.
func WithStages(ctx context.Context) (context.Context, *Stages) {
	s := new(Stages)
	return context.WithValue(ctx, key{}, s), s
}

// Spent adds to a stage of the context's sample, if it has one.
func Spent(ctx context.Context, stage string, d time.Duration) {
	if s, ok := ctx.Value(key{}).(*Stages); ok {
		s.Add(stage, d)
	}
}

// Add adds to a stage.
func (s *Stages) Add(stage string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
