package node_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// capacities are those of a configuration's rewards before anything is loaded, by name.
func capacities(t *testing.T, text string) map[string]node.Capacity {
	t.Helper()
	cfg, err := config.Parse("c.yaml", []byte(text), nil, nil)
	require.NoError(t, err)
	n, err := node.New(node.Options{Config: cfg})
	require.NoError(t, err)
	defer n.Stop()
	out := map[string]node.Capacity{}
	for _, c := range n.Capacities() {
		out[c.Reward] = c
	}
	return out
}

// component is the only one of a reward.
func component(t *testing.T, all map[string]node.Capacity, reward string) rewards.ComponentConcurrency {
	t.Helper()
	require.Len(t, all[reward].Components, 1, reward)
	require.Equal(t, max(all[reward].Components[0].Concurrency, 1), all[reward].Samples, reward)
	return all[reward].Components[0]
}

func TestEachKindOfScorerHasThePlacesOfWhatExecutesIt(t *testing.T) {
	t.Parallel()
	all := capacities(t, `reward:
  reward_functions: {it: {path: "builtin://gsm8k"}}
rewards:
  judge: {reward_functions: {it: {path: "builtin://judge", engine: qwen, template: "{prompt}"}}}
  rubric: {reward_functions: {it: {path: "builtin://rubric", engine: qwen, rubrics: [{name: a, text: a}, {name: b, text: b}]}}}
  disrm: {reward_functions: {it: {path: "builtin://disrm", engine: small}}}
  pairs: {reward_functions: {it: {path: "builtin://pairwise", engine: qwen}}}
  few_pairs: {reward_functions: {it: {path: "builtin://pairwise", engine: qwen, concurrency: 4}}}
  order: {reward_functions: {it: {path: "builtin://listwise", engine: qwen}}}
  service: {reward_functions: {it: {path: "http://127.0.0.1:1", protocol: deepgen}}}
  few: {reward_functions: {it: {path: "http://127.0.0.1:2", protocol: deepgen, concurrency: 12}}}
  batches: {reward_functions: {it: {path: "http://127.0.0.1:3", protocol: deepgen, concurrency: 12, batch: 8, batch_wait: 5ms}}}
  sandbox: {reward_functions: {it: {path: "builtin://sandbox_fusion", url: "http://127.0.0.1:4/run_code"}}}
  sync: {reward_functions: {it: {path: "pkg://mine"}}}
  threads: {reward_functions: {it: {path: "pkg://mine", concurrency: 256}}}
  entry: {reward_functions: {it: {path: "builtin://gsm8k", concurrency: 99}}}
  penalty:
    custom_reward_function: {path: "http://127.0.0.1:2", reward_kwargs: {protocol: deepgen, concurrency: 12}}
    reward_manager: {name: dapo}
    reward_kwargs: {max_resp_len: 90, overlong_buffer_cfg: {enable: true, len: 30}}
engines:
  qwen: {base_urls: ["http://127.0.0.1:8000"], model: m}
  small: {base_urls: ["http://127.0.0.1:8001"], model: m, concurrency: 8, requests_per_minute: 60}
pool: {python: {processes: 3}}
`)
	for reward, want := range map[string]struct {
		n   int
		why string
	}{
		"default":   {runtime.GOMAXPROCS(0), "CPU"},
		"judge":     {256, "256 requests at a time to qwen"},
		"rubric":    {128, "256 requests at a time to qwen, and a call has about 2.0 in flight"},
		"disrm":     {8, "8 requests at a time to small, and at most 60 requests a minute"},
		"pairs":     {16, "and a call has about 16.0 in flight"},
		"few_pairs": {64, "and a call has about 4.0 in flight"},
		"order":     {256, "256 requests at a time to qwen"},
		"service":   {256, "256 requests at a time to 127.0.0.1:1"},
		"few":       {12, "12 requests at a time to 127.0.0.1:2"},
		"batches":   {96, "12 requests at a time to 127.0.0.1:3, each of up to 8 samples"},
		"sandbox":   {64, "64 requests at a time to 127.0.0.1:4"},
		"sync":      {3, "3 Python processes"},
		"threads":   {768, "3 Python processes with 256 calls"},
		"entry":     {99, "the concurrency of its entry"},
		"penalty":   {12, "12 requests at a time to 127.0.0.1:2"},
	} {
		c := component(t, all, reward)
		assert.Equal(t, want.n, c.Concurrency, reward)
		assert.Contains(t, c.Reason, want.why, reward)
	}
}

