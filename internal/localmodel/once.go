package localmodel

import (
	"context"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// Once makes one value, such as a loaded model, and keeps it forever. It is safe for concurrent
// use.
type Once[V any] struct{ group *group[V] }

// NewOnce returns an empty Once. An error is returned again without calling work for the time that
// remember returns for it, so that a wrong folder is read every few seconds and not for each
// sample. With 0 or a nil remember, the next call tries again.
func NewOnce[V any](remember func(err error) time.Duration) *Once[V] {
	if remember == nil {
		remember = func(error) time.Duration { return 0 }
	}
	return &Once[V]{newGroup(&single[V]{remember: remember}, true)}
}

// Get returns the value, or calls work to make it. Concurrent calls share one call of work, whose
// context has the values of the first caller's context, and ends when no caller waits any more. An
// error is that of work, marked infer.ErrLoad, or wraps that of ctx; a panic becomes an error of
// class rewards.Panicked.
func (o *Once[V]) Get(ctx context.Context, work func(ctx context.Context) (V, error)) (V, error) {
	return o.group.do(ctx, "", func(ctx context.Context) (V, error) {
		v, err := work(ctx)
		return v, infer.Marked(infer.ErrLoad, err)
	})
}

// Made returns the value if it has been made.
func (o *Once[V]) Made() (V, bool) {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	v, err, ok := o.group.kept.get("")
	return v, ok && err == nil
}

// single is the store of a Once.
type single[V any] struct {
	remember func(err error) time.Duration

	value V
	have  bool
	err   error
	until time.Time // of err
}

func (s *single[V]) get(string) (V, error, bool) {
	if s.err != nil && !time.Now().Before(s.until) {
		s.err = nil
	}
	return s.value, s.err, s.have || s.err != nil
}

func (s *single[V]) put(_ string, v V, err error) {
	if err == nil {
		s.value, s.have = v, true
		return
	}
	s.err, s.until = err, time.Now().Add(s.remember(err))
}

// Foreseer is implemented by Nets that can describe a device before a model is loaded.
type Foreseer interface {
	// On returns a rewards.Concurrent for the device: the number of calls of a model that the
	// device executes at the same time.
	On(device string) any
}

// Concurrency describes, for people, what limits the number of concurrent calls of a scorer with
// models in this process.
const Concurrency = "on the CPU one call for each session (pool.onnx.slots, one for each CPU), on a GPU twice the largest batch (pool.onnx.max_batch, 32)"

// Executors returns the value whose rewards.ConcurrencyOf is the number of concurrent calls of a
// scorer with several models on one device: the loaded model with the fewest concurrent calls, or
// what the device will have if no model is loaded yet.
func Executors(nets infer.Nets, device string, loaded ...infer.Net) any {
	if len(loaded) > 0 {
		return rewards.Narrowest(loaded...)
	}
	if f, ok := nets.(Foreseer); ok {
		return f.On(device)
	}
	return nil
}
