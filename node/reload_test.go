package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// one is a scorer that says 1 once it is let, which counts who asks.
type one struct {
	asked chan struct{}
	let   chan struct{} // closed: everything is
}

func (o *one) Score(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
	select {
	case o.asked <- struct{}{}:
	default:
	}
	select {
	case <-o.let:
		return rewards.Score{Value: 1}, nil
	case <-ctx.Done():
		return rewards.Score{}, ctx.Err()
	}
}

func (*one) Concurrency() int { return 8 }

// reloadable is a node of a file that a test may write anew.
type reloadable struct {
	*node.Node
	t    *testing.T
	file string
	addr string
	one  *one
}

func newReloadable(t *testing.T, text string) *reloadable {
	t.Helper()
	r := &reloadable{t: t, file: filepath.Join(t.TempDir(), "cfg.yaml"), one: &one{make(chan struct{}, 1), make(chan struct{})}}
	r.write(text)
	load := func() (*config.Config, error) {
		return config.Load(r.file, []string{"++server.listen=127.0.0.1:0"}, os.LookupEnv)
	}
	cfg, err := load()
	require.NoError(t, err)
	spec := rewards.Spec{Name: "one", Build: func(json.RawMessage) (rewards.Scorer, error) { return r.one, nil }}
	r.Node, err = node.New(node.Options{Config: cfg, Load: load, Version: "test", Scorers: []rewards.Spec{spec}})
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	t.Cleanup(r.Stop)
	at, err := r.Listen(t.Context())
	require.NoError(t, err)
	r.addr = at.String()
	return r
}

func (r *reloadable) write(text string) {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(r.file, []byte(text), 0o600))
}

func (r *reloadable) dial() *client.Client {
	r.t.Helper()
	c, err := client.Dial(r.t.Context(), client.Config{URL: "ws://" + r.addr, Run: "r"})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// post asks for a reload over HTTP.
func (r *reloadable) post() (status int, body string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.addr+"/v1/reload", http.NoBody)
	require.NoError(r.t, err)
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	require.NoError(r.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return res.StatusCode, string(b)
}

// weighing is a configuration with one component of that weight.
func weighing(weight float64) string {
	return fmt.Sprintf("reward:\n  num_workers: 2\n  reward_functions:\n    one: {path: builtin://one, weight: %v}\n", weight)
}

func text(id string) *rewards.Sample { return &rewards.Sample{ID: id, Prompt: "p", Response: "r"} }

func result(t *testing.T, f *client.Future) *wire.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := f.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, rewards.Scored, res.Outcome, "%v", res.Errors)
	return res
}

func TestAReloadChangesTheWeightOfWhatBeginsAfterItAndOfNothingElse(t *testing.T) {
	t.Parallel()
	r := newReloadable(t, weighing(1))
	c := r.dial()
	before, err := c.Submit(t.Context(), text("before"), 0)
	require.NoError(t, err)
	<-r.one.asked // a worker has it
	r.write(weighing(3))
	status, body := r.post()
	require.Equal(t, http.StatusOK, status, body)
	require.JSONEq(t, `{"applied":["reward.reward_functions.one.weight"],"restart":[]}`, body)
	after, err := c.Submit(t.Context(), text("after"), 0)
	require.NoError(t, err)
	close(r.one.let)
	old, fresh := result(t, before), result(t, after)
	require.InDelta(t, 1, *old.RewardScore, 0)
	require.InDelta(t, 3, *fresh.RewardScore, 0)
	require.NotEmpty(t, old.Config)
	require.NotEmpty(t, fresh.Config)
	require.NotEqual(t, old.Config, fresh.Config, "each says by which configuration it was scored")
	done, err := r.Reload(t.Context())
	require.NoError(t, err)
	require.Empty(t, done.Applied, "it is applied already")
	r.write(weighing(1))
	_, err = r.Reload(t.Context())
	require.NoError(t, err)
	again, err := c.Submit(t.Context(), text("again"), 0)
	require.NoError(t, err)
	require.Equal(t, old.Config, result(t, again).Config, "the same configuration has the same name")
}

func TestAReloadWithFaultsChangesNothingAndNamesAll(t *testing.T) {
	t.Parallel()
	r := newReloadable(t, weighing(1))
	close(r.one.let)
	c := r.dial()
	r.write("reward:\n  num_workers: x\n  reward_functions:\n    one: {path: builtin://one, weight: heavy}\n")
	status, body := r.post()
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, body, "num_workers")
	require.Contains(t, body, "weight")
	r.write(weighing(-1)) // which no reward can have
	_, err := r.Reload(t.Context())
	require.Error(t, err)
	require.NoError(t, os.Remove(r.file))
	_, err = r.Reload(t.Context())
	require.Error(t, err)
	f, err := c.Submit(t.Context(), text("x"), 0)
	require.NoError(t, err)
	require.InDelta(t, 1, *result(t, f).RewardScore, 0)
}