func TestModelsHaveThePlacesOfTheirDevice(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it loads ONNX Runtime")
	}
	if _, err := ort.Find(""); err != nil && os.Getenv("REQUIRE_ORT") != "1" {
		t.Skipf("SKIPPED: no ONNX Runtime: %v", err)
	}
	all := capacities(t, fmt.Sprintf(`rewards:
  clip: {reward_functions: {it: {path: "builtin://clipscore", model: %[1]s}}}
  similar: {reward_functions: {it: {path: "builtin://image_similarity", model: %[1]s}}}
  card: {reward_functions: {it: {path: "builtin://clipscore", model: %[1]s, device: "cuda:0"}}}
  graph: {reward_functions: {it: {path: "onnx://%[2]s"}}}
  vlm: {reward_functions: {it: {path: "builtin://vlm", model: %[3]s}}}
  judge: {reward_functions: {it: {path: "builtin://judge", engine: here, template: "{prompt}"}}}
engines: {here: {onnx: %[3]s}}
pool: {onnx: {slots: 3, max_batch: 8}}
`, tiny(t, "tiny-clip"), tiny(t, "tiny-graph"), tiny(t, "tiny-idefics3")))
	for _, reward := range []string{"clip", "similar", "graph", "vlm", "judge"} {
		c := component(t, all, reward)
		assert.Equal(t, 3, c.Concurrency, reward)
		assert.Equal(t, "3 sessions on cpu", c.Reason, reward)
	}
	assert.Equal(t, 16, component(t, all, "card").Concurrency)
}

func TestAReaderHasThePlacesOfItsEngine(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it loads ONNX Runtime")
	}
	if _, err := tesseract.Available(); err == nil {
		c := component(t, capacities(t, "reward: {reward_functions: {it: {path: builtin://ocr, reader: tesseract}}}\npool: {tesseract: {slots: 5}}\n"), "default")
		assert.Equal(t, 5, c.Concurrency)
		assert.Equal(t, "5 Tesseract readers", c.Reason)
	}
	if ppocrHere(t) == nil {
		c := component(t, capacities(t, "reward: {reward_functions: {it: {path: builtin://ocr, reader: ppocr}}}\npool: {onnx: {slots: 4}}\n"), "default")
		assert.Equal(t, 4, c.Concurrency)
		assert.Equal(t, "4 sessions on cpu", c.Reason)
	}
}

func TestToolsThatLookAtASampleFirstAreAComponent(t *testing.T) {
	t.Parallel()
	c := capacities(t, `reward:
  reward_functions: {it: {path: "pkg://mine", concurrency: 100}}
  verify:
    web: {kind: http, url: "http://127.0.0.1:9", concurrency: 40, request: {a: "{response}"}}
    tool: {kind: command, argv: [sh, -c, "echo 1"], max_concurrent: 6}
pool: {python: {processes: 1}}
`)["default"]
	require.Len(t, c.Components, 2)
	verify := c.Components[1]
	assert.True(t, verify.Prepares)
	assert.Equal(t, 6, verify.Concurrency, "that of the tool with the fewest")
	assert.Contains(t, verify.Reason, "6 runs of ")
	assert.Equal(t, 100, c.Samples)
	assert.Equal(t, "verify", c.Least().Key)
}

// What a process finds out when it starts is in the line that it logs.
func TestStartUpSaysTheCapacityOfEachRewardAndWhy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	if _, err := os.Stat("/proc"); err != nil {
		t.Skip("SKIPPED: functions in Python run on Linux only")
	}
	file, err := filepath.Abs(filepath.Join("..", "rewards", "python", "testdata", "concurrency.py"))
	require.NoError(t, err)
	text := fmt.Sprintf(`reward: {concurrency: 9, reward_functions: {size: {path: "builtin://jpeg_compressibility", concurrency: 7}}}
rewards: {other: {reward_functions: {waits: {path: %q, name: hidden, required: true}}}}
server: {listen: "127.0.0.1:0"}
`, file)
	cfg, err := config.Parse("c.yaml", []byte(text), nil, nil)
	require.NoError(t, err)
	var said bytes.Buffer
	n, err := node.New(node.Options{Config: cfg, Log: slog.New(slog.NewTextHandler(&said, nil))})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	n.Stop()
	var lines []string
	for line := range strings.Lines(said.String()) {
		if _, rest, ok := strings.Cut(line, `msg="the capacity of a reward is known" `); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	assert.Equal(t, []string{
		`reward=default samples=9 written=true fewest=size components="size 7 (the concurrency of its entry)"`,
		`reward=other samples=256 written=false fewest=waits components="waits 256 (1 Python process with 256 calls of an async def function)"`,
	}, lines)
}
