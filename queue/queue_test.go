package queue_test

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/testkit/queuetest"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", "4") // they wait more than they compute: 74 s at 2, 27 s at 8
	}
	goleak.VerifyTestMain(m)
}

// soon is how long a busy machine may take for what happens in moments.
const soon = 30 * time.Second

// anyQueue is that of the default profile.
const anyQueue = "_"

// open makes a gateway, and a way to connect workers to it: to anyQueue if no others are named.
func open(t *testing.T, cfg queue.Config) (f *queue.Queue, source func(t *testing.T, worker string, queues ...string) workers.Source) {
	t.Helper()
	f, err := queue.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(f.Close) // after the sources' own clean-up
	return f, func(t *testing.T, worker string, queues ...string) workers.Source {
		t.Helper()
		if len(queues) == 0 {
			queues = []string{anyQueue}
		}
		s, err := f.NewSource(worker, queues)
		require.NoError(t, err)
		t.Cleanup(s.Disconnect)
		return s
	}
}

func TestTheQueueKeepsItsContract(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	queuetest.Run(t, setUp(queue.Config{}))
}

func setUp(cfg queue.Config) func(*testing.T, func(*testing.T, *queuetest.Harness)) {
	cfg.Lease, cfg.Gone = 750*time.Millisecond, 300*time.Millisecond
	return func(t *testing.T, test func(*testing.T, *queuetest.Harness)) {
		t.Helper()
		f, source := open(t, cfg)
		test(t, &queuetest.Harness{
			Queue: f, Lease: cfg.Lease, Gone: cfg.Gone,
			Source: func(t *testing.T, worker string, queues []string) workers.Source {
				t.Helper()
				return source(t, worker, queues...)
			},
			Lose: func(t *testing.T) { t.Helper(); require.NoError(t, f.Lose(t.Context())) },
		})
	}
}

func TestATicketSaysWhereItsPayloadIsOnceTheGatewayKnows(t *testing.T) {
	t.Parallel()
	f, source := open(t, queue.Config{Sign: func(k wire.AttemptKey) string { return "for " + k.ID }})
	s := source(t, "w").(*queue.Source)
	require.NoError(t, f.Publish(t.Context(), ticketOf("gw", "a")))
	before := takeFrom(t, s)
	require.Empty(t, before.Claim+before.Token, "workers of this process need neither")
	f.Advertise("wss://gw/v1/claim")
	require.NoError(t, f.Publish(t.Context(), ticketOf("gw", "b")))
	after := takeFrom(t, s)
	require.Equal(t, []string{"wss://gw/v1/claim", "for b"}, []string{after.Claim, after.Token})
}

func TestAWorkerThatMovesTakesFromTheNewQueueAndKeepsTheLeasesOfTheOld(t *testing.T) {
	t.Parallel()
	f, source := open(t, queue.Config{})
	s := source(t, "w", "one")
	announce := func(queue string) {
		s.Announce(wire.WorkerInfo{ID: "w", State: wire.WorkerReady, Profiles: []wire.ProfileInfo{{Name: "", Queue: queue, Capacity: 4, Narrow: 4}}})
	}
	publish := func(id, queue string) {
		require.Eventually(t, func() bool {
			return f.Publish(t.Context(), wire.Ticket{ID: id, Run: "r", Attempt: 1, Queue: queue, Deadline: time.Now().Add(time.Minute)}) == nil
		}, soon, time.Millisecond)
	}
	take := func(queue string) workers.Lease {
		for range 50 {
			got, err := s.Take(t.Context(), queue, 1)
			require.NoError(t, err)
			if len(got) > 0 {
				return got[0]
			}
		}
		require.Fail(t, "no ticket came")
		return nil
	}
	announce("one")
	publish("a", "one")
	old := take("one")
	for _, way := range [][2]string{{"one", "two"}, {"two", "one"}, {"one", "three"}} {
		require.NoError(t, s.Move(way[0], way[1]))
		announce(way[1])
		publish("in "+way[1], way[1])
		l := take(way[1])
		require.Equal(t, "in "+way[1], l.Ticket().ID)
		l.Done()
		require.NoError(t, old.Context().Err(), "it is scored still")
		require.NoError(t, old.Extend(t.Context()))
	}
	old.Done()
}
