package loop

import (
	"context"

	"github.com/rewardloop/rewardloop/wire"
)

// Queue carries tickets to free places. It decides which place takes a ticket,
// never which ticket is next. Package queue has the one that ships.
type Queue interface {
	// Publish hands a ticket to the queue. An error means that it was not taken.
	// A ticket may be published again with the same attempt; a worker that claims
	// the second copy of one that is answered is told ErrGone.
	Publish(ctx context.Context, t wire.Ticket) error
	// Revoke takes an attempt back: unclaimed it is removed, claimed its lease's
	// context ends. It is a hint; correctness does not need it.
	Revoke(ctx context.Context, key wire.AttemptKey) error
}

// Presence knows which workers live.
type Presence interface {
	// Workers returns the live workers, in a fixed order. It must be cheap: it is
	// called for every round of dispatch.
	Workers() []wire.WorkerInfo
}
