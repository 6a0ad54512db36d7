package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// tap counts the requests for tickets that NATS gets, by who asks: the place that a
// request has in NATS's queue, and the inbox to which it is answered.
type tap struct {
	mu    sync.Mutex
	fast  map[string]int // guarded by mu
	slow  map[string]int // guarded by mu
	lives []time.Duration
}

// tapped listens to the requests for tickets of a queue that is there: of one that is not yet,
// the server would take the tap for it.
func tapped(t *testing.T, f *queue.Queue) *tap {
	t.Helper()
	s, err := f.NewSource("nobody", []string{anyQueue})
	require.NoError(t, err)
	t.Cleanup(s.Disconnect)
	p := &tap{fast: map[string]int{}, slow: map[string]int{}}
	nc, err := nats.Connect("nats://" + f.Address())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	_, err = nc.Subscribe("$JS.API.CONSUMER.MSG.NEXT.RL_TICKETS.>", func(m *nats.Msg) {
		var pull struct {
			Priority int
			Expires  time.Duration
		}
		assert.NoError(t, json.Unmarshal(m.Data, &pull)) //nolint:testifylint // require must not stop a goroutine
		who := strings.Join(strings.Split(m.Reply, ".")[:2], ".")
		p.mu.Lock()
		defer p.mu.Unlock()
		if pull.Priority < 2 {
			p.fast[who]++
		} else {
			p.slow[who]++
			p.lives = append(p.lives, pull.Expires)
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	return p
}

// seen returns how many processes have asked so, and the requests of the one that asked most.
func (p *tap) seen(requests map[string]int) (processes, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range requests {
		most = max(most, n)
	}
	return len(requests), most
}

func (p *tap) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.fast)
	clear(p.slow)
}

// asking has a worker ask for n tickets of a queue all the time until the test is over. What
// comes is told with the worker's name and is done.
func asking(t *testing.T, s workers.Source, worker, queue string, n int, came chan<- [2]string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			got, err := s.Take(ctx, queue, n)
			assert.NoError(t, err)
			for _, l := range got {
				l.Done()
				came <- [2]string{l.Ticket().ID, worker}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func next(t *testing.T, came <-chan [2]string) (id, worker string) {
	t.Helper()
	select {
	case c := <-came:
		return c[0], c[1]
	case <-time.After(soon):
		require.Fail(t, "no ticket came")
		return "", ""
	}
}

// Nobody hears that tickets come: those who ask seldom get them all the same, and ask
// often from the first on.
func TestAnIdleQueueIsAskedSeldomAndItsFirstTicketComesAtOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", Name: "gw"})
	url := "nats://" + f.Address()
	requests := tapped(t, f)
	came := make(chan [2]string, 100)
	for _, worker := range []string{"w1", "w2"} {
		asking(t, connect(t, join(t, queue.Config{URLs: []string{url}, Name: worker}), worker), worker, anyQueue, 4, came)
	}
	require.Eventually(t, func() bool { n, _ := requests.seen(requests.slow); return n == 2 }, soon, time.Millisecond)
	time.Sleep(2 * time.Second) // all that could be said of an idle queue has been
	_, most := requests.seen(requests.fast)
	require.Zero(t, most, "no ticket has come")
	requests.mu.Lock()
	for _, life := range requests.lives[2:] {
		require.GreaterOrEqual(t, life, 19900*time.Millisecond)
		require.Less(t, life, 40100*time.Millisecond)
	}
	require.LessOrEqual(t, len(requests.lives), 6)
	requests.mu.Unlock()

	nc, err := nats.Connect(url)
	require.NoError(t, err)
	defer nc.Close()
	data, err := ticketOf("gw", "without a word").Encode()
	require.NoError(t, err)
	begin := time.Now()
	require.NoError(t, nc.Publish("rl.ticket."+anyQueue, data))
	id, _ := next(t, came)
	require.Equal(t, "without a word", id)
	require.Less(t, time.Since(begin), 4*time.Second, "it waited for the next slow pull")
	require.Eventually(t, func() bool { n, most := requests.seen(requests.fast); return n == 1 && most > 2 }, soon, time.Millisecond, "only who got it knows")
}

func TestTheFirstTicketOfAnIdleQueueHasEveryProcessAskOften(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", Name: "gw"})
	url := "nats://" + f.Address()
	requests := tapped(t, f)
	came := make(chan [2]string, 100)
	for _, worker := range []string{"w1", "w2", "w3"} {
		asking(t, connect(t, join(t, queue.Config{URLs: []string{url}, Name: worker}), worker), worker, anyQueue, 4, came)
	}
	for range 2 {
		require.Eventually(t, func() bool { // nobody asks often
			requests.clear()
			time.Sleep(200 * time.Millisecond)
			n, _ := requests.seen(requests.fast)
			return n == 0 && len(f.Workers()) == 3
		}, soon, time.Millisecond)
		require.NoError(t, f.Publish(t.Context(), ticketOf("gw", fmt.Sprint(time.Now()))))
		next(t, came)
		require.Eventually(t, func() bool { n, _ := requests.seen(requests.fast); return n == 3 }, soon, time.Millisecond)
	}
}

// A process asked when its places were free, and all are taken by now. What still comes to it
// goes on at once, and not when its worker would have asked again.
func TestASlowPullOfABusyProcessHoldsUpNoTicket(t *testing.T) {
	t.Parallel()
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", Name: "gw"})
	url := "nats://" + f.Address()
	requests := tapped(t, f)
	busy := connect(t, join(t, queue.Config{URLs: []string{url}, Name: "busy"}), "busy")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		assert.Eventually(t, func() bool { n, _ := requests.seen(requests.slow); return n > 0 }, soon, time.Millisecond)
		cancel()
	}()
	got, err := busy.Take(ctx, anyQueue, 1)
	require.NoError(t, err)
	require.Empty(t, got)
	came := make(chan [2]string, 10)
	asking(t, connect(t, join(t, queue.Config{URLs: []string{url}, Name: "idle"}), "idle"), "idle", anyQueue, 1, came)
	require.Eventually(t, func() bool { return len(f.Workers()) == 2 }, soon, time.Millisecond)
	for i := range 3 {
		require.NoError(t, f.Publish(t.Context(), ticketOf("gw", fmt.Sprint(i))))
	}
	for range 3 {
		next(t, came)
	}
}

// Bursts come to queues that have been idle. The first ticket of each goes to whoever's slow
// pull is first, what follows within milliseconds to a place at random.
func TestABurstAfterIdlenessIsSpreadAtRandom(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes 15 s of real time; run without -short")
	}
	const processes, queues, rounds, burst = 6, 30, 6, 4
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", Name: "gw"})
	var names []string
	for q := range queues {
		names = append(names, fmt.Sprint("q", q))
	}
	came := make(chan [2]string, queues*burst)
	for p := range processes {
		worker := fmt.Sprint("w", p)
		s := connect(t, join(t, queue.Config{URLs: []string{"nats://" + f.Address()}, Name: worker}), worker, names...)
		for _, q := range names {
			asking(t, s, worker, q, 2, came)
		}
	}
	require.Eventually(t, func() bool { return len(f.Workers()) == processes }, soon, time.Millisecond)
	counts := map[string]int{}
	for round := range rounds {
		time.Sleep(1500 * time.Millisecond) // longer than a queue counts as lively
		for _, q := range names {
			for i := range burst {
				ticket := ticketOf("gw", fmt.Sprintf("%s-%d-%d", q, round, i))
				ticket.Queue = q
				require.NoError(t, f.Publish(t.Context(), ticket))
				time.Sleep(3 * time.Millisecond)
			}
		}
		for range queues * burst {
			if id, worker := next(t, came); !strings.HasSuffix(id, "-0") {
				counts[worker]++
			}
		}
	}
	const mean = float64(queues*rounds*(burst-1)) / processes
	sigma := math.Sqrt(mean * (1 - 1.0/processes))
	t.Logf("tickets by worker: %v, %.0f ± %.0f expected", counts, mean, sigma)
	assert.Len(t, counts, processes)
	for worker, n := range counts {
		assert.InDelta(t, mean, n, 5*sigma, worker)
	}
}

