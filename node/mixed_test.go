package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

// notebook takes what is printed.
type notebook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notebook) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

func (n *notebook) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// oneOfEach are samples of a batch: text, a picture, a video.
func oneOfEach(i int) []rewards.Sample {
	raw := func(kind rewards.Kind, layout rewards.Layout, shape ...int) []*rewards.Media {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return []*rewards.Media{{Kind: kind, Layout: layout, Encoding: rewards.Raw, DType: "U8", Shape: shape, Data: bytes.Repeat([]byte{byte(40 * i)}, n)}}
	}
	return []rewards.Sample{
		{ID: fmt.Sprint("text", i), DataSource: "openai/gsm8k", Prompt: "What is 3 + 4?\nThink.", Response: fmt.Sprint("The answer is #### ", 6+i), GroundTruth: json.RawMessage(`"7"`), Step: 3},
		{ID: fmt.Sprint("picture", i), DataSource: "pictures", Media: raw(rewards.Image, rewards.CHW, 3, 16, 16), Step: 3},
		{ID: fmt.Sprint("video", i), DataSource: "videos", Media: raw(rewards.Video, rewards.TCHW, 2, 3, 16, 16), Step: 3},
	}
}

// One step of text, pictures and videos meets different rewards under one key set, while
// a component fails for some of them.
func TestAMixedBatchHasOneKeySet(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load("", []string{
		"++server.listen=127.0.0.1:0", "++loop.num_examine=2",
		"+reward.reward_functions.answer.path=builtin://gsm8k", "+reward.reward_functions.answer.when=[openai/gsm8k]", "+reward.reward_functions.answer.required=true",
		"+reward.reward_functions.size.path=builtin://jpeg_compressibility", "+reward.reward_functions.size.when=[pictures, videos]",
		"+reward.reward_functions.shaky.path=builtin://shaky", "+reward.reward_functions.shaky.on_failure=value:-1", "+reward.reward_functions.shaky.clip=[0, 1]",
	}, nil)
	require.NoError(t, err)
	shaky := rewards.Spec{Name: "shaky", Build: func(json.RawMessage) (rewards.Scorer, error) {
		return rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			if strings.HasSuffix(s.ID, "1") {
				return rewards.Score{}, fmt.Errorf("%w: as planned", rewards.BadInput)
			}
			return rewards.Score{Value: 5}, nil
		}), nil
	}}
	var book notebook
	n, err := node.New(node.Options{Config: cfg, Scorers: []rewards.Spec{shaky}, Examine: &book})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	defer n.Stop()
	addr, err := n.Listen(t.Context())
	require.NoError(t, err)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr.String(), Run: "mixed"})
	require.NoError(t, err)
	defer c.Close()

	var keys []string
	for i := range 2 {
		for _, s := range oneOfEach(i) {
			f, err := c.Submit(t.Context(), &s, 0)
			require.NoError(t, err)
			res, err := f.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, rewards.Scored, res.Outcome, "%s: %v", s.ID, res.Errors)
			got := slices.Sorted(maps.Keys(res.ExtraInfo))
			if keys == nil {
				keys = got
			}
			assert.Equal(t, keys, got, s.ID)
			assert.Equal(t, s.DataSource == "openai/gsm8k", res.ExtraInfo["reward/answer"] != nil)
			assert.Equal(t, s.DataSource != "openai/gsm8k", res.ExtraInfo["reward/size"] != nil)
			want := 1.0
			if i == 1 {
				want = -1
			}
			assert.InDelta(t, want, res.ExtraInfo["reward/shaky"], 1e-12)
			assert.Equal(t, i == 1, res.ExtraInfo["reward/shaky/imputed"])
		}
	}
	shown := func() bool { return strings.Count(book.String(), "── run mixed, train step 3, sample ") >= 2 }
	require.Eventually(t, shown, 20*time.Second, time.Millisecond, "no result waits for what people are shown")
	text := book.String()
	assert.Equal(t, 2, strings.Count(text, "── run mixed, train step 3, sample "), text)
	assert.Contains(t, text, "   prompt       What is 3 + 4?\n                Think.\n   response     The answer is #### 6\n")
	assert.Contains(t, text, "   image        [3 16 16] CHW U8\n")
	assert.Contains(t, text, "reward/shaky/raw = 5")
}

