package loop

import (
	"context"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// dispatch is the one goroutine that publishes tickets and minds the clock.
func (m *Manager) dispatch(ctx context.Context) {
	defer close(m.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	sweep := time.NewTicker(30 * time.Second)
	defer sweep.Stop()
	for {
		wait := m.round(ctx)
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
		case <-sweep.C:
			m.sweep(time.Now())
		}
	}
}

const (
	publishBatch   = 64                     // tickets taken under one lock
	publishTimeout = 500 * time.Millisecond // deadlines may slip by no more
	publishPause   = 100 * time.Millisecond // after the queue refused one
	presencePoll   = 100 * time.Millisecond // while samples wait for a place that is not there
)

// round does all that is due and returns how long nothing is.
func (m *Manager) round(ctx context.Context) time.Duration {
	for {
		workers := m.presence.Workers()
		now := time.Now()
		m.mu.Lock()
		tickets, fx := m.core.tick(now, workers)
		grants, short := m.flow.Tick(now)
		if short {
			grants = append(grants, m.relieve(now, &fx)...)
		}
		for len(tickets) < publishBatch {
			t, ok := m.core.next(now, workers)
			if !ok {
				break
			}
			tickets = append(tickets, t)
		}
		waiting, due := m.core.board.Waiting(), soonest(m.core.due(), m.flow.Due())
		m.mu.Unlock()
		m.apply(fx)
		grants.Send()
		if !m.publish(ctx, tickets) {
			return publishPause
		}
		if len(tickets) < publishBatch {
			wait := time.Hour
			if !due.IsZero() {
				wait = max(time.Until(due), 0)
			}
			if waiting {
				wait = min(wait, presencePoll)
			}
			return wait
		}
	}
}

// publish hands tickets to the queue; those that it does not take go back to
// their queues.
func (m *Manager) publish(ctx context.Context, tickets []wire.Ticket) bool {
	if len(tickets) == 0 {
		return true
	}
	pctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	for i, t := range tickets {
		err := m.queue.Publish(pctx, t)
		if err == nil {
			continue
		}
		m.metrics.publishErrs.Inc()
		m.complain(ctx, t, err)
		m.mu.Lock()
		for _, back := range slices.Backward(tickets[i:]) {
			m.core.unpublish(back)
		}
		m.mu.Unlock()
		return false
	}
	return true
}

// complainEvery is how often the log says that the queue takes no tickets: while it is
// away, ten are tried a second.
const complainEvery = 10 * time.Second

// complain says that the queue did not take a ticket. It is the dispatcher's.
func (m *Manager) complain(ctx context.Context, t wire.Ticket, err error) {
	m.untaken++
	now := time.Now()
	if now.Sub(m.complained) < complainEvery {
		return
	}
	m.log.WarnContext(ctx, "the queue did not accept a ticket; the gateway keeps the sample and retries", "sample_id", t.ID, "run", t.Run, "error", err, "since_last_said", m.untaken)
	m.complained, m.untaken = now, 0
}

func (m *Manager) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
