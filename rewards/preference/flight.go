package preference

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// flight is work that several callers wait for. It goes on as long as one of them does,
// whoever began it, and ends when it is done or when the last of them has left.
type flight[T any] struct {
	end     context.CancelFunc
	waiting int           // guarded by the group's mutex
	done    chan struct{} // closed when value and err are written
	value   T
	err     error
}

// store keeps what was computed. Its methods are called with the group's mutex held.
type store[K comparable, T any] interface {
	get(k K) (T, error, bool)
	put(k K, v T, err error)
}

// group runs work at most once at a time for each key.
type group[K comparable, T any] struct {
	mu      sync.Mutex // guards what follows, and the flights' counts
	kept    store[K, T]
	flights map[K]*flight[T]
}

func newGroup[K comparable, T any](kept store[K, T]) *group[K, T] {
	return &group[K, T]{kept: kept, flights: make(map[K]*flight[T])}
}

// do returns what is kept for the key, or what work makes of it. Work is given a context
// with the values of its first caller's, which ends when nobody waits any more; the last
// to leave waits until work has returned, so that it outlives no caller.
func (g *group[K, T]) do(ctx context.Context, k K, work func(ctx context.Context) (T, error)) (T, error) {
	g.mu.Lock()
	if v, err, ok := g.kept.get(k); ok {
		g.mu.Unlock()
		return v, err
	}
	f := g.flights[k]
	if f == nil {
		f = &flight[T]{done: make(chan struct{})}
		own, end := context.WithCancel(context.WithoutCancel(ctx))
		f.end = end
		g.flights[k] = f
		go g.fly(own, k, f, work) // waited for by the last of its callers
	}
	f.waiting++
	g.mu.Unlock()
	select {
	case <-f.done:
		return f.value, f.err
	case <-ctx.Done():
	}
	if g.leave(k, f) {
		<-f.done
	}
	var none T
	return none, fmt.Errorf("waiting for what others asked for too: %w", ctx.Err())
}

// leave takes a caller out, and ends the work if it was the last.
func (g *group[K, T]) leave(k K, f *flight[T]) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return false
	}
	if g.flights[k] == f {
		delete(g.flights, k) // whoever comes now begins anew
	}
	f.end()
	return true
}

func (g *group[K, T]) fly(ctx context.Context, k K, f *flight[T], work func(ctx context.Context) (T, error)) {
	defer f.end()
	f.err = guarded(func() (err error) {
		f.value, err = work(ctx)
		return err
	})
	g.mu.Lock()
	if ctx.Err() == nil || f.err == nil {
		g.kept.put(k, f.value, f.err)
	}
	if g.flights[k] == f {
		delete(g.flights, k)
	}
	g.mu.Unlock()
	close(f.done)
}

// guarded calls do, and makes an error of a panic. It stands in each goroutine: a fault
// of this package fails a sample, not the process.
func guarded(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", rewards.Panicked, p, debug.Stack())
		}
	}()
	return do()
}

// remember is how long a failure that another try would only repeat is answered from
// memory: a wrong folder costs a reading every few seconds, not one for each sample.
const remember = 5 * time.Second

// single keeps one value for good, and a lasting failure for a while.
type single[T any] struct {
	value T
	have  bool
	err   error
	until time.Time // of err
}

func (s *single[T]) get(struct{}) (T, error, bool) {
	if s.err != nil && time.Now().After(s.until) {
		s.err = nil
	}
	return s.value, s.err, s.have || s.err != nil
}

func (s *single[T]) put(_ struct{}, v T, err error) {
	switch {
	case err == nil:
		s.value, s.have = v, true
	case lasting(err):
		s.err, s.until = err, time.Now().Add(remember)
	}
}

// newOnce is a group of one key whose success is kept for good.
func newOnce[T any]() *group[struct{}, T] { return newGroup[struct{}, T](&single[T]{}) }
