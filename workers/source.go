package workers

import (
	"context"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Source hands out tickets to free places. Package queue has the one that ships.
type Source interface {
	// Take asks a queue for exactly n tickets, one for each free place, and returns as
	// soon as it has at least one, or none when ctx ends or after a short random time:
	// the caller asks again. For each queue it is called by one goroutine at a time.
	// What n a caller asks for is what it can start; leases that come beyond it are
	// handed back with Return.
	Take(ctx context.Context, queue string, n int) ([]Lease, error)
	// Move has the worker take from the queue to what it took from the queue from. Take is
	// called with the new name from then on; leases of the old queue live on. An error means
	// that nothing has changed.
	Move(from, to string) error
	// Announce tells the gateways what this worker is doing. It must not block.
	Announce(info wire.WorkerInfo)
	// Close asks for nothing more and hands back what was asked for and not taken.
	// Leases that were taken live on.
	Close()
}

// Lease is one worker's right to score one sample, for as long as it extends it.
type Lease interface {
	Ticket() wire.Ticket
	// Context ends when the lease is revoked or the source is gone.
	Context() context.Context
	// Extend renews the lease. An error says that it could not be renewed; another
	// worker may get the ticket, and the first result wins.
	Extend(ctx context.Context) error
	// Done ends the lease for good: the gateway has the result, or wants none.
	Done()
	// Return gives the ticket back to be taken for another place after the pause.
	Return(after time.Duration)
}

// Gateway holds the payloads and takes the results. *loop.Manager is the one in
// the same process.
type Gateway interface {
	// Claim returns the frame of a ticket, for the worker to release; it is also
	// the worker's start notice. An error means that there is nothing to score. Kept is what
	// components have said before, of a sample that a worker has returned (wire.Result.Waits).
	Claim(ctx context.Context, t wire.Ticket, worker string) (f *wire.Frame, kept []rewards.ComponentResult, err error)
	// ClaimGroup does the same for the ticket of a prompt group: the frames of all its
	// members are the worker's to release.
	ClaimGroup(ctx context.Context, t wire.Ticket, worker string) (*wire.Group, error)
	// Finish hands over the result of a ticket that was claimed. Until it returns nil, or
	// wire.ErrGone from a gateway that is there no longer, the worker keeps its lease.
	Finish(ctx context.Context, t wire.Ticket, res *wire.Result) error
}