func TestWhatCannotChangeWhileSamplesAreScoredIsNamed(t *testing.T) {
	t.Parallel()
	r := newReloadable(t, weighing(1))
	close(r.one.let)
	r.write(strings.Replace(weighing(2), "num_workers: 2", "num_workers: 3", 1) + "loop: {max_attempts: 5}\nqueue: {lease: 20s}\n")
	done, err := r.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"reward.reward_functions.one.weight"}, done.Applied)
	require.ElementsMatch(t, []string{"reward.num_workers", "loop.max_attempts", "queue.lease"}, done.Restart)
	r.write(weighing(5) + "    two: {path: builtin://one}\n")
	done, err = r.Reload(t.Context())
	require.NoError(t, err)
	require.Empty(t, done.Applied, "half of a reward would be another one still")
	require.Contains(t, done.Restart, "reward.reward_functions.two")
	f, err := r.dial().Submit(t.Context(), text("x"), 0)
	require.NoError(t, err)
	require.InDelta(t, 2, *result(t, f).RewardScore, 0)
}

func TestReloadsDuringALoadLoseAndRepeatNoSample(t *testing.T) {
	t.Parallel()
	const samples, reloads = 2000, 20
	r := newReloadable(t, weighing(1))
	close(r.one.let)
	c := r.dial()
	results := c.Results(t.Context())
	seen := map[string]int{}
	var reader, writer sync.WaitGroup
	reader.Go(func() {
		for res := range results {
			seen[res.ID]++
		}
	})
	done := make(chan struct{})
	writer.Go(func() {
		defer close(done)
		for i := range reloads {
			r.write(weighing(float64(1 + i%3)))
			if _, err := r.Reload(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	futures := make([]*client.Future, samples)
	for i := range futures {
		var err error
		futures[i], err = c.Submit(t.Context(), text(fmt.Sprint(i)), 0)
		require.NoError(t, err)
		if i == samples/2 {
			<-done
		}
	}
	scores := map[string]float64{}
	for _, f := range futures {
		res := result(t, f)
		require.Contains(t, []float64{1, 2, 3}, *res.RewardScore)
		if was, ok := scores[res.Config]; ok {
			require.InDelta(t, was, *res.RewardScore, 0, "one configuration, one weight")
		}
		scores[res.Config] = *res.RewardScore
	}
	writer.Wait()
	require.NoError(t, c.Close())
	reader.Wait()
	require.Len(t, seen, samples)
	for id, n := range seen {
		require.Equal(t, 1, n, id)
	}
}

func TestAReloadMovesAnEngine(t *testing.T) {
	t.Parallel()
	first, _ := stubEngine(t, func(string, string) string { return "1" })
	second, _ := stubEngine(t, func(string, string) string { return "2" })
	at := func(url string, concurrency int) string {
		return weighing(1) + fmt.Sprintf("engines:\n  e: {model: m, base_urls: [%s], concurrency: %d}\n", url, concurrency)
	}
	r := newReloadable(t, at(first, 4))
	close(r.one.let)
	ask := func() string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/v1/chat/completions", strings.NewReader(`{"model":"m"}`))
		require.NoError(t, err)
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		require.NoError(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode, string(b))
		return string(b)
	}
	require.Contains(t, ask(), `"1"`)
	r.write(at(second, 2))
	done, err := r.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"engines.e.base_urls", "engines.e.concurrency"}, done.Applied)
	require.Contains(t, ask(), `"2"`)
	r.write(strings.Replace(at(second, 2), "concurrency: 2", "concurrency: 2, key_file: "+filepath.Join(t.TempDir(), "none"), 1))
	_, err = r.Reload(t.Context())
	require.Error(t, err, "there is no such key")
	require.Contains(t, ask(), `"2"`)
	r.write(strings.Replace(at(second, 2), "model: m", "model: n", 1))
	done, err = r.Reload(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"engines.e"}, done.Restart)
}

func TestANodeThatDoesNotKnowItsFileRefusesAReload(t *testing.T) {
	t.Parallel()
	n, _ := start(t, "reward.custom_reward_function.path=builtin://jpeg_compressibility")
	_, err := n.Reload(t.Context())
	require.ErrorIs(t, err, node.ErrNoReload)
}
