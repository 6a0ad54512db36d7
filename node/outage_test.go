package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// killable is an engine at an address of its own, which can be killed and started again.
type killable struct {
	t       *testing.T
	address string
	takes   time.Duration

	mu     sync.Mutex
	server *http.Server // guarded by mu; nil: it is killed
	asked  int          // guarded by mu
}

func newKillable(t *testing.T, takes time.Duration) *killable {
	t.Helper()
	k := &killable{t: t, address: "127.0.0.1:0", takes: takes}
	k.start()
	t.Cleanup(k.kill)
	return k
}

func (k *killable) start() {
	k.t.Helper()
	var ln net.Listener
	require.Eventually(k.t, func() (ok bool) {
		var err error
		ln, err = new(net.ListenConfig).Listen(context.Background(), "tcp", k.address)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.address = ln.Addr().String()
	server := &http.Server{Handler: k, ReadHeaderTimeout: time.Minute}
	k.server = server
	go func() { _ = server.Serve(ln) }() // ends with kill
}

// kill ends it at once, with all connections.
func (k *killable) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.server != nil {
		_ = k.server.Close()
		k.server = nil
	}
}

func (k *killable) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

func (k *killable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	k.mu.Lock()
	k.asked++
	k.mu.Unlock()
	select {
	case <-time.After(k.takes):
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"object":"chat.completion","model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"<score>0.5</score>"}}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
}

// seen is what a page of the API says.
func seen[T any](t *testing.T, addr, path string) (out T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+path, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&out))
	return out
}

// An engine is killed in the middle of a step and comes back: nothing fails, nothing counts
// as an attempt, another profile goes on, and the step ends.
func TestAStepSurvivesTheDeathOfItsEngine(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	engine := newKillable(t, 50*time.Millisecond)
	read := &calls{of: map[string]int{}}
	reader := rewards.Spec{Name: "reader", Build: func(json.RawMessage) (rewards.Scorer, error) { return read, nil }}
	_, addr := startWith(t, []rewards.Spec{reader},
		"reward.num_workers=3", "+engines.judge.base_urls=http://"+engine.address+"/v1", "+engines.judge.model=m", "+engines.judge.concurrency=12",
		"+reward.reward_functions.judge.path=builtin://judge", "+reward.reward_functions.judge.required=true", "+reward.reward_functions.judge.engine=judge",
		"+reward.reward_functions.judge.template=Is {response} right?",
		"+reward.reward_functions.reader.path=builtin://reader", "+reward.reward_functions.reader.required=true",
		"+rewards.sound.custom_reward_function.path=builtin://length")
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "judged"})
	require.NoError(t, err)
	defer c.Close()
	const samples = 300
	require.NoError(t, c.Declare(wire.Step{Step: 1, Expected: samples, Total: true}))
	futures := make([]*client.Future, samples)
	for i := range futures {
		s := rewards.Sample{ID: fmt.Sprint("s", i), Response: fmt.Sprint("answer ", i), Step: 1}
		futures[i], err = c.Submit(t.Context(), &s, 5*time.Minute)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return engine.count() > 60 }, time.Minute, time.Millisecond)
	engine.kill()
	require.Eventually(t, func() bool {
		p := seen[struct {
			Samples []struct{ Stage, Waits string }
		}](t, addr, "/v1/pending")
		for _, s := range p.Samples {
			if s.Stage != "queued" || s.Waits != "waiting for judge" {
				return false
			}
		}
		return len(p.Samples) > 0
	}, 30*time.Second, 50*time.Millisecond, "all wait")
	other, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "sound", Reward: "sound"})
	require.NoError(t, err)
	defer other.Close()
	for i := range 50 {
		f, err := other.Submit(t.Context(), &rewards.Sample{ID: fmt.Sprint("x", i), Response: "abc"}, time.Minute)
		require.NoError(t, err)
		r, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, r.Outcome, r.Errors)
		require.Less(t, r.TimingMS["total"], 5000.0, "it does not wait for the engine")
	}
	require.Contains(t, scrape(t, addr), `rewardloop_outbound_breaker_open{server=`)
	workers := fmt.Sprint(seen[any](t, addr, "/v1/workers"))
	assert.Contains(t, workers, "waiting for judge")
	engine.start()
	for i, f := range futures {
		r, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, r.Outcome, "%+v", r.Errors)
		require.Equal(t, 1, r.Attempts)
		require.Equal(t, 1, read.count(fmt.Sprint("s", i)), "what was finished is kept")
	}
	assert.NotContains(t, scrape(t, addr), "rewardloop_loop_returned_total 0\n")
}

// calls is a scorer that counts its calls by sample.
type calls struct {
	mu sync.Mutex
	of map[string]int // guarded by mu
}

func (c *calls) Score(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[s.ID]++
	return rewards.Score{Value: 1}, nil
}

func (c *calls) count(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[id]
}