// What a tool finds out about a sample reaches its scorers; where it fails, the sample
// fails with its name.
func TestToolsVerifyASampleBeforeItIsScored(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	path := function(t, `
def compute_score(extra_info, solution_str):
    return float(extra_info["verified_results"]["length"]["n"] == len(solution_str))
`)
	script := function(t, `
import json, sys
s = json.load(sys.stdin)
if s["response"] == "bad":
    sys.exit("no such table")
print(json.dumps({"n": len(s["response"])}))
`)
	_, addr := start(t, "pool.python.processes=1", "pool.python.interpreter=python3",
		"reward.custom_reward_function.path="+path, "+reward.verify.length.kind=command",
		"+reward.verify.length.argv=[python3, "+script+"]")
	results := submit(t, addr, rewards.Sample{ID: "a", Response: "seven"}, rewards.Sample{ID: "b", Response: "bad"})
	require.Equal(t, rewards.Scored, results[0].Outcome, results[0].Errors)
	assert.InDelta(t, 1, *results[0].RewardScore, 0)
	require.Equal(t, rewards.Failed, results[1].Outcome)
	assert.Contains(t, results[1].Errors[0].Message, "length")
	assert.Contains(t, results[1].Errors[0].Message, "no such table")
}

// A trainer that names no uid: the samples of a step with the same prompt are a group.
func TestGroupsAreMadeByPromptWhereThereIsNoUID(t *testing.T) {
	t.Parallel()
	_, addr := start(t, "+reward.group_by=prompt",
		"+reward.reward_functions.own.path=builtin://length", "+reward.reward_functions.own.weight=0.001",
		"+reward.reward_functions.place.path=builtin://rank", "+reward.reward_functions.place.of=own", "+reward.reward_functions.place.required=true")
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "prompts"})
	require.NoError(t, err)
	defer c.Close()
	futures := map[string]*client.Future{}
	for i, text := range []string{"", "long enough", "xxxx", "also long enough"} {
		s := rewards.Sample{ID: fmt.Sprint("s", i), Prompt: fmt.Sprint("prompt ", i%2), Response: text, GroupSize: 2, Step: 1}
		f, err := c.Submit(t.Context(), &s, 0)
		require.NoError(t, err)
		futures[s.ID] = f
	}
	for id, want := range map[string]float64{"s0": 0, "s2": 1} {
		res, err := futures[id].Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		assert.InDelta(t, want, res.ExtraInfo["reward/place"], 1e-12, id)
		assert.Equal(t, 2, res.Group.Scored)
		assert.Equal(t, rewards.PromptUID("prompt 0"), res.Group.UID)
	}
}

// The class of the async reward agent: it scores samples one by one, and once more when
// their group is finished.
func TestAPythonClassPostProcessesItsGroups(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	path := function(t, `
import math

class Agent:
    def compute_score(self, solution_str):
        if solution_str == "bad":
            raise ValueError("no answer")
        return float(solution_str)

    def post_process_scores(self, scores):
        known = [s for s in scores if not math.isnan(s)]
        mean = sum(known) / len(known)
        return [mean if math.isnan(s) else s for s in scores]
`)
	_, addr := start(t, "pool.python.processes=1", "pool.python.interpreter=python3",
		"+reward.reward_functions.final.post_process=mine", "+reward.reward_functions.final.required=true",
		"+reward.reward_functions.mine.path="+path, "+reward.reward_functions.mine.name=Agent",
		"+reward.reward_functions.mine.weight=0", "+reward.reward_functions.mine.on_failure=zero")
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "post"})
	require.NoError(t, err)
	defer c.Close()
	var futures []*client.Future
	for i, text := range []string{"1", "bad", "3"} {
		f, err := c.Submit(t.Context(), &rewards.Sample{ID: fmt.Sprint("s", i), UID: "u", GroupSize: 3, Response: text}, 0)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	for i, want := range []float64{1, 2, 3} {
		res, err := futures[i].Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		assert.InDelta(t, want, *res.RewardScore, 1e-12)
	}
}
