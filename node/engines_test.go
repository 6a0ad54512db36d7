package node_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// stubEngine answers every chat with what say makes of its last user turn.
func stubEngine(t *testing.T, say func(model, turn string) string) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"data":[]}`)) // whether it is there
			return
		}
		asked.Add(1)
		var q struct {
			Model    string
			Messages []struct {
				Content any
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &q) != nil || r.URL.Path != "/v1/chat/completions" {
			http.Error(w, "no chat", http.StatusBadRequest)
			return
		}
		turn := ""
		if n := len(q.Messages); n > 0 {
			turn = fmt.Sprint(q.Messages[n-1].Content)
		}
		w.Header().Set("Content-Type", "application/json")
		answer, err := json.Marshal(map[string]any{
			"id": "1", "object": "chat.completion", "created": 1, "model": q.Model,
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": say(q.Model, turn)}}},
			"usage":   map[string]any{"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
		})
		assert.NoError(t, err)
		_, _ = w.Write(answer)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func submit(t *testing.T, addr string, samples ...rewards.Sample) []*wire.Result {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: t.Name()})
	require.NoError(t, err)
	defer c.Close()
	out := make([]*wire.Result, len(samples))
	for i := range samples {
		f, err := c.Submit(t.Context(), &samples[i], 0)
		require.NoError(t, err)
		out[i], err = f.Wait(t.Context())
		require.NoError(t, err)
	}
	return out
}

// One reward of a judge, of a function in Python that asks the router as verl's do, and
// of a scorer on another server.
func TestAJudgeAFunctionAndAnotherServerScoreTogether(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	engine, asked := stubEngine(t, func(model, turn string) string {
		if strings.Contains(turn, "ping") {
			return "pong of " + model
		}
		return "<score>0.75</score>"
	})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Response, Label string }
		if !assert.NoError(t, json.NewDecoder(r.Body).Decode(&in)) {
			return
		}
		_, _ = fmt.Fprintf(w, "%d", len(in.Response))
	}))
	defer other.Close()
	path := function(t, `
import json, urllib.request

def compute_score(extra_info, reward_router_address, reward_router_api_key, model_name):
    host, port = reward_router_address.split(":")
    header = {"Content-Type": "application/json"}
    if not extra_info.get("bare"):  # and without a key, as verl's functions ask
        header["Authorization"] = "Bearer " + reward_router_api_key
    ask = urllib.request.Request(
        f"http://{host}:{int(port)}/v1/chat/completions",
        json.dumps({"model": model_name, "messages": [{"role": "user", "content": "ping"}]}).encode(),
        header,
    )
    with urllib.request.urlopen(ask, timeout=20) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
    return {"score": 2.0 if said == "pong of org/judge" else 0.0, "said": said}
