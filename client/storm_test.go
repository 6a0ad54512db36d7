package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/liveness"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// fate is what happens to a sample, by its number.
func fate(n int) string {
	switch n % 100 {
	case 7:
		return "panic"
	case 17:
		return "hang"
	case 27:
		return "overrun"
	case 37:
		return "late"
	case 47, 57:
		return "bad"
	case 67, 77:
		return "flaky"
	case 87:
		return "nan"
	}
	return "ok"
}

const stormTimeout = 400 * time.Millisecond

// stormScorer scores a sample by its own bytes, or fails as its id says.
type stormScorer struct {
	mu    sync.Mutex
	tries map[string]int
	kept  map[string][]byte // bytes that a scorer must not keep, kept
	wrong []string
}

func (s *stormScorer) score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	_, kind, _ := strings.Cut(sample.ID, "-")
	before := rig.Hash(sample)
	s.mu.Lock()
	s.tries[sample.ID]++
	try := s.tries[sample.ID]
	if len(s.kept) < 50 && kind == "ok" {
		s.kept[sample.ID] = sample.Media[0].Data
	}
	s.mu.Unlock()
	switch kind {
	case "panic":
		panic("as planned")
	case "hang":
		<-ctx.Done()
		return rewards.Score{}, ctx.Err()
	case "overrun": // heeds nothing
		<-time.After(3 * stormTimeout)
		s.check(sample, before)
	case "late": // comes just after its deadline
		<-time.After(stormTimeout + 150*time.Millisecond)
		s.check(sample, before)
	case "bad":
		return rewards.Score{}, fmt.Errorf("%w: as planned", rewards.BadInput)
	case "flaky":
		if try == 1 {
			return rewards.Score{}, rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: once", rewards.Unavailable))
		}
	case "nan":
		zero := 0.0
		return rewards.Score{Value: zero / zero}, nil
	default:
		<-time.After(time.Duration(before * float64(4*time.Millisecond)))
	}
	return rewards.Score{Value: rig.Hash(sample)}, nil
}

// check notes a sample that no longer has its own bytes.
func (s *stormScorer) check(sample *rewards.Sample, before float64) {
	if rig.Hash(sample) != before {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wrong = append(s.wrong, sample.ID)
	}
}

func TestThousandsOfSamplesThroughFailingScorersAndACutConnection(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	const samples = 3000
	sc := &stormScorer{tries: map[string]int{}, kept: map[string][]byte{}}
	m, err := rewards.NewManager(rewards.ManagerConfig{Timeout: stormTimeout, Components: []rewards.Component{
		{Key: "hash", Weight: 1, Required: true, Scorer: rewards.ScorerFunc(sc.score)},
	}})
	require.NoError(t, err)
	n := newNode(t, rig.Options{
		Workers: 4, Worker: rig.Settings{Places: 24, MaxAbandoned: 20},
		Profiles: map[string]*rewards.Manager{"": m}, Loop: loop.Config{MaxAttempts: 2, CreditSamples: 128, Breaker: loop.Breaker{Failures: 50}},
	})
	p := newProxy(t, strings.TrimPrefix(n.url, "ws://"), 1_000_000)
	c, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "storm"})
	require.NoError(t, err)
	seen := map[string]int{}
	var reader sync.WaitGroup
	results := c.Results(t.Context())
	reader.Go(func() {
		for r := range results {
			seen[r.ID]++
		}
	})
	bytes := func(i int) int { return 3 * (500 + i%3000) } // 1.5 to 10.5 kB
	futures := make([]*client.Future, samples)
	for i := range futures {
		futures[i], err = c.Submit(t.Context(), rig.Sample(fmt.Sprintf("%d-%s", i, fate(i)), bytes(i)), 0)
		require.NoError(t, err)
	}
	outcomes := map[rewards.Outcome]int{}
	for i, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		outcomes[res.Outcome]++
		kind := fate(i)
		// On a machine that stands still for a moment an answer may come before anybody
		// has looked at the clock: it counts, and is checked as any other.
		timely := (kind == "late" || kind == "overrun") && res.Outcome == rewards.Scored
		if kind != "ok" && kind != "flaky" && !timely {
			require.Equal(t, rewards.Failed, res.Outcome, "%s: %v", f.ID, res.Errors)
			require.Nil(t, res.RewardScore)
			want := map[string]rewards.Class{
				"panic": rewards.Panicked, "bad": rewards.BadInput, "nan": rewards.InvalidScore,
				"hang": rewards.Timeout, "overrun": rewards.Timeout, "late": rewards.Timeout,
			}[kind]
			require.Equal(t, want, res.Errors[0].Class, "%s: %v", f.ID, res.Errors)
			continue
		}
		require.Equal(t, rewards.Scored, res.Outcome, "%s: %v", f.ID, res.Errors)
		require.InDelta(t, rig.Hash(rig.Sample(f.ID, bytes(i))), *res.RewardScore, 0, "%s has another's score", f.ID)
	}
	require.NoError(t, c.Close())
	reader.Wait()
	t.Logf("outcomes %v, %d cuts", outcomes, p.cuts.Load())
	require.Equal(t, samples, outcomes[rewards.Scored]+outcomes[rewards.Failed])
	require.Len(t, seen, samples)
	for id, times := range seen {
		require.Equal(t, 1, times, id)
	}
	require.Greater(t, p.cuts.Load(), int64(3))

	fresh, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "fresh"})
	require.NoError(t, err)
	last := 3 * stormTimeout // of scorers that heed nothing
	liveness.Check(t, fresh, liveness.Samples, liveness.Samples*4*time.Millisecond/(4*24), last, func(i int) *rewards.Sample {
		return rig.Sample(fmt.Sprintf("%d-ok", i), bytes(i))
	})
	require.NoError(t, fresh.Close())
	require.Eventually(t, func() bool { return n.Buffers.Live() == 0 }, 10*time.Second, 10*time.Millisecond, "frames that nobody released")
	n.Stop()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	require.Empty(t, sc.wrong, "samples whose bytes changed under an overrunning scorer")
	require.NotEmpty(t, sc.kept)
	for id, b := range sc.kept {
		for _, v := range b {
			require.Equal(t, byte(0xDB), v, "%s can be read after its release", id)
		}
	}
}

