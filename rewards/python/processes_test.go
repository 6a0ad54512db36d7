package python_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// process makes the scorer of a function of testdata/processes.py.
func process(tb testing.TB, cfg python.Config, opts python.Options) rewards.Scorer {
	tb.Helper()
	opts.Path = "testdata/processes.py"
	return scorer(tb, cfg, opts)
}

// functions makes scorers that share a server process, and closes them with the test.
func functions(tb testing.TB, cfg python.Config, options ...string) (out []rewards.Scorer) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("SKIPPED: -short: it starts Python")
	}
	cfg.Interpreter = interpreter(tb)
	var reg rewards.Registry
	reg.Register(python.NewFunctions(cfg, nil).Spec())
	for _, o := range options {
		s, err := reg.Build("python", json.RawMessage(`{"path": "testdata/processes.py", `+o+`}`))
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, s.(rewards.Closer).Close()) })
		warm(tb, s)
		out = append(out, s)
	}
	return out
}

func TestAHangingFunctionTakesNoProcessFromAnother(t *testing.T) {
	t.Parallel()
	all := functions(t, python.Config{Processes: 2}, `"name": "quick"`, `"name": "threaded"`)
	hanging, healthy := all[0], all[1]
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range 8 {
		calls.Go(func() { _, _ = hanging.Score(ctx, asks("hang")) })
	}
	require.Eventually(t, func() bool { return stats(hanging).Running == 2 && stats(hanging).Waiting == 6 }, 20*time.Second, time.Millisecond)
	for _, g := range together(t, healthy, make([]string, 50), "wait0") {
		require.NoError(t, g.err)
	}
	assert.Equal(t, 1, stats(healthy).Alive, "its own; the spare one is the other's")
}

func TestProcessesStartOnDemandAndEndWhenTheyAreIdle(t *testing.T) {
	t.Parallel()
	s := process(t, python.Config{Processes: 3, IdleTimeout: 300 * time.Millisecond}, python.Options{Name: "threaded"})
	warm(t, s)
	require.Equal(t, 1, stats(s).Alive)
	first := stats(s).PIDs
	pids := map[any]bool{}
	for _, g := range together(t, s, make([]string, 9), "wait0.5") {
		require.NoError(t, g.err)
		pids[g.score.Extra["pid"]] = true
	}
	assert.Len(t, pids, 3, "never more than three")
	require.Eventually(t, func() bool { return stats(s).Alive == 1 }, 20*time.Second, time.Millisecond)
	assert.Equal(t, first, stats(s).PIDs)
	assert.Zero(t, stats(s).Restarts)
	assert.Zero(t, stats(s).Crashes)
}

func TestAFunctionYieldsToTheServerAndSeesWhatItMay(t *testing.T) {
	t.Setenv("REWARDLOOP_TOKEN", "of the server")
	t.Setenv("JUDGE_KEY", "of the server too")
	t.Setenv("MY_KEY", "of the function")
	t.Setenv("HF_HOME", "/models")
	see := func(env []string) (rewards.Score, map[string]any) {
		s := process(t, python.Config{HiddenEnv: []string{"JUDGE_KEY"}}, python.Options{Name: "about", Env: env})
		got, err := score(t, s, asks("REWARDLOOP_TOKEN JUDGE_KEY MY_KEY HF_HOME OMP_NUM_THREADS"))
		require.NoError(t, err)
		var seen map[string]any
		require.NoError(t, json.Unmarshal([]byte(got.Extra["env"].(string)), &seen))
		return got, seen
	}
	got, seen := see(nil)
	assert.InDelta(t, 5.0, got.Value, 0, "nice")
	assert.EqualValues(t, 500, got.Extra["oom"])
	want := map[string]any{"REWARDLOOP_TOKEN": nil, "JUDGE_KEY": nil, "MY_KEY": "of the function", "HF_HOME": "/models", "OMP_NUM_THREADS": "1"}
	assert.Equal(t, want, seen)
	_, seen = see([]string{})
	want["MY_KEY"] = nil
	assert.Equal(t, want, seen)
	_, seen = see([]string{"MY_KEY", "JUDGE_KEY"})
	want["MY_KEY"], want["JUDGE_KEY"] = "of the function", "of the server too"
	assert.Equal(t, want, seen)
}

