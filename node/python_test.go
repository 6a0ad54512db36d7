package node_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
	"github.com/rewardloop/rewardloop/wire"
)

// function writes a Python file and returns its path; the test is skipped where
// there is no Python.
func function(t *testing.T, code string) string {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil || runtime.GOOS != "linux" {
		t.Skipf("SKIPPED: no Python functions without Linux and python3 on PATH: %v", err)
	}
	path := filepath.Join(t.TempDir(), "mine.py")
	require.NoError(t, os.WriteFile(path, []byte(code), 0o600))
	return path
}

func TestAFunctionInPythonScoresAndIsCountedAndEndsWithTheNode(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	path := function(t, `
import os
def compute_score(solution_str, ground_truth, bonus=0):
    if solution_str == "dies":
        os._exit(3)
    return {"score": float(solution_str == ground_truth) + bonus, "words": 1}
`)
	n, addr := start(t, "pool.python.processes=2", "pool.python.interpreter=python3",
		"+reward.reward_functions.mine.path="+path, "+reward.reward_functions.mine.required=true",
		"+reward.reward_functions.mine.bonus=0.25", "+reward.reward_functions.mine.extra_keys={words: number}")
	children := n.Children()["python"]
	require.Len(t, children.PIDs, 1, "the others start when calls wait")
	require.Equal(t, 2, children.Slots)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "python"})
	require.NoError(t, err)
	defer c.Close()
	score := func(id, response string) *wire.Result {
		f, err := c.Submit(t.Context(), &rewards.Sample{ID: id, Response: response, GroundTruth: json.RawMessage(`"4"`)}, 0)
		require.NoError(t, err)
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		return res
	}
	right := score("right", "4")
	require.Equal(t, rewards.Scored, right.Outcome, right.Errors)
	require.InDelta(t, 1.25, *right.RewardScore, 1e-12)
	require.EqualValues(t, 1, right.ExtraInfo["reward/mine/words"])
	require.InDelta(t, 0.25, *score("wrong", "5").RewardScore, 1e-12)

	dead := score("dead", "dies")
	require.Equal(t, rewards.Failed, dead.Outcome)
	require.InDelta(t, 1.25, *score("after", "4").RewardScore, 1e-12, "the next sample is scored by another process")

	metrics := scrape(t, addr)
	for _, line := range []string{`rewardloop_children\{of="python"\} [012]\n`, `rewardloop_children_crashes_total\{of="python"\} [1-9]`} {
		require.Regexp(t, line, metrics)
	}
	pids := n.Children()["python"].PIDs
	require.NotEmpty(t, pids)
	n.Stop()
	for _, pid := range pids {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d outlived the node", pid)
	}
}

func scrape(t *testing.T, addr string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

func TestAServerWhoseFunctionCannotBeImportedDoesNotStartAndSaysWhy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	for name, c := range map[string]struct{ code, says string }{
		"import":    {"import nothing_of_that_name\n", "No module named 'nothing_of_that_name'"},
		"no such":   {"def other(): pass\n", "has no 'compute_score'"},
		"arguments": {"def compute_score(tokens): pass\n", "needs tokens, which nobody gives"},
	} {
		path := function(t, c.code)
		cfg, err := config.Load("", []string{"reward.custom_reward_function.path=" + path, "pool.python.interpreter=python3"}, nil)
		require.NoError(t, err)
		n, err := node.New(node.Options{Config: cfg})
		require.NoError(t, err)
		err = n.Start(t.Context())
		require.ErrorContains(t, err, `reward "default" is not ready`, name)
		require.ErrorContains(t, err, c.says, name)
	}
}

// Not parallel: it changes the environment of the process.
func TestTheInterpreterIsThatOfTheEnvironmentUnlessOneIsNamed(t *testing.T) {
	t.Setenv("REWARDLOOP_PYTHON", "/opt/theirs")
	require.Equal(t, "/opt/theirs", node.Python(python.Config{}).Interpreter)
	require.Equal(t, "mine", node.Python(python.Config{Interpreter: "mine"}).Interpreter)
	c := node.Python(config.Default().Pool.Python).WithDefaults()
	require.NoError(t, c.Validate())
	require.Greater(t, c.CallTimeout, config.Default().Loop.ClaimTimeout, "the timeout of the reward is what counts")
}
