package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/internal/pywheel"
)

// envCalls runs the real binary with a folder of environments of its own.
type envCalls struct {
	dir, envs string
	vars      []string
}

func newEnvCalls(t *testing.T) *envCalls {
	t.Helper()
	needPython(t)
	c := &envCalls{dir: t.TempDir(), envs: t.TempDir()}
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); !strings.HasPrefix(name, "REWARDLOOP_") {
			c.vars = append(c.vars, pair)
		}
	}
	c.vars = append(c.vars, "REWARDLOOP_ENVS="+c.envs)
	return c
}

// do runs a command to its end.
func (c *envCalls) do(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout bytes.Buffer
	p := startIn(t, c.dir, c.vars, nil, &stdout, args...)
	limit := time.NewTimer(10 * time.Minute) // of transformers from the index; a test of wheels takes seconds
	defer limit.Stop()
	select {
	case <-p.exited:
	case <-limit.C:
		t.Fatalf("%v did not end:\n%s", p.Args, p.stderr)
	}
	return outcome{p.ProcessState.ExitCode(), stdout.String(), p.stderr.String()}
}

// posted sends one sample to POST /v1/score and returns its result.
func posted(t *testing.T, addr, sample string) (result struct {
	Outcome string         `json:"outcome"`
	Score   float64        `json:"reward_score"`
	Extra   map[string]any `json:"reward_extra_info"`
},
) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/v1/score", strings.NewReader(sample))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, string(body))
	all := struct{ Results any }{&[]any{&result}}
	require.NoError(t, json.Unmarshal(body, &all), string(body))
	http.DefaultClient.CloseIdleConnections()
	return result
}

// twoModels say which versions they see, and where.
const twoModels = `
import dep, sys

class Old:
    def __init__(self, device):
        import old
        self.major = float(dep.__version__.split(".")[0])

    def compute_scores(self, samples):
        return [{"score": self.major, "python": sys.prefix} for _ in samples]

class New:
    def __init__(self, device):
        import tinymodel
        self.score, self.major = tinymodel.score, float(dep.__version__.split(".")[0])

    def compute_scores(self, samples):
        return [{"score": self.score(s.response), "major": self.major, "python": sys.prefix} for s in samples]
`

// The path of a newcomer: env make, try, serve, a score. Each of two models in one reward sees the
// versions of its own environment, which contradict the other's.
func TestTwoModelsOfOneRewardEachSeeTheirOwnEnvironment(t *testing.T) {
	t.Parallel()
	c := newEnvCalls(t)
	wheels := filepath.Join(c.dir, "wheels")
	_, err := pywheel.Contradictory(wheels)
	require.NoError(t, err)
	weights := "WEIGHTS = [0.25, 0.5]\n\ndef score(text):\n    return sum(w for w, letter in zip(WEIGHTS, 'ab') if letter in text)\n"
	_, err = pywheel.Write(wheels, "tinymodel", "1.0", weights, "new==1.0")
	require.NoError(t, err)
	put(t, c.dir, "old.txt", []byte("--no-index\n--find-links wheels\nold\n"))
	put(t, c.dir, "mine.py", []byte(twoModels))
	put(t, c.dir, "cfg.yaml", []byte(`
reward:
  num_workers: 1
  reward_functions:
    old: {path: mine.py, name: Old, required: true, extra_keys: {python: string}, environment: {requirements: old.txt}}
    new:
      path: mine.py
      name: New
      required: true
      extra_keys: {major: number, python: string}
      environment:
        requirements: ["--no-index", "--find-links wheels", tinymodel]
server: {listen: "127.0.0.1:0"}
`))
	for _, args := range [][]string{
		{"config", "check", "cfg.yaml"},
		{"serve", "-c", "cfg.yaml"},
		{"worker", "-c", "cfg.yaml", "--join", "nats://127.0.0.1:1"},
		{"score", "-c", "cfg.yaml", "-i", "-", "-o", "-"},
	} {
		got := c.do(t, args...)
		require.Equal(t, exitUsage, got.code, got.stderr)
		require.Contains(t, got.stderr, "cfg.yaml:5:96: reward.reward_functions.old.environment: the environment is not made in "+c.envs+": `rewardloop env make -c cfg.yaml` makes it")
		require.Contains(t, got.stderr, "cfg.yaml:12:9: reward.reward_functions.new.environment: the environment is not made")
	}
	got := c.do(t, "env", "make", "-c", "cfg.yaml")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "run it again with --yes to agree")
	require.Contains(t, got.stderr, "Apache-2.0", "what would be downloaded is said all the same")

	got = c.do(t, "env", "make", "-c", "cfg.yaml", "--yes")
	require.Equal(t, exitOK, got.code, got.stderr)
	made := strings.Fields(got.stdout)
	require.Len(t, made, 2, got.stdout)
	require.Equal(t, exitOK, c.do(t, "config", "check", "cfg.yaml").code)

	got = c.do(t, "try", "old", "-c", "cfg.yaml", "--response", "a b", "--json")
	require.Equal(t, exitOK, got.code, got.stderr)
	var one tried
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &one), got.stdout)
	require.True(t, one.Scored)
	require.InDelta(t, 1, *one.Samples[0].Score, 1e-9)

	server := startIn(t, c.dir, c.vars, nil, nil, "serve", "-c", "cfg.yaml")
	addr := server.address(t)
	result := posted(t, addr, `{"prompt": "p", "response": "a b"}`)
	require.Equal(t, "scored", result.Outcome)
	require.InDelta(t, 1+0.75, result.Score, 1e-9)
	require.EqualValues(t, 2, result.Extra["reward/new/major"], result.Extra)
	prefixes := []any{result.Extra["reward/new/python"], result.Extra["reward/old/python"]}
	require.ElementsMatch(t, []any{filepath.Dir(filepath.Dir(made[0])), filepath.Dir(filepath.Dir(made[1]))}, prefixes)

	for _, path := range made { // processes of the server run in them
		name := filepath.Base(filepath.Dir(filepath.Dir(path)))
		got = c.do(t, "env", "remove", name)
		require.Equal(t, exitFailure, got.code, got.stderr)
		require.Contains(t, got.stderr, "end that process first")
	}
	require.NoError(t, server.Process.Signal(syscall.SIGTERM))
	server.code(t)
	c.listAndRemove(t, made)
}

