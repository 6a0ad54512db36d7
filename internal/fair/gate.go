package fair

import (
	"context"
	"sync"
	"time"
)

// Gate limits the number of calls that run at the same time. It is safe for concurrent use.
type Gate struct {
	executors int

	mu      sync.Mutex
	queue   *Queue[chan struct{}] // guarded by mu; a call's channel is closed when its turn comes
	running int                   // guarded by mu
}

// NewGate returns a gate with a number of executors, at least 1.
func NewGate(executors int) *Gate {
	return &Gate{executors: max(1, executors), queue: NewQueue[chan struct{}]()}
}

// Turn is the turn of a call at a gate: the call waits for an executor, and then has it. A Turn
// must be released.
type Turn struct {
	gate *Gate
	call *Call[chan struct{}]
}

// open is the channel of those whose turn comes at once.
var open = func() chan struct{} { //nolint:gochecknoglobals // it never changes
	c := make(chan struct{})
	close(c)
	return c
}()

// Join requests an executor without waiting for it.
func (g *Gate) Join(t Tenant) Turn {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running < g.executors { // then nobody waits
		g.running++
		return Turn{g, g.queue.Start(t, open, now)}
	}
	return Turn{g, g.queue.Push(t, make(chan struct{}), now)}
}

// Granted returns a channel that is closed when the call has an executor.
func (t Turn) Granted() <-chan struct{} { return t.call.Value }

// Acquire waits for an executor. The error is that of ctx.
func (g *Gate) Acquire(ctx context.Context, t Tenant) (Turn, error) {
	if err := ctx.Err(); err != nil {
		return Turn{}, err
	}
	turn := g.Join(t)
	if turn.call.Value == open {
		return turn, nil
	}
	select {
	case <-turn.Granted():
		return turn, nil
	case <-ctx.Done():
		turn.Release()
		return Turn{}, ctx.Err()
	}
}

// Release releases the executor, or stops waiting for one. A second call does nothing.
func (t Turn) Release() {
	if t.gate == nil {
		return
	}
	now := time.Now()
	g := t.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queue.Remove(t.call) || t.call.state == over {
		return
	}
	g.queue.End(t.call, now)
	next := g.queue.First(g.executors, now)
	if next == nil {
		g.running--
		return
	}
	g.queue.Take(next, now)
	g.queue.Begin(next, now)
	close(next.Value)
}

// Overtaken reports whether a waiting call of another tenant should have the next executor.
func (t Turn) Overtaken() bool {
	t.gate.mu.Lock()
	defer t.gate.mu.Unlock()
	next := t.gate.queue.First(t.gate.executors, time.Now())
	return next != nil && next.account != t.call.account
}

// Waiting returns the number of waiting calls.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.Len()
}
