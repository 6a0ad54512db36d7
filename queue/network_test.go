package queue_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/testkit/queuetest"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// join makes a worker process of its own.
func join(t *testing.T, cfg queue.Config) *queue.Member {
	t.Helper()
	m, err := queue.Join(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return m
}

// connect connects a worker, to anyQueue if no others are named, and has it say so.
func connect(t *testing.T, m *queue.Member, worker string, queues ...string) *queue.Source {
	t.Helper()
	if len(queues) == 0 {
		queues = []string{anyQueue}
	}
	s, err := m.NewSource(worker, queues)
	require.NoError(t, err)
	t.Cleanup(s.Disconnect)
	s.Announce(serving(worker, queues...))
	return s
}

// serving is what a worker says that takes from these queues.
func serving(worker string, queues ...string) wire.WorkerInfo {
	info := wire.WorkerInfo{ID: worker, State: wire.WorkerReady}
	for _, queue := range queues {
		info.Profiles = append(info.Profiles, wire.ProfileInfo{Name: queue, Queue: queue, Capacity: 1})
	}
	return info
}

func TestTheQueueKeepsItsContractOverTheNetwork(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	queuetest.Run(t, over(queue.Config{}))
}

// over has NATS in the gateway's process listen, and every worker in a process of
// its own, as far as NATS can tell.
func over(cfg queue.Config) func(*testing.T, func(*testing.T, *queuetest.Harness)) {
	cfg.Lease, cfg.Gone = 750*time.Millisecond, 300*time.Millisecond
	return func(t *testing.T, test func(*testing.T, *queuetest.Harness)) {
		t.Helper()
		served := cfg
		served.Listen, served.Name = "127.0.0.1:0", "gw"
		f, _ := open(t, served)
		test(t, &queuetest.Harness{
			Queue: f, Lease: cfg.Lease, Gone: cfg.Gone,
			Source: func(t *testing.T, worker string, queues []string) workers.Source {
				t.Helper()
				own := cfg
				own.URLs, own.Name = []string{"nats://" + f.Address()}, worker
				return connect(t, join(t, own), worker, queues...)
			},
			Lose: func(t *testing.T) { t.Helper(); require.NoError(t, f.Lose(t.Context())) },
		})
	}
}

// takeFrom asks anyQueue, or another, until a ticket comes.
func takeFrom(t *testing.T, s *queue.Source, queue ...string) wire.Ticket {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for ctx.Err() == nil {
		got, err := s.Take(ctx, append(queue, anyQueue)[0], 1)
		if err != nil || len(got) == 0 {
			continue // not connected, or nothing yet
		}
		got[0].Done()
		return got[0].Ticket()
	}
	require.Fail(t, "no ticket came")
	return wire.Ticket{}
}

func ticketOf(gateway, id string) wire.Ticket {
	return wire.Ticket{ID: id, Run: "run", Epoch: 1, Queue: anyQueue, Gateway: gateway, Attempt: 1, Bytes: 1, Deadline: time.Now().Add(time.Hour)}
}

// Two gateways have samples of the same names at the same time; neither's is taken for
// the other's copy.
func TestGatewaysDoNotTakeEachOthersTicketsForTheirOwn(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	one, _ := open(t, queue.Config{URLs: []string{b.url()}, Name: "one"})
	two, _ := open(t, queue.Config{URLs: []string{b.url()}, Name: "two"})
	require.NoError(t, one.Publish(t.Context(), ticketOf("one", "a")))
	require.NoError(t, two.Publish(t.Context(), ticketOf("two", "a")))
	s := connect(t, join(t, queue.Config{URLs: []string{b.url()}}), "w")
	got := map[string]bool{}
	for range 2 {
		got[takeFrom(t, s).Gateway] = true
	}
	assert.Equal(t, map[string]bool{"one": true, "two": true}, got)
}

func TestATicketGoesToTheWorkersOfItsQueueAlone(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	gw, _ := open(t, queue.Config{URLs: []string{b.url()}, Name: "gw"})
	ocr := connect(t, join(t, queue.Config{URLs: []string{b.url()}}), "w1", "ocr")
	other := connect(t, join(t, queue.Config{URLs: []string{b.url()}}), "w2")
	first, second := ticketOf("gw", "for ocr"), ticketOf("gw", "for any")
	first.Queue = "ocr"
	require.Eventually(t, func() bool { return len(gw.Workers()) == 2 }, soon, time.Millisecond)
	require.NoError(t, gw.Publish(t.Context(), first))
	require.NoError(t, gw.Publish(t.Context(), second))
	assert.Equal(t, "for any", takeFrom(t, other).ID)
	assert.Equal(t, "for ocr", takeFrom(t, ocr, "ocr").ID)
}

// A broker that keeps nothing dies and comes back: the gateway is told once everything is
// there again, and tickets go through to workers that were connected all along.
func TestABrokerThatForgotEverythingIsMadeReadyAgain(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	gw, _ := open(t, queue.Config{URLs: []string{b.url()}, Name: "gw"})
	var restored atomic.Int64
	back := make(chan struct{}, 8)
	gw.OnRestored(func() { restored.Add(1); back <- struct{}{} })
	m := join(t, queue.Config{URLs: []string{b.url()}})
	s := connect(t, m, "w", "p")
	first := ticketOf("gw", "before")
	first.Queue = "p"
	require.Eventually(t, func() bool { return len(gw.Workers()) == 1 }, soon, time.Millisecond)
	require.NoError(t, gw.Publish(t.Context(), first))
	require.Equal(t, "before", takeFrom(t, s, "p").ID)
	b.stop()
	require.Eventually(t, func() bool { return gw.Publish(t.Context(), ticketOf("gw", "lost")) != nil }, soon, time.Millisecond,
		"what is sent while nobody listens is refused, so that the loop knows")
	require.Eventually(t, func() bool { return !m.Connected() }, soon, time.Millisecond, "each process notices for itself")
	b.start()
	select {
	case <-back:
	case <-time.After(soon):
		require.Fail(t, "the gateway was not told")
	}
	second := ticketOf("gw", "after")
	second.Queue = "p"
	require.NoError(t, gw.Publish(t.Context(), second))
	require.Equal(t, "after", takeFrom(t, s, "p").ID)
}

func TestAGatewayThatFallsSilentCountsAsGone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	b := newBroker(t)
	const gone = 1500 * time.Millisecond
	gw, err := queue.Open(t.Context(), queue.Config{URLs: []string{b.url()}, Name: "gw"})
	require.NoError(t, err)
	began := time.Now()
	m := join(t, queue.Config{URLs: []string{b.url()}, Gone: gone})
	if both := m.Alive("gw") && m.Alive("nobody"); time.Since(began) < gone { // else the machine was too busy to tell
		require.True(t, both, "it has not listened for long")
	}
	require.Eventually(t, func() bool { return !m.Alive("nobody") }, soon, 10*time.Millisecond)
	require.Eventually(t, func() bool { return m.Alive("gw") }, soon, 10*time.Millisecond)
	gw.Close()
	require.Eventually(t, func() bool { return !m.Alive("gw") }, soon, 10*time.Millisecond)
}

func TestAWorkerWithoutNATSSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	_, err := queue.Join(t.Context(), queue.Config{URLs: []string{"nats://me:secret@127.0.0.1:1"}, Patience: 300 * time.Millisecond})
	require.ErrorContains(t, err, "nats://127.0.0.1:1")
	require.NotContains(t, err.Error(), "secret")
	_, err = queue.Join(t.Context(), queue.Config{URLs: []string{"127.0.0.1:1"}, Patience: 1})
	require.ErrorContains(t, err, "to nats://127.0.0.1:1")
	_, err = queue.Join(t.Context(), queue.Config{})
	require.ErrorContains(t, err, "needs the address of NATS")
}

// Whoever has a worker's key can have the server bring a message of his into any subject;
// it shows where it comes from.
func TestWhatTheServerWasMadeToBringIsNotHeard(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	gw, _ := open(t, queue.Config{URLs: []string{b.url()}, Name: "gw"})
	s := connect(t, join(t, queue.Config{URLs: []string{b.url()}}), "w")
	require.NoError(t, gw.Publish(t.Context(), ticketOf("gw", "a")))
	var leases []workers.Lease
	require.Eventually(t, func() bool {
		leases, _ = s.Take(t.Context(), anyQueue, 1)
		return len(leases) > 0
	}, soon, time.Millisecond)
	nc, err := nats.Connect(b.url())
	require.NoError(t, err)
	defer nc.Close()
	key, err := json.Marshal(leases[0].Ticket().Key())
	require.NoError(t, err)
	say := func(subject string, data []byte, header nats.Header) {
		require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: subject, Data: data, Header: header}))
		require.NoError(t, nc.Flush())
	}
	brought := nats.Header{"Nats-Stream": {"KV_RL_FLEET"}}
	say("rl.revoke", key, brought)
	forged, err := ticketOf("gw", "forged").Encode()
	require.NoError(t, err)
	say("rl.ticket."+anyQueue, forged, brought)
	say("rl.presence", []byte(`{"id":"ghost","places":100,"state":"ready"}`), brought)
	say("rl.gateway", []byte(`{"id":"ghost"}`), brought)
	for _, subject := range []string{"rl.revoke", "rl.presence", "rl.gateway"} {
		say(subject, []byte("nonsense"), nil)
	}
	require.NoError(t, gw.Publish(t.Context(), ticketOf("gw", "b")))
	require.Equal(t, "b", takeFrom(t, s).ID, "the forged one was dropped")
	require.NoError(t, leases[0].Context().Err())
	require.Len(t, gw.Workers(), 1, "and no ghost")
	say("rl.revoke", key, nil)
	select {
	case <-leases[0].Context().Done():
	case <-time.After(soon):
		require.Fail(t, "a gateway's own word was not heard")
	}
}
