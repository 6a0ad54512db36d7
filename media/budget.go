package media

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/rewardloop/rewardloop/rewards"
)

// budget is a number of bytes that many goroutines share, first come first
// served: a large picture is not starved by small ones.
type budget struct {
	mu      sync.Mutex
	total   int64
	free    int64
	waiting list.List // of *claim, the oldest in front
}

type claim struct {
	n     int64
	ready chan struct{} // closed, under mu, by whoever grants the claim
}

func newBudget(total int64) *budget { return &budget{total: total, free: total} }

// acquire waits for n bytes, which must not be more than total.
func (b *budget) acquire(ctx context.Context, n int64) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("before decoding: %w", err)
	}
	b.mu.Lock()
	if b.waiting.Len() == 0 && b.free >= n {
		b.free -= n
		b.mu.Unlock()
		return nil
	}
	c := &claim{n: n, ready: make(chan struct{})}
	place := b.waiting.PushBack(c)
	b.mu.Unlock()

	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.ready: // granted in the same moment: hand it on
		b.free += n
	default:
		b.waiting.Remove(place)
	}
	b.grant()
	return rewards.Ended(ctx, false, rewards.BlameReward, fmt.Errorf("waiting for %d of %d bytes to decode into: %w", n, b.total, ctx.Err()))
}

// release gives n bytes back.
func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.grant()
}

// grant serves the queue from the front; mu is held.
func (b *budget) grant() {
	for front := b.waiting.Front(); front != nil; front = b.waiting.Front() {
		c, _ := front.Value.(*claim)
		if c.n > b.free {
			return
		}
		b.free -= c.n
		b.waiting.Remove(front)
		close(c.ready)
	}
}

// inUse is how many bytes are out.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.free
}