`)
	_, addr := start(
		t,
		"pool.python.processes=1", "pool.python.interpreter=python3",
		"reward.reward_model.enable=true", "reward.reward_model.model_path=org/judge", "reward.reward_model.rollout.name=external",
		"+reward.reward_model.rollout.base_urls=["+engine+"/v1]", "+reward.reward_model.rollout.prompt_price=100",
		"+reward.reward_functions.judge.path=builtin://judge", "+reward.reward_functions.judge.required=true",
		"+reward.reward_functions.judge.template=Is {response} right?", "+reward.reward_functions.judge.temperature=0",
		"+reward.reward_functions.mine.path="+path, "+reward.reward_functions.mine.required=true", "+reward.reward_functions.mine.probe=false", // it asks the engine
		"+reward.reward_functions.far.path="+other.URL, "+reward.reward_functions.far.protocol=slime", "+reward.reward_functions.far.required=true",
	)
	results := submit(t, addr, rewards.Sample{ID: "a", Response: "four", GroundTruth: json.RawMessage(`"4"`)},
		rewards.Sample{ID: "b", Response: "four", GroundTruth: json.RawMessage(`"4"`), ExtraInfo: json.RawMessage(`{"bare": true}`)})
	for _, r := range results {
		require.Equal(t, rewards.Scored, r.Outcome, r.Errors)
		assert.InDelta(t, 0.75, r.ExtraInfo["reward/judge"], 1e-12)
		assert.InDelta(t, 2, r.ExtraInfo["reward/mine"], 1e-12, r.ExtraInfo["reward/mine/said"])
		assert.InDelta(t, 4, r.ExtraInfo["reward/far"], 1e-12)
		assert.InDelta(t, 6.75, *r.RewardScore, 1e-12)
	}
	assert.EqualValues(t, 3, asked.Load(), "the judge's question about the second sample is answered from memory")
	metrics := scrape(t, addr)
	for _, line := range []string{
		`rewardloop_judge_questions_total\{engine="reward_model",from="engine",model="org/judge"\} 1`,
		`rewardloop_judge_questions_total\{engine="reward_model",from="memory",model="org/judge"\} 1`,
		`rewardloop_judge_tokens_total\{engine="reward_model",kind="prompt",model="org/judge"\} 10`,
		`rewardloop_judge_cost_total\{engine="reward_model",model="org/judge"\} 0.001`,
		`rewardloop_outbound_requests_total\{server="[^"]*",upstream="reward_model"\} 3`,
		`rewardloop_outbound_limit\{limit="concurrency",upstream="reward_model"\} 256`,
		`rewardloop_outbound_share\{limit="concurrency",upstream="reward_model"\} 256`,
		`rewardloop_outbound_fleet_processes\{upstream="reward_model"\} 0`,
		`rewardloop_outbound_fleet_partitioned\{upstream="reward_model"\} 0`,
	} {
		assert.Regexp(t, line, metrics)
	}
}

func TestTheRouterKnowsEnginesByTheirModels(t *testing.T) {
	t.Parallel()
	say := func(name string) func(string, string) string {
		return func(model, _ string) string { return name + " serves " + model }
	}
	one, _ := stubEngine(t, say("one"))
	two, _ := stubEngine(t, say("two"))
	_, addr := start(t, "+reward.reward_functions.a.path=builtin://length",
		"+engines.one.base_urls="+one, "+engines.one.model=m1", "+engines.two.base_urls="+two, "+engines.two.model=m2")
	ask := func(model string) (int, string) {
		body := `{"model": "` + model + `", "messages": [{"role": "user", "content": "x"}]}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/chat/completions", strings.NewReader(body))
		require.NoError(t, err)
		a, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		require.NoError(t, err)
		return a.StatusCode, string(text)
	}
	for model, want := range map[string]string{"m1": "one serves m1", "m2": "two serves m2", "": "one serves "} {
		status, text := ask(model)
		assert.Equal(t, 200, status, text)
		assert.Contains(t, text, want)
	}
	status, text := ask("m3")
	assert.Equal(t, 422, status)
	assert.Contains(t, text, "want one of m1, m2")
}

func TestAJudgeWithoutAnEngineSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	for override, says := range map[string]string{
		"+reward.reward_functions.a.path=builtin://vqascore": "reward_model with enable: true",
	} {
		cfg, err := config.Load("", []string{override}, nil)
		require.NoError(t, err)
		_, err = node.New(node.Options{Config: cfg})
		require.ErrorContains(t, err, says)
	}
	cfg, err := config.Load("", []string{
		"+reward.reward_functions.a.path=builtin://vqascore", "+reward.reward_functions.a.engine=big",
		"+engines.small.base_urls=http://127.0.0.1:1", "+engines.small.model=m",
	}, nil)
	require.NoError(t, err)
	_, err = node.New(node.Options{Config: cfg})
	require.ErrorContains(t, err, `no engine "big", want one of small`)
}

func TestAnEngineAtAForbiddenAddressIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("", []string{"+reward.reward_functions.a.path=builtin://length", "+engines.small.base_urls=http://169.254.169.254", "+engines.small.model=m"}, nil)
	require.NoError(t, err)
	_, err = node.New(node.Options{Config: cfg})
	require.ErrorContains(t, err, "169.254.169.254 is not allowed")
}