// listAndRemove holds that list says which entries use what, and that remove deletes the rest.
func (c *envCalls) listAndRemove(t *testing.T, made []string) {
	t.Helper()
	got := c.do(t, "env", "make", "-r", "old.txt", "--system-site-packages", "--yes", "--json", "--lock", "old.lock")
	require.Equal(t, exitOK, got.code, got.stderr)
	var document struct {
		Environments []struct {
			Environment pyenv.Env `json:"environment"`
			Here        bool      `json:"here"`
		} `json:"environments"`
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &document))
	third := document.Environments[0].Environment
	require.False(t, document.Environments[0].Here)
	lock, err := os.ReadFile(filepath.Join(c.dir, "old.lock"))
	require.NoError(t, err)
	require.Contains(t, string(lock), "--find-links ./wheels\n")

	var list struct {
		Environments []listedEnv `json:"environments"`
	}
	got = c.do(t, "env", "list", "-c", "cfg.yaml", "--json")
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &list), got.stderr)
	require.Len(t, list.Environments, 3)
	used := 0
	for _, l := range list.Environments {
		used += len(l.Entries)
		require.Positive(t, l.Size)
	}
	require.Equal(t, 2, used)
	got = c.do(t, "env", "list", "-c", "cfg.yaml")
	require.Contains(t, got.stdout, "reward.reward_functions.new")
	require.Contains(t, got.stdout, "no entry")

	got = c.do(t, "env", "remove", "--unused", "-c", "cfg.yaml")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, third.Name+": removed, ")
	require.Contains(t, got.stdout, "1 environment removed")
	require.NoDirExists(t, third.Dir)
	require.FileExists(t, made[0])
	got = c.do(t, "env", "remove", third.Name)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "`rewardloop env list` has the names")
}

// A program named uv that never ends stands for an installation that takes long.
func TestAMakerThatIsKilledLeavesNothingThatCountsAsMade(t *testing.T) {
	t.Parallel()
	c := newEnvCalls(t)
	_, err := pywheel.Contradictory(filepath.Join(c.dir, "wheels"))
	require.NoError(t, err)
	put(t, c.dir, "old.txt", []byte("--no-index\n--find-links wheels\nold\n"))
	bin, begun := t.TempDir(), filepath.Join(t.TempDir(), "begun")
	uv := put(t, bin, "uv", []byte("#!/bin/sh\necho $$ >"+begun+"\nexec sleep 60\n"))
	require.NoError(t, os.Chmod(uv, 0o755)) //nolint:gosec // a program
	slow := append(append([]string{}, c.vars...), "PATH="+bin+":"+os.Getenv("PATH"))
	p := startIn(t, c.dir, slow, nil, nil, "env", "make", "-r", "old.txt", "--yes")
	orphan := 0
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(begun)
		return err == nil && json.Unmarshal(bytes.TrimSpace(text), &orphan) == nil
	}, time.Minute, 20*time.Millisecond, p.stderr)
	require.NoError(t, p.Process.Kill())
	<-p.exited
	t.Cleanup(func() { _ = syscall.Kill(orphan, syscall.SIGKILL) })

	got := c.do(t, "env", "list")
	require.Contains(t, got.stdout, "unfinished")
	got = c.do(t, "env", "remove", regexp.MustCompile(`py3\.\S+`).FindString(got.stdout))
	require.Equal(t, exitFailure, got.code, "what the killed one has started still writes there")
	require.Contains(t, got.stderr, "is being made by another process")
	require.NoError(t, syscall.Kill(orphan, syscall.SIGKILL))
	got = c.do(t, "env", "make", "-r", "old.txt", "--yes")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.FileExists(t, strings.TrimSpace(got.stdout))
	got = c.do(t, "env", "list")
	require.NotContains(t, got.stdout, "unfinished")
}

