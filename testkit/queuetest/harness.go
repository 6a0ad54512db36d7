package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Harness is a queue under test.
type Harness struct {
	Queue interface {
		loop.Queue
		loop.Presence
	}
	// Source connects a worker to the queues.
	Source func(t *testing.T, worker string, queues []string) workers.Source
	// Lease is the duration of the queue's leases. Real queues need 500 ms or more, so that a
	// worker on a busy machine is not considered lost.
	Lease time.Duration
	// Vanish removes a worker as kill -9 would. It may be nil if it is enough that the worker is
	// silent.
	Vanish func(worker string)
	// Gone is how long a silent worker counts as alive.
	Gone time.Duration
	// Lose makes the queue lose all tickets and leases. It is nil if the queue cannot do that.
	Lose func(t *testing.T)
}

// Run runs every case as a subtest. setUp creates a new queue, calls test once, and closes the
// queue; it may do so in a bubble of testing/synctest.
func Run(t *testing.T, setUp func(t *testing.T, test func(t *testing.T, h *Harness))) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			setUp(t, c.test)
		})
	}
}

// The queues of the cases.
const (
	mainQueue  = "ocr"
	otherQueue = "_-other__1"
)

// source connects a worker to the queue from which most cases take.
func (h *Harness) source(t *testing.T, worker string) workers.Source {
	t.Helper()
	return h.Source(t, worker, []string{mainQueue})
}

// ticket makes a ticket that names its sample.
func ticket(id string) wire.Ticket {
	return wire.Ticket{ID: id, Run: "run", Epoch: 1, Queue: mainQueue, Gateway: "gw", Attempt: 1, Bytes: 1, Deadline: time.Now().Add(time.Hour)}
}

func (h *Harness) publish(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		require.NoError(t, h.Queue.Publish(t.Context(), ticket(id)))
	}
}

// take asks for n tickets until one or more come, within a generous time.
func (h *Harness) take(t *testing.T, s workers.Source, n int) []workers.Lease {
	t.Helper()
	got := h.wait(t, s, mainQueue, n, 20*h.Lease)
	require.NotEmpty(t, got, "nothing came for 20 leases")
	require.LessOrEqual(t, len(got), n, "more came than was asked for")
	return got
}

// takeOne takes the one ticket of that id.
func (h *Harness) takeOne(t *testing.T, s workers.Source, id string) workers.Lease {
	t.Helper()
	l := h.take(t, s, 1)[0]
	require.Equal(t, id, l.Ticket().ID)
	return l
}

// nothing asserts that no ticket comes for so long.
func (h *Harness) nothing(t *testing.T, s workers.Source, d time.Duration) {
	t.Helper()
	for _, l := range h.wait(t, s, mainQueue, 1, d) {
		require.Failf(t, "a ticket came", "%+v", l.Ticket())
	}
}

// wait asks again and again for up to d.
func (h *Harness) wait(t *testing.T, s workers.Source, queue string, n int, d time.Duration) []workers.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	for ctx.Err() == nil {
		got, err := s.Take(ctx, queue, n)
		require.NoError(t, err)
		if len(got) > 0 {
			return got
		}
	}
	return nil
}

// ends waits for a lease's context to end.
func (h *Harness) ends(t *testing.T, l workers.Lease) {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(20 * h.Lease):
		require.Fail(t, "the lease's context went on")
	}
}

// swallows asserts that a revoked ticket stays away, while the one after it comes. The
// word may cross the ticket on its way: then the lease ends at once.
func (h *Harness) swallows(t *testing.T, s workers.Source, next string) {
	t.Helper()
	for {
		l := h.take(t, s, 1)[0]
		if l.Ticket().ID == next {
			l.Done()
			break
		}
		h.ends(t, l)
		l.Return(0)
	}
	h.nothing(t, s, 2*h.Lease)
}

// live waits until the queue's presence is as told.
func (h *Harness) live(t *testing.T, within time.Duration, ok func(ws []wire.WorkerInfo) bool) {
	t.Helper()
	tick := time.NewTicker(within / 100)
	defer tick.Stop()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); <-tick.C {
		if ok(h.Queue.Workers()) {
			return
		}
	}
	require.True(t, ok(h.Queue.Workers()), "presence after %v: %+v", within, h.Queue.Workers())
}
