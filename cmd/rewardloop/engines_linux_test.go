package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/rewardloop/rewardloop/testkit/executable"
	"github.com/rewardloop/rewardloop/testkit/stubengine"
)

// An engine that the binary starts is this program.
//
//nolint:gochecknoinits // TestMain is of a package that may not know stubs
func init() { stubengine.Main(os.Args[1:]) }

// quickStart are the reward lines of verl-omni's quick start that are about its engine (examples/flowgrpo_trainer/qwen_image/
// run_qwen_image_ocr_lora.sh), as they are pasted; the engine has no card here.
func quickStart() []string {
	return []string{
		"reward.num_workers=2", "reward.reward_model.enable=True", "reward.reward_model.model_path=Qwen/Qwen3-VL-8B-Instruct",
		"reward.reward_model.rollout.name=vllm", "reward.custom_reward_function.path=builtin://genrm_ocr", "+reward.reward_model.rollout.device=cpu",
	}
}

// engineServer starts the binary on a machine of one card with a vllm on its PATH that is a stub and misbehaves as the arguments
// say. It returns the process and where it listens.
func engineServer(t *testing.T, stub string, overrides ...string) (*os.Process, string) {
	t.Helper()
	return engineServerIn(t, t.TempDir(), stub, overrides...)
}

// engineServerIn is engineServer in a folder, whose programs are on its PATH.
func engineServerIn(t *testing.T, folder, stub string, overrides ...string) (*os.Process, string) {
	t.Helper()
	stubs, err := os.Executable()
	require.NoError(t, err)
	executable.Write(t, filepath.Join(folder, "vllm"), fmt.Sprintf("#!/bin/sh\nexec %s \"$@\" %s\n", stubs, stub))
	list := "cat <<'END'\n0, GPU-0, NVIDIA H100, 81920, 80000, 0, Disabled\nEND"
	executable.Write(t, filepath.Join(folder, "nvidia-smi"), "#!/bin/sh\ncase \"$1\" in --query-gpu=*) "+list+"\n;; *) ;; esac\n")
	env := append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+folder)
	addr := main.FreePort(t)
	return main.StartAt(t, folder, env, append([]string{"serve", "--listen", addr}, overrides...)...), addr
}

// startedServers are those of /v1/engines.
func startedServers(t *testing.T, addr string) []server.EngineServer {
	t.Helper()
	answer, err := http.Get("http://" + addr + "/v1/engines")
	require.NoError(t, err)
	defer answer.Body.Close()
	var list struct{ Servers []server.EngineServer }
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&list))
	return list.Servers
}

// awaitServers waits until the servers are as wanted.
func awaitServers(t *testing.T, addr string, as func([]server.EngineServer) bool) (list []server.EngineServer) {
	t.Helper()
	require.Eventually(t, func() bool { list = startedServers(t, addr); return as(list) }, 30*time.Second, 20*time.Millisecond, "the servers never became that")
	return list
}

func allReady(list []server.EngineServer) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(s server.EngineServer) bool { return s.State != "ready" })
}

// picture is a sample whose text is that which the stub reads in every picture.
func stubPicture(t *testing.T, id string, n int) *rewards.Sample {
	t.Helper()
	file, _ := main.Drawing(t, n)
	return &rewards.Sample{
		ID: id, Prompt: `a sign that says "Yes"`, GroundTruth: json.RawMessage(`"Yes"`),
		Media: []*rewards.Media{{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{len(file)}, Data: file}},
	}
}

