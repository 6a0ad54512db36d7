package client_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/internal/wsconn"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// node is a gateway with workers over the real queue behind a real socket.
type node struct {
	*rig.Rig
	url   string
	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newNode(t *testing.T, o rig.Options) *node {
	t.Helper()
	f, err := queue.Open(t.Context(), queue.Config{Lease: 2 * time.Second})
	require.NoError(t, err)
	var sources []*queue.Source
	o.Queue = f
	o.Source = func(id string) workers.Source {
		s, err := f.NewSource(id, rig.Queues(o.Profiles))
		require.NoError(t, err)
		sources = append(sources, s)
		return s
	}
	n := &node{Rig: rig.New(t, o), conns: map[net.Conn]bool{}}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Upgrade(w, r, wsconn.UpgradeConfig{Subprotocols: []string{wire.Protocol}})
		if err != nil {
			return
		}
		_ = n.Manager.Serve(r.Context(), c)
	}))
	srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if s == http.StateHijacked {
			n.conns[c] = true
		}
	}
	srv.Start()
	n.url = "ws" + strings.TrimPrefix(srv.URL, "http")
	t.Cleanup(func() {
		n.Stop()
		srv.Close()
		for _, s := range sources {
			s.Disconnect()
		}
		f.Close()
	})
	return n
}

// cut closes every connection under the feet of whoever uses it.
func (n *node) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		_ = c.Close()
	}
	clear(n.conns)
}

func profile(t *testing.T, components ...rewards.Component) map[string]*rewards.Manager {
	t.Helper()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: components, Timeout: 2 * time.Second})
	require.NoError(t, err)
	return map[string]*rewards.Manager{"": m}
}

func hashComponent() rewards.Component {
	return rewards.Component{Key: "hash", Weight: 1, Required: true, Scorer: rewards.ScorerFunc(
		func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{Value: rig.Hash(s)}, nil
		})}
}

func TestAFinishedSampleComesBackScoredByItsOwnBytes(t *testing.T) {
	t.Parallel()
	n := newNode(t, rig.Options{Workers: 3, Worker: rig.Settings{Places: 2}, Profiles: profile(t, hashComponent())})
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	var futures []*client.Future
	for i := range 200 {
		f, err := c.Submit(t.Context(), rig.Sample(fmt.Sprint(i), 3*(100+i)), 0)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	for i, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		require.InDelta(t, rig.Hash(rig.Sample(fmt.Sprint(i), 3*(100+i))), *res.RewardScore, 0)
		require.Equal(t, true, res.ExtraInfo["rewardloop/valid"])
	}
	require.NoError(t, c.Close())
}

func TestAClientWhoseConnectionIsCutAgainAndAgainGetsEachResultOnce(t *testing.T) {
	t.Parallel()
	slow := hashComponent()
	slow.Scorer = rewards.ScorerFunc(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		select {
		case <-time.After(3 * time.Millisecond):
		case <-ctx.Done():
			return rewards.Score{}, ctx.Err()
		}
		return rewards.Score{Value: rig.Hash(s)}, nil
	})
	n := newNode(t, rig.Options{Workers: 2, Worker: rig.Settings{Places: 2}, Profiles: profile(t, slow)})
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	seen := map[string]int{}
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	results := c.Results(ctx)
	wg.Go(func() {
		for r := range results {
			seen[r.ID]++
		}
	})
	const samples = 600
	var futures []*client.Future
	for i := range samples {
		f, err := c.Submit(t.Context(), rig.Sample(fmt.Sprint(i), 3*2000), 0)
		require.NoError(t, err)
		futures = append(futures, f)
		if i%60 == 59 {
			_, err := futures[i-55].Wait(t.Context())
			require.NoError(t, err)
			n.cut()
		}
	}
	for i, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		require.InDelta(t, rig.Hash(rig.Sample(fmt.Sprint(i), 3*2000)), *res.RewardScore, 0)
	}
	stop()
	wg.Wait()
	require.Len(t, seen, samples)
	for id, times := range seen {
		require.Equal(t, 1, times, id)
	}
	require.NoError(t, c.Close())
}

func TestDialFailsWithAHintWhenNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	_, err = client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "r"})
	require.ErrorContains(t, err, "rewardloop serve")
}

func TestCloseFailsWhatHasNoResult(t *testing.T) {
	t.Parallel()
	hang := hashComponent()
	hang.Scorer = rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
		<-ctx.Done()
		return rewards.Score{}, ctx.Err()
	})
	n := newNode(t, rig.Options{Workers: 1, Profiles: profile(t, hang)})
	c, err := client.Dial(t.Context(), client.Config{URL: n.url, Run: "r"})
	require.NoError(t, err)
	f, err := c.Submit(t.Context(), rig.Sample("x", 300), 0)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	_, err = f.Wait(t.Context())
	require.ErrorIs(t, err, client.ErrClosed)
	_, err = c.Submit(t.Context(), rig.Sample("y", 300), 0)
	require.ErrorIs(t, err, client.ErrClosed)
}

func TestDialNamesEverythingThatItsConfigLacks(t *testing.T) {
	t.Parallel()
	_, err := client.Dial(t.Context(), client.Config{})
	require.ErrorContains(t, err, "URL")
	require.ErrorContains(t, err, "run")
}
