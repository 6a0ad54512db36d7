package localmodel

import (
	"context"
	"fmt"
	"sync"

	"github.com/rewardloop/rewardloop/rewards"
)

// flight is work that several callers wait for. It goes on as long as one of them does,
// whoever began it, and ends when it is done or when the last of them has left.
type flight[V any] struct {
	end     context.CancelFunc
	waiting int             // guarded by the group's mutex
	began   <-chan struct{} // closed when the model begins with it
	done    chan struct{}   // closed when value and err are written
	value   V
	err     error
}

// store keeps what was made. Its methods are called with the group's mutex held.
type store[V any] interface {
	get(key string) (V, error, bool)
	put(key string, v V, err error)
}

// group runs work at most once at a time for each key.
type group[V any] struct {
	loads bool // what the work does

	mu      sync.Mutex // guards what follows, and the flights' counts
	kept    store[V]
	flights map[string]*flight[V]
}

func newGroup[V any](kept store[V], loads bool) *group[V] {
	return &group[V]{kept: kept, loads: loads, flights: make(map[string]*flight[V])}
}

// do returns what is kept for the key, or what work makes of it. Work is given a context
// with the values of its first caller's, which ends when nobody waits any more; the last
// to leave waits until work has returned, so that it outlives no caller. The time of the
// callers' components starts when work calls rewards.Start, unless it loads: then they
// all still wait for what will execute them.
func (g *group[V]) do(ctx context.Context, key string, work func(ctx context.Context) (V, error)) (V, error) {
	g.mu.Lock()
	if v, err, ok := g.kept.get(key); ok {
		g.mu.Unlock()
		return v, err
	}
	f := g.flights[key]
	if f == nil {
		f = &flight[V]{done: make(chan struct{})}
		own, began := rewards.Joined(ctx)
		if !g.loads {
			f.began = began
		}
		own, f.end = context.WithCancel(own)
		g.flights[key] = f
		go g.fly(own, key, f, work) // waited for by the last of its callers
	}
	f.waiting++
	g.mu.Unlock()
	executing, err := rewards.Await(ctx, f.began, f.done)
	if err == nil {
		return f.value, f.err
	}
	if g.leave(key, f) {
		<-f.done
	}
	var none V
	return none, rewards.Ended(ctx, executing, rewards.BlameReward, fmt.Errorf("waiting for a load that other calls share: %w", err))
}

// leave takes a caller out, and ends the work if it was the last.
func (g *group[V]) leave(key string, f *flight[V]) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return false
	}
	if g.flights[key] == f {
		delete(g.flights, key) // whoever comes now begins anew
	}
	f.end()
	return true
}

func (g *group[V]) fly(ctx context.Context, key string, f *flight[V], work func(ctx context.Context) (V, error)) {
	defer g.land(ctx, key, f)
	f.err = errGone // which stays if nothing comes back
	f.err = rewards.Guard(func() (err error) {
		f.value, err = work(ctx)
		return err
	})
}

// errGone is the error of work that ended its goroutine.
var errGone = fmt.Errorf("%w: the work ended its goroutine (runtime.Goexit)", rewards.Panicked)

// land keeps what was made and lets those who wait go.
func (g *group[V]) land(ctx context.Context, key string, f *flight[V]) {
	g.mu.Lock()
	if ctx.Err() == nil || f.err == nil {
		g.kept.put(key, f.value, f.err)
	}
	if g.flights[key] == f {
		delete(g.flights, key)
	}
	g.mu.Unlock()
	f.end()
	close(f.done)
}
