package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
)

// realEngines is a Python with engines and a folder of tiny models (testkit/tinyengine): those of make test-engines, or where an
// interpreter has transformers serve one that these tests make; ok is false where there is neither.
func realEngines(t *testing.T, needVLLM bool) (python, models string) {
	t.Helper()
	if python = os.Getenv("REWARDLOOP_ENGINES_PYTHON"); python != "" {
		return python, os.Getenv("REWARDLOOP_ENGINES_MODELS")
	}
	if python = os.Getenv("REWARDLOOP_PYTHON"); python != "" && !needVLLM && !testing.Short() &&
		exec.CommandContext(t.Context(), python, "-c", "import torch, fastapi, uvicorn, openai, transformers.cli.serve").Run() == nil {
		models = t.TempDir()
		maker, err := filepath.Abs("../../testkit/tinyengine/make.py")
		require.NoError(t, err)
		out, err := exec.CommandContext(t.Context(), python, maker, models).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return python, models
	}
	t.Skip("SKIPPED: no engine is installed; stubs take its place in other tests, and make test-engines installs one")
	return "", ""
}

// realServer starts the binary with a configuration.
func realServer(t *testing.T, cfg string) (*os.Process, string) {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "cfg.yaml"), []byte(cfg), 0o600))
	addr := main.FreePort(t)
	env := append(os.Environ(), "XDG_CACHE_HOME="+folder, "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=2", "VLLM_CPU_KVCACHE_SPACE=1")
	return main.StartAt(t, folder, env, "serve", "-c", "cfg.yaml", "--listen", addr), addr
}

// awaitReal waits for real servers, which take minutes to load.
func awaitReal(t *testing.T, addr string, as func([]server.EngineServer) bool) (list []server.EngineServer) {
	t.Helper()
	require.Eventually(t, func() bool { list = startedServers(t, addr); return as(list) }, 15*time.Minute, time.Second, "the servers never became that")
	return list
}

// everyJudge is a reward for each kind of judge, of an engine of the vision model and one of the classifier.
func everyJudge(python, models string, colocated bool) string {
	rollout := fmt.Sprintf("rollout: {name: vllm, device: cpu, interpreter: %s, dtype: float32, max_model_len: 4096, max_num_seqs: 8, engine_kwargs: {vllm: %%s}}", python)
	vision := "model_path: " + models + "/vision\n      " + fmt.Sprintf(rollout, "{}")
	classifier := "model_path: " + models + "/classifier\n      " + fmt.Sprintf(rollout, "{runner: pooling}")
	cfg := "pool: {colocated: " + strconv.FormatBool(colocated) + "}\nloop: {component_timeout: 300s}\nreward:\n  num_workers: 2\n  custom_reward_function: {path: builtin://jpeg_incompressibility}\n" +
		"  models:\n    see:\n      backend: engine\n      " + vision + "\n    class:\n      backend: engine\n      " + classifier + "\n" +
		"rewards:\n"
	for name, options := range map[string]string{
		"genrm_ocr": "{}", "vqascore": "{}", "digit": "{}", "disrm": "{}", "unified_reward": "{}", "wise": "{}",
	} {
		engine := "reward_models.see"
		if name == "disrm" {
			engine = "reward_models.class"
		}
		options = strings.TrimSuffix(strings.Replace(options, "{", "{engine: "+engine+", ", 1), ", }") + "}"
		options = strings.ReplaceAll(strings.ReplaceAll(options, "}}", "}"), ", }", "}")
		cfg += "  " + name + ": {custom_reward_function: {path: builtin://" + name + ", reward_kwargs: " + options + "}}\n"
	}
	return cfg
}

