package node_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
)

// dice is an engine that draws its answers from the seed of the question and its text,
// and without a seed from nothing.
func dice(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"data":[]}`)) // whether it is there
			return
		}
		body, err := io.ReadAll(r.Body)
		var q struct {
			Seed     *int64
			Messages json.RawMessage
		}
		if !assert.NoError(t, err) || !assert.NoError(t, json.Unmarshal(body, &q)) {
			return
		}
		draw := rand.Uint64()
		if q.Seed != nil {
			h := fnv.New64a()
			_, _ = fmt.Fprint(h, *q.Seed, string(q.Messages))
			draw = h.Sum64()
		}
		say := fmt.Sprintf("<score>%.4f</score>", float64(draw%10_000)/1e4)
		if strings.Contains(string(q.Messages), "Two candidates") {
			say = []string{"<result>A</result>", "<result>B</result>", "<result>tie</result>"}[draw%3]
		}
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{
			"id": "1", "object": "chat.completion", "created": 1, "model": "m",
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": say}}},
		}))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// scores sends forty samples at once and returns what came of them, less the times.
func scores(t *testing.T, engine string, workers int, deterministic bool) string {
	t.Helper()
	_, addr := start(
		t,
		fmt.Sprintf("reward.num_workers=%d", workers), fmt.Sprintf("++loop.deterministic=%v", deterministic), fmt.Sprintf("reward.concurrency=%d", 2*workers),
		"reward.reward_model.enable=true", "reward.reward_model.model_path=m", "reward.reward_model.rollout.name=external",
		"+reward.reward_model.rollout.base_urls=["+engine+"/v1]",
		"+reward.reward_functions.judge.path=builtin://judge", "+reward.reward_functions.judge.required=true",
		"+reward.reward_functions.judge.template=Is {response} right?", "+reward.reward_functions.judge.temperature=0.7",
		"+reward.reward_functions.pairs.path=builtin://pairwise", "+reward.reward_functions.pairs.required=true", "+reward.reward_functions.pairs.temperature=1",
		"+reward.reward_functions.size.path=builtin://jpeg_compressibility", "+reward.reward_functions.size.required=true",
	)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "same"})
	require.NoError(t, err)
	defer c.Close()
	var futures []*client.Future
	for i := range 40 {
		f, err := c.Submit(t.Context(), &rewards.Sample{
			ID: fmt.Sprint(i), UID: fmt.Sprint("g", i/4), GroupSize: 4, Prompt: fmt.Sprint("prompt ", i/4), Response: fmt.Sprint("answer ", i), Step: 1,
			Media: oneOfEach(1 + i%5)[1].Media,
		}, 0)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	var out []map[string]any
	for i, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, "%d: %v", i, res.Errors)
		for key := range res.ExtraInfo {
			if strings.HasPrefix(key, "rewardloop/") { // attempts and times
				delete(res.ExtraInfo, key)
			}
		}
		out = append(out, map[string]any{"id": res.ID, "score": res.RewardScore, "extra": res.ExtraInfo, "group": res.Group})
	}
	text, err := json.MarshalIndent(out, "", " ")
	require.NoError(t, err)
	return string(text)
}

// A judge that draws, a comparison that draws, and a number of a picture, on one worker
// and on eight, twice.
func TestDeterministicResultsDoNotDependOnWhereSamplesAreScored(t *testing.T) {
	t.Parallel()
	engine := dice(t)
	first := scores(t, engine, 1, true)
	for _, workers := range []int{8, 1, 8} {
		require.Equal(t, first, scores(t, engine, workers, true), "on %d workers", workers)
	}
	once := scores(t, engine, 8, false)
	require.NotEqual(t, once, scores(t, engine, 8, false), "the dice do not roll: the test shows nothing")
}
