package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// claimant tells who claims what, and gives nobody anything.
type claimant chan string

func (d claimant) Claim(_ context.Context, _ wire.Ticket, worker string) (*wire.Frame, []rewards.ComponentResult, error) {
	d <- worker
	return nil, nil, wire.ErrGone
}

func (d claimant) ClaimGroup(context.Context, wire.Ticket, string) (*wire.Group, error) {
	return nil, wire.ErrGone
}

func (d claimant) Finish(context.Context, wire.Ticket, *wire.Result) error { return nil }

// Fifteen idle workers are too slow for a ticket that one other may take. Each hands it
// back at once and asks for nothing for a moment, so that it is with the sixteenth in
// milliseconds. A ticket that rested instead would come round after 50 to 100 ms for each:
// forty tickets in 22 s, give or take 2.
func TestATicketPassesIdleWorkersThatAreTooSlowForIt(t *testing.T) {
	t.Parallel()
	t.Run("InOneProcess", func(t *testing.T) { // its hub looks for one that may take it
		t.Parallel()
		f, source := open(t, queue.Config{})
		passed(t, f, func(worker string) workers.Source { return source(t, worker) })
	})
	t.Run("EachInItsOwn", func(t *testing.T) {
		t.Parallel()
		f, _ := open(t, queue.Config{Listen: "127.0.0.1:0"})
		passed(t, f, func(worker string) workers.Source {
			return connect(t, join(t, queue.Config{URLs: []string{"nats://" + f.Address()}, Name: worker}), worker)
		})
	})
}

func passed(t *testing.T, f *queue.Queue, source func(worker string) workers.Source) {
	t.Helper()
	const pool, tickets = 16, 40
	claims := make(claimant, tickets)
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "none", Weight: 1, Scorer: rewards.ScorerFunc(nil)}}})
	require.NoError(t, err)
	managers := map[string]*rewards.Manager{"": m}
	var avoid []string
	for i := range pool {
		id := fmt.Sprintf("w%d", i)
		w, err := workers.New(workers.Options{Config: workers.Config{ID: id}, Source: source(id), Gateway: claims, Profiles: rig.Served(managers, 2)})
		require.NoError(t, err)
		w.Start(t.Context())
		t.Cleanup(w.Stop)
		if i > 0 {
			avoid = append(avoid, id)
		}
	}
	pace := time.NewTicker(25 * time.Millisecond)
	defer pace.Stop()
	var took time.Duration
	for i := range tickets {
		<-pace.C
		start := time.Now()
		require.NoError(t, f.Publish(t.Context(), wire.Ticket{
			ID: fmt.Sprint(i), Run: "r", Queue: anyQueue, Gateway: "g", Attempt: 1, Avoid: avoid, Aside: true, Deadline: start.Add(time.Minute),
		}))
		select {
		case worker := <-claims:
			require.Equal(t, "w0", worker)
		case <-time.After(soon):
			require.Fail(t, "nobody took it")
		}
		took += time.Since(start)
	}
	t.Logf("%d tickets took %v", tickets, took)
	require.Less(t, took, 15*time.Second)
}