func TestTheQuickStartOfVerlOmniStartsItsEngineAndScoresAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	p, addr := engineServer(t, "--stub-start=300ms", quickStart()...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "quick"})
	require.NoError(t, err)
	defer c.Close()
	f, err := c.Submit(ctx, stubPicture(t, "a", 1), 0) // before the engine is ready
	require.NoError(t, err)
	r, err := f.Wait(ctx)
	require.NoError(t, err)
	require.NotNil(t, r.RewardScore, "%+v", r)
	assert.InDelta(t, 1, *r.RewardScore, 1e-9)
	list := awaitServers(t, addr, allReady)
	require.Len(t, list, 1)
	code, out := main.Call(t, "engines", "--server", "http://"+addr)
	assert.Zero(t, code)
	assert.Contains(t, out, "reward_model-0  vllm  ready")

	keeper := list[0].PID
	require.NoError(t, syscall.Kill(keeper, 0))
	require.NoError(t, p.Kill())
	require.Eventually(t, func() bool { return syscall.Kill(-keeper, 0) != nil }, 30*time.Second, 10*time.Millisecond, "the engine outlives its parent")
	_, err = http.Get(list[0].URL + "/health") //nolint:bodyclose // there is no answer
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// The engine is killed as the kernel would for memory.
func TestAnEngineKilledThreeTimesUnderLoadYieldsOneResultForEachOf500Samples(t *testing.T) {
	t.Parallel()
	const samples, kills = 500, 3
	_, addr := engineServer(t, "--stub-slow=20ms", append(quickStart(), "+reward.reward_model.rollout.concurrency=16")...)
	awaitServers(t, addr, allReady)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "kills"})
	require.NoError(t, err)
	defer c.Close()
	futures := make([]*client.Future, samples)
	for i := range futures {
		futures[i], err = c.Submit(ctx, stubPicture(t, strconv.Itoa(i), i), 0)
		require.NoError(t, err)
	}
	killed := 0
	for i, f := range futures {
		if killed < kills && i == 10+killed*samples/(kills+1) {
			killed++
			list := awaitServers(t, addr, func(list []server.EngineServer) bool { return allReady(list) && list[0].Starts == killed })
			require.NoError(t, syscall.Kill(-list[0].PID, syscall.SIGKILL))
		}
		r, err := f.Wait(ctx)
		require.NoError(t, err)
		require.NotNil(t, r.RewardScore, "sample %d: %+v", i, r)
	}
	list := awaitServers(t, addr, func(list []server.EngineServer) bool { return allReady(list) && list[0].Starts == kills+1 })
	assert.Contains(t, list[0].Why, "signal: killed")
}

// Whatever an engine does, whoever asks is told what and by whom, and a reward beside it is scored.
func TestWhatAnEngineDoesWrongIsNamedAndHurtsNobodyElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stub, scorer string
		state        string
		why          string // of the server, or of the failed sample
		fails        bool   // at once
	}{
		"it never starts":              {"--stub-exits=3", "genrm_ocr", "", "RuntimeError: no card has room for Qwen/Qwen3-VL-8B-Instruct", false},
		"it flaps":                     {"--stub-flap=150ms", "genrm_ocr", "", "exit status 9", false},
		"it knows another model":       {"--stub-name=another", "genrm_ocr", "unable", "does not exist", true},
		"it gives no probabilities":    {"--stub-no-logprobs", "vqascore", "unable", "the engine returned no log probabilities", true},
		"it needs an hour to start":    {"--stub-start=1h", "genrm_ocr", "starting", "", false},
		"its command is not installed": {"", "genrm_ocr", "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overrides := append(quickStart(), "reward.custom_reward_function.path=builtin://"+c.scorer, "+rewards.other.custom_reward_function.path=builtin://jpeg_incompressibility")
			if name == "its command is not installed" {
				overrides, c.why = append(overrides, "reward.reward_model.rollout.name=sglang", "+reward.reward_model.rollout.interpreter=/nowhere/python"), "/nowhere/python"
			}
			_, addr := engineServer(t, c.stub, overrides...)
			list := awaitServers(t, addr, func(list []server.EngineServer) bool {
				return len(list) == 1 && strings.Contains(list[0].Why, c.why) && (c.state == "" || list[0].State == c.state)
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cl, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "wrong"})
			require.NoError(t, err)
			defer cl.Close()
			asks := stubPicture(t, "asks", 1)
			asking, err := cl.Submit(ctx, asks, 0)
			require.NoError(t, err)
			other := stubPicture(t, "other", 2)
			other.Reward = "other"
			f, err := cl.Submit(ctx, other, 0)
			require.NoError(t, err)
			r, err := f.Wait(ctx)
			require.NoError(t, err)
			assert.NotNil(t, r.RewardScore, "%+v", r)
			if c.fails {
				r, err = asking.Wait(ctx)
				require.NoError(t, err)
				require.Nil(t, r.RewardScore)
				require.NotEmpty(t, r.Errors)
				assert.Equal(t, rewards.BlameDependency, r.Errors[0].Blame)
				assert.True(t, r.Errors[0].Permanent)
				assert.Contains(t, r.Errors[0].Message, "engine reward_model")
				assert.Contains(t, r.Errors[0].Message, c.why)
				return
			}
			code, out := main.Call(t, "engines", "--server", "http://"+addr)
			assert.Equal(t, 1, code)
			assert.Contains(t, out, "reward_model-0")
			assert.Contains(t, out, strings.Split(c.why, ":")[0])
			assert.NotEqual(t, "ready", list[0].State)
		})
	}
}

