package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/wire"
)

// lease is one delivered ticket. Its fields below mu are guarded by the hub's mutex.
type lease struct {
	hub    *hub
	msg    *nats.Msg
	ticket wire.Ticket
	ctx    context.Context //nolint:containedctx // the lease is the lifetime: it ends when the lease is revoked
	cancel context.CancelFunc

	taker   *taker // whose worker has it; guarded by hub.mu
	revoked bool   // guarded by hub.mu
}

// Ticket implements workers.Lease.
func (l *lease) Ticket() wire.Ticket { return l.ticket }

// Context implements workers.Lease.
func (l *lease) Context() context.Context { return l.ctx }

// Extend implements workers.Lease.
func (l *lease) Extend(context.Context) error {
	if err := l.msg.InProgress(); err != nil {
		return fmt.Errorf("queue: lease of sample %q: %w", l.ticket.ID, err)
	}
	return nil
}

// Done implements workers.Lease. An answer that is lost lets the lease lapse: the
// ticket comes again and is refused at the claim.
func (l *lease) Done() {
	l.hub.mu.Lock()
	l.end()
	l.hub.mu.Unlock()
	_ = l.msg.Ack()
}

// Return implements workers.Lease.
func (l *lease) Return(after time.Duration) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.give(after)
}

// give hands the ticket back, unless its attempt is over. The caller holds hub.mu.
func (l *lease) give(after time.Duration) {
	l.end()
	if l.revoked {
		_ = l.msg.Ack()
		return
	}
	if after <= 0 {
		_ = l.msg.Nak()
		return
	}
	_ = l.msg.NakWithDelay(after)
}

// end forgets the lease. The caller holds hub.mu.
func (l *lease) end() {
	l.cancel()
	l.hub.bus.attempts.end(l)
}