// What a function starts ends with its process, in whatever session it is and whoever was
// its parent: after a crash, after a hang, and when all is closed.
func TestWhatAFunctionStartsEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	for _, then := range []string{"exit", "hang", "close"} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			s := process(t, python.Config{CallTimeout: 3 * time.Second}, python.Options{Name: "leave_behind"})
			warm(t, s)
			file := filepath.Join(t.TempDir(), "pids")
			_, err := score(t, s, asks(file+"|"+then))
			if then == "close" {
				require.NoError(t, err)
				for _, pid := range pidsIn(t, file) {
					require.True(t, running(pid))
				}
				require.NoError(t, s.(rewards.Closer).Close())
			} else {
				require.Error(t, err)
				require.Eventually(t, func() bool { return stats(s).Restarts > 0 }, 20*time.Second, time.Millisecond, "the process was replaced")
			}
			for _, pid := range pidsIn(t, file) {
				assert.False(t, running(pid), "process %d", pid)
			}
		})
	}
}

func pidsIn(t *testing.T, file string) (pids []int) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	require.Len(t, pids, 2)
	return pids
}

func TestAProcessOverItsLimitOfMemoryIsEndedWithAllThatItStarted(t *testing.T) {
	t.Parallel()
	s := process(t, python.Config{MemoryBytes: 1 << 40}, python.Options{Name: "allocate", Memory: 160 << 20})
	for _, word := range []string{"itself", "child"} {
		_, err := score(t, s, asks(word))
		assert.Equal(t, rewards.Crashed, rewards.ClassOf(err), "%v", err)
		blame, _ := rewards.BlameOf(err)
		assert.Equal(t, rewards.BlameReward, blame)
		require.ErrorContains(t, err, "the limit is 160 MiB: raise memory in the entry, or pool.python.memory")
		require.Regexp(t, `used \d+ MiB of memory`, err.Error())
		_, err = score(t, s, asks("1"))
		require.NoError(t, err)
	}
}

func TestAddressSpaceIsNoMemory(t *testing.T) {
	t.Parallel()
	s := process(t, python.Config{}, python.Options{Name: "reserve", Memory: 128 << 20})
	_, err := score(t, s, asks("1"))
	require.NoError(t, err)
}

// Of many calls that share a process the one that ends it is found, alone fails, and the
// calls of other processes go on meanwhile.
func TestTheCallThatEndsASharedProcessIsFound(t *testing.T) {
	t.Parallel()
	s := process(t, python.Config{}, python.Options{Name: "poison", Concurrency: 32})
	warm(t, s)
	words := make([]string, 31)
	words[20] = "poison"
	ctx, cancel := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	others := 0
	beside.Go(func() {
		for ctx.Err() == nil { // they come while the search goes on
			if _, err := s.Score(ctx, asks("0")); err == nil {
				others++
			}
		}
	})
	for i, g := range together(t, s, words, "0") {
		if i == 20 {
			assert.Equal(t, rewards.Crashed, rewards.ClassOf(g.err), "%v", g.err)
			blame, _ := rewards.BlameOf(g.err)
			assert.Equal(t, rewards.BlameReward, blame)
			require.ErrorContains(t, g.err, "exit status 5")
			continue
		}
		require.NoError(t, g.err, "call %d", i)
	}
	cancel()
	beside.Wait()
	assert.Positive(t, others)
	assert.LessOrEqual(t, stats(s).Crashes, uint64(7), "32 calls are halved five times, after the first death")
	require.Eventually(t, func() bool { return stats(s).Alive == 1 }, 10*time.Second, time.Millisecond, "one process is left")
}

