package outbound

import (
	"sync"
	"time"
)

const (
	// retryShare is how many retries a call earns: an outage costs the endpoints at
	// most a fifth more than the calls themselves.
	retryShare = 0.2
	// retryFloor is how many retries there are without any calls, and how many come
	// back in a minute: an upstream with a call now and then can retry each.
	retryFloor = 10
)

// budget bounds an upstream's retries.
type budget struct {
	ceiling float64 // What can be saved up.

	mu      sync.Mutex
	balance float64
	at      time.Time // When the floor was last looked after.
	denied  int64
}

// newBudget lets as many retries be saved up as requests can be in flight, so that
// the loss of all connections at once can be mended.
func newBudget(concurrency int, now time.Time) *budget {
	return &budget{ceiling: retryFloor + float64(concurrency), balance: retryFloor, at: now}
}

// earn is told of a new call.
func (b *budget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balance = min(b.balance+retryShare, b.ceiling)
}

// spend reports whether there may be a retry, and counts it.
func (b *budget) spend(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	back := now.Sub(b.at).Minutes() * retryFloor
	b.at = now
	if b.balance < retryFloor && back > 0 {
		b.balance = min(b.balance+back, retryFloor)
	}
	if b.balance < 1-slack {
		b.denied++
		return false
	}
	b.balance--
	return true
}

func (b *budget) refused() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.denied
}