// profiled starts a server of two engine servers of which one is profiled in steps 2 and 4, runs steps 1 to 5 of 8 pictures, and
// returns the folder in which it runs and the log of the profiled server.
func profiled(t *testing.T, tool string, before func(folder string)) (folder, log string) {
	t.Helper()
	folder = t.TempDir()
	if before != nil {
		before(folder)
	}
	overrides := append(quickStart(), "+reward.reward_model.rollout.replicas=2", "reward.reward_model.rollout.profiler.enable=True",
		"reward.reward_model.rollout.profiler.tool="+tool, "reward.reward_model.rollout.profiler.ranks=[0]", "+reward.reward_model.rollout.profiler.steps=[2,4]",
		"reward.reward_model.rollout.profiler.save_path="+folder+"/profiles")
	p, addr := engineServerIn(t, folder, "", overrides...)
	list := awaitServers(t, addr, allReady)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "profiled"})
	require.NoError(t, err)
	defer c.Close()
	for step := range int64(5) {
		var futures []*client.Future
		for i := range 8 {
			s := stubPicture(t, fmt.Sprintf("%d/%d", step+1, i), int(8*step)+i)
			s.Step = step + 1
			f, err := c.Submit(ctx, s, 0)
			require.NoError(t, err)
			futures = append(futures, f)
		}
		for _, f := range futures {
			r, err := f.Wait(ctx)
			require.NoError(t, err)
			require.NotNil(t, r.RewardScore)
		}
	}
	require.NoError(t, p.Signal(syscall.SIGTERM)) // what is being profiled is written
	require.Eventually(t, func() bool { return syscall.Kill(-list[0].PID, 0) != nil }, 30*time.Second, 10*time.Millisecond)
	text, err := os.ReadFile(list[0].Log)
	require.NoError(t, err)
	other, err := os.ReadFile(list[1].Log)
	require.NoError(t, err)
	assert.NotContains(t, string(other), "profile", "ranks has not this one")
	return folder, string(text)
}

func TestAnEngineIsProfiledByTorchInTheChosenStepsOnly(t *testing.T) {
	t.Parallel()
	folder, log := profiled(t, "torch", nil)
	assert.Contains(t, log, `--profiler-config {"profiler":"torch","torch_profiler_dir":"`+folder+`/profiles/reward_model-0"}`)
	trace, err := os.ReadFile(filepath.Join(folder, "profiles/reward_model-0/trace"))
	require.NoError(t, err)
	lines := strings.Fields(string(trace))
	require.Len(t, lines, 8, "%s", trace)
	assert.Equal(t, []string{"start", "stop", "start", "stop"}, []string{lines[0], lines[2], lines[4], lines[6]})
	for i := 0; i < 8; i += 4 { // some of its 8 pictures, and of the next step's those that came before the word was there
		first, err := strconv.Atoi(lines[i+1])
		require.NoError(t, err)
		last, err := strconv.Atoi(lines[i+3])
		require.NoError(t, err)
		assert.Less(t, last-first, 16, "%s", trace)
	}
}

