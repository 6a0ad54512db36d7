package server

import (
	"context"
	"sync"
)

// gate counts who is inside, lets nobody in any more once it is closed, and tells
// when it is empty.
type gate struct {
	max int // 0: no bound

	mu     sync.Mutex
	inside int           // guarded by mu
	closed bool          // guarded by mu
	empty  chan struct{} // made by who waits, closed by the last to leave; guarded by mu
}

// enter lets one in; leave must be called once.
func (g *gate) enter() (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || (g.max > 0 && g.inside >= g.max) {
		return nil, false
	}
	g.inside++
	return g.leave, true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}

// wait returns when nobody is inside, or ctx ends. The gate is closed.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.inside == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.empty == nil {
		g.empty = make(chan struct{})
	}
	empty := g.empty
	g.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