// The real pair that cannot share an environment (HPSv3 wants transformers 4.45.2, pyiqa 5 or newer), and a
// model with tiny weights in NumPy, from the package index.
func TestPymodelsTransformers4And5ServeOneReward(t *testing.T) {
	t.Parallel()
	if os.Getenv("REWARDLOOP_PYMODELS") != "1" {
		t.Skip("SKIPPED: it downloads two versions of transformers, and NumPy (103 MB); make test-pymodels sets REWARDLOOP_PYMODELS=1")
	}
	c := newEnvCalls(t)
	put(t, c.dir, "mine.py", []byte(`
import transformers

def compute_score(solution_str):
    return {"score": float(transformers.__version__.split(".")[0]), "version": transformers.__version__}
`))
	put(t, c.dir, "tiny.py", []byte(`
import numpy as np

class Tiny:
    def __init__(self, device):
        self.weights = np.array([0.25, 0.5])

    def compute_scores(self, samples):
        letters = np.array([[letter in s.response for letter in "ab"] for s in samples], dtype=float)
        return letters @ self.weights
`))
	put(t, c.dir, "four.txt", []byte("transformers==4.45.2\n"))
	put(t, c.dir, "five.txt", []byte("transformers>=5,<6\n"))
	put(t, c.dir, "cfg.yaml", []byte(`
reward:
  num_workers: 1
  reward_functions:
    four: {path: mine.py, required: true, timeout: 120s, extra_keys: {version: string}, environment: {requirements: four.txt}}
    five: {path: mine.py, required: true, timeout: 120s, extra_keys: {version: string}, environment: {requirements: five.txt}}
    tiny: {path: tiny.py, name: Tiny, required: true, environment: {requirements: ["numpy==1.26.4"]}}
server: {listen: "127.0.0.1:0"}
`))
	got := c.do(t, "env", "make", "-c", "cfg.yaml", "--yes")
	require.Equal(t, exitOK, got.code, got.stderr)
	t.Log(got.stderr)
	server := startIn(t, c.dir, c.vars, nil, nil, "serve", "-c", "cfg.yaml")
	require.Eventually(t, func() bool { return strings.Contains(server.stderr.String(), "msg=serving") }, 2*time.Minute, 50*time.Millisecond, "two imports of transformers")
	addr := server.address(t)
	result := posted(t, addr, `{"prompt": "p", "response": "a b"}`)
	require.Equal(t, "scored", result.Outcome)
	require.InDelta(t, 4+5+0.75, result.Score, 1e-9)
	require.Equal(t, "4.45.2", result.Extra["reward/four/version"])
	require.Regexp(t, `^5\.`, result.Extra["reward/five/version"])
}

func TestEnvSaysWhatIsAskedWrongly(t *testing.T) {
	t.Parallel()
	for text, args := range map[string][]string{
		"name what to make":                           {"make"},
		"-r requirements.txt for one":                 {"make", "-r", "x", "-c", "testdata/cfg.yaml"},
		"go with -r":                                  {"make", "-c", "testdata/cfg.yaml", "--python", "3.11"},
		"--timeout must be above 0":                   {"make", "-r", "x", "--timeout", "0s"},
		"the requirements ":                           {"make", "-r", "none.txt"},
		"--unused and -c go together":                 {"remove", "--unused"},
		"name the environments":                       {"remove"},
		"name make, list or remove":                   {},
		"no entry of this configuration has an envir": {"make", "-c", "testdata/cfg.yaml"},
	} {
		got := call(t, "", append([]string{"env"}, args...)...)
		require.Contains(t, got.stderr, text, args)
	}
}