func TestAnEngineRunsUnderNsysWhichIsToldOfTheChosenStepsOnly(t *testing.T) {
	t.Parallel()
	_, log := profiled(t, "nsys", func(folder string) {
		executable.Write(t, filepath.Join(folder, "nsys"), "#!/bin/sh\necho \"nsys got: $*\"\nwhile [ \"$1\" != vllm ]; do shift; done\nexec \"$@\"\n")
	})
	assert.Contains(t, log, "nsys got: profile --output ")
	assert.Contains(t, log, "/profiles/reward_model-0-%p --force-overwrite=true --trace=cuda,nvtx,osrt --trace-fork-before-exec=true --cuda-graph-trace=node "+
		"--capture-range=cudaProfilerApi --capture-range-end=repeat --kill=none vllm serve ")
	assert.Contains(t, log, `--profiler-config {"profiler":"cuda"}`)
	assert.Equal(t, 2, strings.Count(log, "profile start"))
	assert.Equal(t, 2, strings.Count(log, "profile stop"))
}

func TestAPythonRewardIsProfiledInTheChosenStepsOnly(t *testing.T) {
	t.Parallel()
	folder, addr := t.TempDir(), main.FreePort(t)
	reward, err := filepath.Abs("../../rewards/python/testdata/profiled.py")
	require.NoError(t, err)
	p := main.StartAt(t, folder, os.Environ(), "serve", "--listen", addr, "reward.custom_reward_function.path="+reward, "reward.custom_reward_function.name=multiply",
		"reward.reward_model.rollout.profiler.enable=True", "reward.reward_model.rollout.profiler.tool=torch", "reward.reward_model.rollout.profiler.all_ranks=True",
		"+reward.reward_model.rollout.profiler.steps=[2,4]", "reward.reward_model.rollout.profiler.save_path=profiles")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, client.Config{URL: "ws://" + addr, Run: "profiled"})
	require.NoError(t, err)
	defer c.Close()
	scored := 0
	score := func(step int64) (profiled bool) {
		scored++
		f, err := c.Submit(ctx, &rewards.Sample{ID: fmt.Sprint(scored), Step: step, Response: strings.Repeat("a", scored)}, 0)
		require.NoError(t, err)
		r, err := f.Wait(ctx)
		require.NoError(t, err)
		require.NotNil(t, r.RewardScore, "%+v", r.Errors)
		return r.ExtraInfo["profiled"] == true
	}
	for step := int64(1); step <= 5; step++ {
		for !score(step) && step%2 == 0 { // until the profile has begun
		}
		if step%2 == 1 { // until that of the step before is written
			for score(step) {
			}
		}
	}
	require.NoError(t, c.Close())
	require.NoError(t, p.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return p.Signal(syscall.Signal(0)) != nil }, 30*time.Second, 10*time.Millisecond, "serve never ended")
	traces, err := filepath.Glob(filepath.Join(folder, "profiles", "*"))
	require.NoError(t, err)
	require.Len(t, traces, 2, "%v", traces)
	for i, step := range []string{"2", "4"} {
		assert.Contains(t, filepath.Base(traces[i]), "profiled.multiply.step-"+step+".pid-")
	}
}

func TestDoctorSaysWhichProgramStartsAnEngine(t *testing.T) {
	t.Parallel()
	cfg := filepath.Join(t.TempDir(), "cfg.yaml")
	write := func(interpreter string) {
		require.NoError(t, os.WriteFile(cfg, []byte("reward:\n  custom_reward_function: {path: builtin://genrm_ocr}\n  reward_model: {enable: true, model_path: m, rollout: {name: vllm, device: cpu, interpreter: "+interpreter+"}}\n"), 0o600))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	write(self)
	_, out := main.Call(t, "doctor", "-c", cfg)
	assert.Contains(t, out, "engine reward_model")
	assert.Contains(t, out, "serve starts "+self)
	assert.NotContains(t, out, "server reward_model", "nobody listens there before serve starts it")
	write("/nowhere/python")
	code, out := main.Call(t, "doctor", "-c", cfg)
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "/nowhere/python")
	assert.Contains(t, out, "set interpreter beside rollout.name to a Python that has the engine")
}
