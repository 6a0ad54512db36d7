package localmodel

import (
	"context"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// Once makes one value, such as a loaded model, and keeps it for good. It is safe for
// concurrent use.
type Once[V any] struct{ group *group[V] }

// NewOnce makes one that has made nothing yet. A failure is answered from memory for as
// long as remember says of it, so that a wrong folder costs a reading every few seconds
// and not one for each sample; 0, or a nil remember: whoever asks next tries again.
func NewOnce[V any](remember func(err error) time.Duration) *Once[V] {
	if remember == nil {
		remember = func(error) time.Duration { return 0 }
	}
	return &Once[V]{newGroup(&single[V]{remember: remember}, true)}
}

// Get returns the value, or what work makes of it. Work runs once for all who ask at the
// same time: its context has the values of the first one's, and ends when nobody waits
// any more. An error is work's, marked infer.ErrLoad, or wraps that of ctx; a panic is of class
// rewards.Panicked.
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

// Foreseer is implemented by Nets that know what a device has before a model is loaded.
type Foreseer interface {
	// On is a rewards.Concurrent: the calls of any model that the device executes at a time.
	On(device string) any
}

// Concurrency says of a scorer that runs models here what decides how many of its calls
// are executed at a time, for people.
const Concurrency = "on the CPU one call for each session (pool.onnx.slots, one for each CPU), on a GPU twice the largest batch (pool.onnx.max_batch, 32)"

// Executors is what executes the calls of a scorer with several models on one device: that
// of the model with the fewest calls at a time, or where none is loaded yet what the
// device will have. rewards.ConcurrencyOf says how many calls that are.
func Executors(nets infer.Nets, device string, loaded ...infer.Net) any {
	if len(loaded) > 0 {
		return rewards.Narrowest(loaded...)
	}
	if f, ok := nets.(Foreseer); ok {
		return f.On(device)
	}
	return nil
}
