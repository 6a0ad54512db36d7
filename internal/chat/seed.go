package chat

import (
	"context"
	"hash/fnv"

	"github.com/rewardloop/rewardloop/rewards"
)

// subjectKey is the context key of About.
type subjectKey struct{}

// About says whose question is asked with the context: the id of a sample, or a prompt
// group's uid.
func About(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, subjectKey{}, id)
}

// Seeded asks with a seed that follows from whom the question is about (About) where a
// request has none: whoever asks, and however often, draws the same answer. A further
// attempt at an answer adds 1, as with a seed of the configuration. A question about
// nobody is left as it is.
type Seeded struct {
	Client *Client
}

// Chat is Client.Chat.
func (s Seeded) Chat(ctx context.Context, r *Request) (*Reply, error) {
	if id, known := ctx.Value(subjectKey{}).(string); known && r.Seed == nil {
		own := *r
		own.Seed = new(seedOf(id) + int64(r.Attempt))
		r = &own
	}
	return s.Client.Chat(ctx, r)
}

// Concurrency is that of the client.
func (s Seeded) Concurrency() int { return s.Client.Concurrency() }

// Dependency is that of the client.
func (s Seeded) Dependency() rewards.Dependency { return s.Client.Dependency() }

// ConcurrencyReason is that of the client.
func (s Seeded) ConcurrencyReason() string { return s.Client.ConcurrencyReason() }

// seedOf is the seed of an id: the lower 63 bits of its FNV-1a hash of 64, less 16 so
// that no attempt overflows.
func seedOf(id string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))                  // never fails
	return max(int64(h.Sum64()&^(1<<63))-16, 0) // 63 bits
}