// Every judge of the real vLLM has an answer, or is refused by name; it is killed three times under load, and ends with its
// parent.
func TestEnginesRealVLLMAnswersEveryJudgeAndSurvivesThreeKillsOf500SamplesAndEndsWithItsParent(t *testing.T) { //nolint:paralleltest // it takes the whole machine
	python, models := realEngines(t, true)
	p, addr := realServer(t, everyJudge(python, models, false))
	awaitReal(t, addr, allReady)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "real"})
	require.NoError(t, err)
	defer c.Close()
	for _, name := range []string{"genrm_ocr", "vqascore", "digit", "disrm", "unified_reward", "wise"} {
		s := stubPicture(t, name, 1)
		s.Reward, s.Response = name, "Yes"
		f, err := c.Submit(ctx, s, 10*time.Minute)
		require.NoError(t, err)
		r, err := f.Wait(ctx)
		require.NoError(t, err)
		said, err := json.Marshal(r)
		require.NoError(t, err)
		t.Logf("%s: %s", name, said[:min(len(said), 600)])
		if r.RewardScore == nil { // a model with random weights writes no score
			require.NotEmpty(t, r.Errors)
			assert.Equal(t, rewards.InvalidScore, r.Errors[0].Class, "%s", said)
		}
	}
	const samples, kills = 500, 3
	futures := make([]*client.Future, samples)
	for i := range futures {
		s := stubPicture(t, fmt.Sprintf("load-%d", i), i)
		s.Reward = "vqascore"
		futures[i], err = c.Submit(ctx, s, 25*time.Minute)
		require.NoError(t, err)
	}
	killed := 0
	for i, f := range futures {
		if killed < kills && i == 10+killed*samples/(kills+1) {
			killed++
			list := awaitReal(t, addr, func(list []server.EngineServer) bool { return allReady(list) && list[1].Starts == killed })
			require.NoError(t, syscall.Kill(-list[1].PID, syscall.SIGKILL))
		}
		r, err := f.Wait(ctx)
		require.NoError(t, err)
		require.NotNil(t, r.RewardScore, "sample %d: %+v", i, r)
	}
	list := awaitReal(t, addr, allReady)
	assert.Equal(t, kills+1, list[1].Starts)
	endsWithItsParent(t, p, list)
}

// endsWithItsParent kills the server, and looks for what it has started.
func endsWithItsParent(t *testing.T, p *os.Process, list []server.EngineServer) {
	t.Helper()
	var all []string
	for _, s := range list {
		all = append(all, descendants(s.PID)...)
	}
	require.NotEmpty(t, all)
	require.NoError(t, p.Kill())
	require.Eventually(t, func() bool {
		for _, pid := range all {
			if n, err := strconv.Atoi(pid); err == nil && syscall.Kill(n, 0) == nil {
				return false
			}
		}
		return true
	}, time.Minute, 100*time.Millisecond, "processes outlive their parent: %v", all)
}

// descendants are a process and all that it has started.
func descendants(pid int) []string {
	out := []string{strconv.Itoa(pid)}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		text, _ := os.ReadFile(file)
		for child := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				out = append(out, descendants(n)...)
			}
		}
	}
	return out
}

// Between steps the engine is ended, which is how it gives its memory back on a CPU, and started again.
func TestEnginesRealOneIsStoppedBetweenStepsAndWhatItCannotDoIsNamedAtItsStart(t *testing.T) { //nolint:paralleltest // likewise
	python, models := realEngines(t, false)
	cfg := "pool: {colocated: true}\nloop: {component_timeout: 300s}\nreward:\n  num_workers: 2\n  custom_reward_function: {path: builtin://genrm_ocr, reward_kwargs: {max_tokens: 4}}\n" +
		"  reward_model:\n    enable: true\n    model_path: " + models + "/vision\n    rollout: {name: transformers, device: cpu, dtype: float32, interpreter: " + python + "}\n" +
		"rewards:\n  digits: {custom_reward_function: {path: builtin://vqascore, reward_kwargs: {engine: reward_model}}}\n"
	p, addr := realServer(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "real"})
	require.NoError(t, err)
	defer c.Close()
	for step := range 2 {
		require.NoError(t, c.Phase(ctx, wire.PhaseRollout))
		list := startedServers(t, addr)
		require.Equal(t, "asleep", list[0].State)
		require.Zero(t, list[0].PID, "no process holds memory")
		sees, err := c.Submit(ctx, stubPicture(t, fmt.Sprint("sees-", step), step), 0)
		require.NoError(t, err)
		digit := stubPicture(t, fmt.Sprint("digit-", step), step)
		digit.Reward = "digits"
		cannot, err := c.Submit(ctx, digit, 0)
		require.NoError(t, err)
		require.NoError(t, c.Phase(ctx, wire.PhaseReward))
		r, err := sees.Wait(ctx)
		require.NoError(t, err)
		require.NotNil(t, r.RewardScore, "%+v", r)
		r, err = cannot.Wait(ctx)
		require.NoError(t, err)
		require.Nil(t, r.RewardScore)
		assert.Equal(t, rewards.BlameDependency, r.Errors[0].Blame)
		assert.True(t, r.Errors[0].Permanent)
		assert.Contains(t, r.Errors[0].Message, "the engine returned no log probabilities")
	}
	endsWithItsParent(t, p, startedServers(t, addr))
}