// The whole credit is in flight when the connection is cut. What the client sends
// again after that must not be taken for too much.
func TestACutWithTheWholeCreditInFlightLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	slow := hashComponent()
	slow.Scorer = rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return rewards.Score{}, ctx.Err()
		}
		return rewards.Score{Value: rig.Hash(s)}, nil
	})
	n := newNode(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 4}, Profiles: profile(t, slow), Loop: loop.Config{CreditSamples: 16},
	})
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	var futures []*client.Future
	for i := range 60 {
		f, err := c.Submit(t.Context(), rig.Sample(fmt.Sprint(i), 3*(60-i)*100), 0)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	for i, f := range futures {
		if i%12 == 3 {
			n.cut()
		}
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, "%s: %v", f.ID, res.Errors)
	}
	require.NoError(t, c.Close())
}

// A gateway that stops is no reason to lose a sample: the client finds the next one.
func TestSamplesOfAStoppedGatewayGoToTheNext(t *testing.T) {
	t.Parallel()
	hang := hashComponent()
	hang.Scorer = rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
		<-ctx.Done()
		return rewards.Score{}, ctx.Err()
	})
	first := newNode(t, rig.Options{Workers: 1, Profiles: profile(t, hang)})
	second := newNode(t, rig.Options{Workers: 1, Profiles: profile(t, hashComponent())})
	p := newProxy(t, strings.TrimPrefix(first.url, "ws://"), 1<<30)
	c, err := client.Dial(t.Context(), client.Config{URL: p.url, Run: "r"})
	require.NoError(t, err)
	var futures []*client.Future
	for i := range 20 {
		f, err := c.Submit(t.Context(), rig.Sample(fmt.Sprint(i), 300), 0)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	require.Eventually(t, func() bool { return first.Manager.InFlight() == 20 }, 10*time.Second, time.Millisecond)
	p.assign(strings.TrimPrefix(second.url, "ws://"))
	first.Manager.Stop()
	for _, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, "%s: %v", f.ID, res.Errors)
	}
	require.NoError(t, c.Close())
}

// refuser is a server that refuses the first try of every sample as too much, says
// nothing more, and scores the second.
type refuser struct {
	conn *wsconn.Conn
	seen map[string]bool
	seq  uint64
}

// Text implements wsconn.Handler.
func (r *refuser) Text(b []byte) error {
	if !strings.HasPrefix(string(b), `{"type":"hello"`) {
		return nil
	}
	return r.say(&wire.Welcome{
		Session: "s", Epoch: 1, Protocol: wire.Protocol, Credit: wire.CreditTotals{Samples: 100, Bytes: 1 << 20}, Rewards: []wire.RewardInfo{{}},
	})
}

// Binary implements wsconn.Handler.
func (r *refuser) Binary(b io.Reader) error {
	h, err := wire.ReadHeader(b, wire.Limits{})
	if err != nil {
		return err
	}
	id := h.Sample.ID
	res := &wire.Result{Type: "result", ID: id, Outcome: rewards.Rejected, Errors: []rewards.ComponentError{{Class: rewards.OverCredit, Message: "too much"}}}
	if r.seen[id] {
		score := 1.0
		r.seq++
		res = &wire.Result{Type: "result", ID: id, Seq: r.seq, Outcome: rewards.Scored, RewardScore: &score}
	}
	r.seen[id] = true
	return r.say(res)
}

func (r *refuser) say(v any) error {
	b, err := wire.EncodeControl(v)
	if err != nil {
		return err
	}
	return r.conn.Send(b)
}

// The result or credit that would end the waiting may have crossed the refusal: the
// client tries again on its own.
func TestASampleRefusedAsTooMuchIsTriedAgainAlthoughNothingMoreCame(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c, err := wsconn.Upgrade(w, req, wsconn.UpgradeConfig{Subprotocols: []string{wire.Protocol}})
		if err == nil {
			_ = c.Run(req.Context(), &refuser{conn: c, seen: map[string]bool{}}) // ends with the client
		}
	}))
	defer srv.Close()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws" + strings.TrimPrefix(srv.URL, "http"), Run: "r"})
	require.NoError(t, err)
	f, err := c.Submit(t.Context(), rig.Sample("x", 300), 0)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	res, err := f.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, rewards.Scored, res.Outcome)
	require.NoError(t, c.Close())
}