// Eight samples in a row that end their process hold the function back: it has one
// process, which starts after a pause, and the others wait where everybody can see it.
func TestAFunctionThatOnlyCrashesIsHeldBackVisibly(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{BackoffMin: 3 * time.Second, BackoffMax: time.Hour}, "truth")
	warm(t, s)
	for i := range 9 {
		assert.Empty(t, stats(s).Reason)
		sample := asks("os_exit")
		sample.ID = fmt.Sprint(max(i, 1)) // the first two are one sample, tried again
		_, err := score(t, s, sample)
		require.Equal(t, rewards.Crashed, rewards.ClassOf(err), "%d: %v", i, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() {
		_, err := s.Score(ctx, asks("1"))
		waits <- err
	}()
	require.Eventually(t, func() bool { return stats(s).Waiting == 1 }, 10*time.Second, time.Millisecond)
	seen := stats(s)
	assert.Equal(t, "8 samples in a row crashed their process; the function has one process, which starts after a pause", seen.Reason)
	assert.Positive(t, time.Until(seen.BackoffUntil))
	assert.Equal(t, "1 Python process, because 8 samples in a row crashed their process", rewards.ConcurrencyReason(s))
	require.NoError(t, <-waits, "after the pause")
	require.Eventually(t, func() bool { return stats(s).Reason == "" }, 10*time.Second, time.Millisecond, "an answer ends it")
	cancel()
}

// 256 calls of the recipe's class are in flight at once: each waits until all are there.
func TestTheClassOfAsyncRewardAgentHas256CallsInFlight(t *testing.T) {
	t.Parallel()
	s := process(t, python.Config{}, python.Options{Name: "Plain", AgentConcurrency: 256})
	warm(t, s)
	out := make([]outcome, 256)
	var calls sync.WaitGroup
	for i := range out {
		calls.Go(func() {
			sample := asks("together")
			sample.Response = fmt.Sprint("r", i)
			out[i].score, out[i].err = score(t, s, sample)
		})
	}
	calls.Wait()
	for i, g := range out {
		require.NoError(t, g.err)
		assert.Equal(t, fmt.Sprint("answer to r", i), g.score.Details["answer"])
		assert.Contains(t, g.score.Details["printed"], fmt.Sprint(" r", i, "\n"), "what a call prints is its own")
		assert.Equal(t, 1, strings.Count(g.score.Details["printed"].(string), "asked by"))
	}
	assert.Equal(t, 1, stats(s).Alive)
}

func TestTheRoutersKeyIsGivenOnlyToFunctionsThatNameIt(t *testing.T) {
	t.Parallel()
	kwargs := map[string]any{"reward_router_address": "127.0.0.1:9", "reward_router_api_key": "k", "model_name": "m"}
	got, err := score(t, process(t, python.Config{}, python.Options{Name: "router", Kwargs: kwargs}), asks("1"))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"address": "127.0.0.1:9", "key": "k"}, got.Extra)
	got, err = score(t, process(t, python.Config{}, python.Options{Name: "everything", Kwargs: kwargs}), asks("1"))
	require.NoError(t, err)
	assert.Equal(t, "data_source extra_info ground_truth model_name reward_router_address solution_str", got.Extra["names"])
}

func TestOneProcessStartsAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	code := "import time\ndef say(word):\n    with open(" + strconv.Quote(log) + ", 'a') as f:\n        f.write(word)\n" +
		"say('(')\ntime.sleep(0.2)\nsay(')')\ndef compute_score(ground_truth):\n    return 1.0\n"
	file := filepath.Join(dir, "slow_module.py")
	require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
	var reg rewards.Registry
	reg.Register(python.NewFunctions(python.Config{Interpreter: interpreter(t)}, nil).Spec())
	var starts sync.WaitGroup
	for range 4 {
		s, err := reg.Build("python", json.RawMessage(`{"path": `+strconv.Quote(file)+`}`))
		require.NoError(t, err)
		defer func() { require.NoError(t, s.(rewards.Closer).Close()) }()
		starts.Go(func() { assert.NoError(t, s.(rewards.Warmer).Warm(t.Context())) })
	}
	starts.Wait()
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	assert.Equal(t, "()()()()", string(text))
}