func TestAWorkerIsKnownByTheQueuesThatItNamesLater(t *testing.T) {
	t.Parallel()
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", Name: "gw"})
	m := join(t, queue.Config{URLs: []string{"nats://" + f.Address()}, Name: "p"})
	s, err := m.NewSource("w", []string{"one", "two"})
	require.NoError(t, err)
	t.Cleanup(s.Disconnect)
	s.Announce(serving("w", "one"))
	require.Eventually(t, func() bool { return len(f.Workers()) == 1 }, soon, time.Millisecond)
	s.Announce(serving("w", "one", "two"))
	ticket := ticketOf("gw", "a")
	ticket.Queue = "two"
	require.NoError(t, f.Publish(t.Context(), ticket))
	require.Equal(t, "a", takeFrom(t, s, "two").ID)
	_, err = s.Take(t.Context(), "three", 1)
	require.ErrorContains(t, err, `worker w was not connected to the queue "three"`)
	ticket.Queue = "three.four"
	require.ErrorContains(t, f.Publish(t.Context(), ticket), "make the name with wire.QueueName")
}

// A process whose last worker at a queue has gone has asked for tickets of it still.
func TestATicketForAProcessWhoseWorkerHasGoneGoesToAnother(t *testing.T) {
	t.Parallel()
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", Name: "gw"})
	url := "nats://" + f.Address()
	requests := tapped(t, f)
	m := join(t, queue.Config{URLs: []string{url}, Name: "leaving"})
	s, err := m.NewSource("w", []string{anyQueue})
	require.NoError(t, err)
	s.Announce(serving("w", anyQueue))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		assert.Eventually(t, func() bool { n, _ := requests.seen(requests.slow); return n > 0 }, soon, time.Millisecond)
		cancel()
	}()
	_, err = s.Take(ctx, anyQueue, 1)
	require.NoError(t, err)
	s.Disconnect()
	other := connect(t, join(t, queue.Config{URLs: []string{url}, Name: "staying"}), "other")
	require.NoError(t, f.Publish(t.Context(), ticketOf("gw", "a")))
	begin := time.Now()
	require.Equal(t, "a", takeFrom(t, other).ID)
	require.Less(t, time.Since(begin), 10*time.Second, "it waited for a lease to lapse")
}

func TestAWordThatNoWorkerSaysIsNotHeard(t *testing.T) {
	t.Parallel()
	f, _ := open(t, queue.Config{Listen: "127.0.0.1:0", Name: "gw"})
	nc, err := nats.Connect("nats://" + f.Address())
	require.NoError(t, err)
	defer nc.Close()
	for _, data := range []string{`{"id":"negative","busy":-1,"state":"ready"}`, `{"id":"nobody","busy":"many"}`} {
		require.NoError(t, nc.Publish("rl.presence", []byte(data)))
	}
	word, err := json.Marshal(wire.WorkerInfo{ID: "w", State: wire.WorkerReady})
	require.NoError(t, err)
	require.NoError(t, nc.Publish("rl.presence", word))
	require.Eventually(t, func() bool { return len(f.Workers()) > 0 }, soon, time.Millisecond)
	require.Len(t, f.Workers(), 1)
}
