package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// triedFunctions is the Python file that the tests of try name.
const triedFunctions = `import os, time


def compute_score(solution_str, ground_truth, bonus=0.0):
    print("from inside")
    return {"score": float(solution_str == ground_truth) + bonus, "acc": True, "which": ["a"]}


def raises(solution_str):
    raise ValueError("nothing to see")


def nan(solution_str):
    return float("nan")


def leaves(solution_str):
    os._exit(3)


def hangs(solution_str):
    time.sleep(600)


def silent(solution_str, **kwargs):
    return 1


class Model:
    def __init__(self, device, checkpoint="v1"):
        self.checkpoint = checkpoint

    def compute_scores(self, samples):
        return [len(s.prompt) for s in samples]
`

// tryJSON runs try and returns its document.
func tryJSON(t *testing.T, args ...string) (outcome, *tried) {
	t.Helper()
	got := call(t, "", append([]string{"try", "--json"}, args...)...)
	doc := new(tried)
	if got.stdout != "" {
		require.NoError(t, json.Unmarshal([]byte(got.stdout), doc), got.stdout)
	}
	return got, doc
}

func TestTryRunsAPictureRewardAndSaysItsScoreItsTimesAndWhereItRuns(t *testing.T) {
	t.Parallel()
	picture, want := drawing(t, 3)
	file := put(t, t.TempDir(), "a.png", picture)
	got, doc := tryJSON(t, "builtin://jpeg_incompressibility", "--image", file)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.True(t, doc.Scored)
	require.False(t, doc.Known)
	require.InDelta(t, want, *doc.Samples[0].Score, 1e-12)
	require.InDelta(t, want, doc.Columns["reward/jpeg_incompressibility"], 1e-12)
	require.NotNil(t, doc.Time.SecondMS)
	require.Contains(t, doc.Runs, "at a time")

	text := call(t, "", "try", "builtin://jpeg_incompressibility", "--image", file)
	require.Equal(t, exitOK, text.code)
	require.Empty(t, text.stderr)
	for _, line := range []string{
		"entry      jpeg_incompressibility: builtin://jpeg_incompressibility\n", "score      " + strconv.FormatFloat(want, 'g', -1, 64) + "\n",
		"time       load ", "memory     no process of its own: it runs inside of rewardloop\n",
	} {
		require.Contains(t, text.stdout, line)
	}
	require.NotContains(t, text.stdout, "rewardloop/", "the loop's own columns are not the entry's")
}

func TestTryWithoutASampleScoresTheKnownOneAndSaysSo(t *testing.T) {
	t.Parallel()
	got, doc := tryJSON(t, "builtin://jpeg_incompressibility")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.True(t, doc.Known)
	require.Contains(t, call(t, "", "try", "builtin://jpeg_incompressibility").stdout, "sample     known: ")
}

func TestTryFindsAnEntryByItsKeyAndNoOtherEntryMatters(t *testing.T) {
	t.Parallel()
	file := put(t, t.TempDir(), "cfg.yaml", []byte(`reward:
  num_workers: 0
  reward_functions:
    size: {path: "builtin://jpeg_incompressibility", weight: 0.25}
    math: {path: "builtin://gsm8k", on_failure: zero}
    lost: {path: "builtin://no_such_scorer"}
rewards:
  other: {reward_functions: {size: {path: "builtin://jpeg_compressibility"}, rank: {path: "builtin://rank", of: size}}}
  single: {custom_reward_function: {path: "builtin://gsm8k"}}
queue: {nats_listen: "127.0.0.1:0"}
`))
	got, doc := tryJSON(t, "math", "-c", file, "--response", "It is #### 4", "--ground-truth", "4")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.InDelta(t, 1.0, *doc.Samples[0].Score, 0)
	got, doc = tryJSON(t, "default/size", file)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.InDelta(t, 1.66, *doc.Samples[0].Score, 1e-9, "an entry has the weight 1")
	got, doc = tryJSON(t, "other/size", file)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.InDelta(t, -0.00332, *doc.Samples[0].Score, 1e-9)
	got, doc = tryJSON(t, "single/gsm8k", file, "--response", "#### 5", "--ground-truth", "4")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Zero(t, *doc.Samples[0].Score)
	got, doc = tryJSON(t, "builtin://gsm8k", "-c", file, "--response", "#### 4", "--ground-truth", "4")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Equal(t, trialReward, doc.Reward, "it stands beside those of the file")

	for args, says := range map[string]string{
		"size":                       `several rewards have an entry "size": name one, such as default/size or other/size`,
		"sice":                       `no entry "sice"; did you mean size?; it has gsm8k, lost, math, rank, size`,
		"other/math":                 `no entry "other/math"`,
		"lost":                       `unknown scorer "no_such_scorer"`,
		"math --set wieght=3":        `--set wieght=3: reward.reward_functions.math.wieght: the scorer "gsm8k" has no such option; did you mean weight?`,
		"math --set wieght":          "want key=value",
		"jpeg_incompresibility":      "builtin://jpeg_incompressibility",
		"builtin://gsm8 ":            `unknown scorer "gsm8"`,
		"math --timeout -1s":         "want more than 0",
		"math --extra-info 3":        "extra_info: want an object",
		"math --ground-truth {":      "begins like JSON but is not valid JSON",
		"math --sample nowhere.json": "--sample: open nowhere.json",
		"math --sample . --prompt a": "leave out",
		"math --sample .":            "is a folder",
		"math --prompt a --prompt b --response 1 --response 2 --response 3": "--prompt is given 2 times, and there are 3 samples",
		"math unknown.key=3": "unknown",
	} {
		got := call(t, "", append([]string{"try", "-c", file}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, got.code, "%s: %s", args, got.stdout)
		require.Contains(t, got.stderr, says, args)
		require.Empty(t, got.stdout)
	}
	for args, says := range map[string]string{
		"":     "name an entry",
		"jpeg": "did you mean builtin://jpeg_compressibility or builtin://jpeg_incompressibility?; for the key of an entry name the configuration, -c cfg.yaml",
		"ocr":  "did you mean builtin://ocr?",
	} {
		got := call(t, "", append([]string{"try"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.stderr, says)
	}
}

func TestTryScoresAGroupOfAllItsSamples(t *testing.T) {
	t.Parallel()
	file := put(t, t.TempDir(), "cfg.yaml", []byte(`reward:
  reward_functions:
    right: {path: "builtin://gsm8k"}
    rank: {path: "builtin://rank", of: right}
`))
	got, doc := tryJSON(t, "rank", file, "--response", "#### 4", "--response", "#### 5", "--response", "#### 6", "--ground-truth", "4")
	require.Equal(t, exitOK, got.code, got.stdout)
	require.Len(t, doc.Samples, 3)
	require.Greater(t, *doc.Samples[0].Score, *doc.Samples[1].Score)
	require.Empty(t, doc.Time.Together, "a group is always scored whole")
	got, doc = tryJSON(t, "rank", file)
	require.Equal(t, exitOK, got.code, got.stdout)
	require.Len(t, doc.Samples, 2, "the known sample alone is no group")
}

func TestAGarbagePictureIsTheSamplesFailureAndNothingIsLoadedForIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := put(t, dir, "b.png", []byte("garbage"))
	cut, _ := drawing(t, 1)
	cutShort := put(t, dir, "c.png", cut[:60])
	for file, says := range map[string]string{
		garbage: "is not a PNG, JPEG or WebP picture", dir: "is a folder", filepath.Join(dir, "no.png"): "no such file", cutShort: "",
	} {
		got, doc := tryJSON(t, "builtin://jpeg_incompressibility", "--image", file)
		require.Equal(t, exitFailure, got.code, got.stderr)
		failed := doc.Samples[0].Errors[0]
		require.Equal(t, rewards.BadInput, failed.Class)
		require.Equal(t, rewards.BlameSample, failed.Blame)
		require.Contains(t, failed.Message, says)
		require.Contains(t, failed.Do, "give a sample")
	}
}

func TestTryReadsSamplesOfAFileAndOfStandardInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	picture, want := drawing(t, 5)
	put(t, dir, "p/a.png", picture)
	broken := "{\n \"id\": \"x\",\n \"image\": \"a.png\"\n}\n"
	got, doc := tryJSON(t, "builtin://jpeg_incompressibility", "--sample", put(t, dir, "p/one.json", []byte(broken)))
	require.Equal(t, exitOK, got.code, got.stderr)
	require.InDelta(t, want, *doc.Samples[0].Score, 1e-12)
	lines := `{"response": "#### 4", "ground_truth": "4"}` + "\n\n" + `{"response": "#### 5", "ground_truth": "4"}` + "\n"
	two := call(t, lines, "try", "builtin://gsm8k", "--sample", "-")
	require.Equal(t, exitOK, two.code, two.stderr)
	require.Contains(t, two.stdout, "score 1    1\n")
	require.Contains(t, two.stdout, "score 2    0\n")
	require.Contains(t, two.stdout, "2 at once: ")
	wrong := call(t, `{"imgae": "a.png"}`, "try", "builtin://gsm8k", "--sample", "-")
	require.Equal(t, exitUsage, wrong.code)
	require.Contains(t, wrong.stderr, `unknown key "imgae"; did you mean image?`)
}

func TestTryRunsAFunctionInPython(t *testing.T) {
	t.Parallel()
	needPython(t)
	file := put(t, t.TempDir(), "mine.py", []byte(triedFunctions))
	got, doc := tryJSON(t, file, "--response", "4", "--ground-truth", "4", "--set", "bonus=0.5", "--set", "extra_keys={acc: bool}")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Empty(t, got.stderr)
	require.InDelta(t, 1.5, *doc.Samples[0].Score, 0)
	require.Equal(t, true, doc.Columns["reward/mine/acc"])
	require.Equal(t, "from inside\n", doc.Samples[0].Details["mine"].(map[string]any)["printed"])
	require.Len(t, doc.Processes, 1)
	require.Greater(t, doc.Processes[0].Peak, int64(5<<20), "no Python takes less")
	require.Less(t, doc.Processes[0].Peak, int64(1<<30))

	got, doc = tryJSON(t, file)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.True(t, doc.Known)
	require.InDelta(t, 1.0, *doc.Samples[0].Score, 0, "the response of the known text is its ground truth")
	for args, says := range map[string]string{
		"--set bonnus=1":    "--set bonnus=1: reward.reward_functions.mine.bonnus: is not a parameter of compute_score",
		":compute_scor":     "has no 'compute_scor'; did you mean compute_score?",
		"--set probe=false": "the entry has probe: false",
	} {
		words := strings.Fields(args)
		entry := file
		if strings.HasPrefix(args, ":") {
			entry, words = file+args, nil
		}
		got := call(t, "", append([]string{"try", entry}, words...)...)
		require.Equal(t, exitUsage, got.code, got.stdout)
		require.Contains(t, got.stderr, says)
	}
}

func TestTrySaysWhoseFailureItIsAndWhatToDo(t *testing.T) {
	t.Parallel()
	needPython(t)
	dir := t.TempDir()
	file := put(t, dir, "mine.py", []byte(triedFunctions))
	put(t, dir, "broken.py", []byte("class M:\n    def __init__(self, device):\n        raise RuntimeError('no weights')\n    def compute_scores(self, samples):\n        return []\n"))
	put(t, dir, "lacking.py", []byte("def compute_score(solution_str):\n    import nothing_of_that_name\n"))
	put(t, dir, "slow.py", []byte("import time\ntime.sleep(600)\ndef compute_score(solution_str):\n    return 1\n"))
	for _, c := range []struct {
		entry, message, do string
		class              rewards.Class
		flags              []string
	}{
		{filepath.Join(dir, "broken.py") + ":M", "RuntimeError: no weights", "correct what the message names", rewards.Unavailable, nil},
		{file + ":raises", "ValueError: nothing to see", "correct the function", rewards.Internal, nil},
		{file + ":nan", "the score is nan", "a finite number", rewards.InvalidScore, nil},
		{file + ":leaves", "exit status 3", "its last output", rewards.Crashed, nil},
		{file + ":hangs", "did not answer within 4s", "--timeout", rewards.Timeout, []string{"--timeout", "4s"}}, // its process starts within that on a busy machine
		{filepath.Join(dir, "lacking.py"), "No module named 'nothing_of_that_name'", "install the module", rewards.Internal, nil},
		{filepath.Join(dir, "slow.py"), "the reward was not loaded within 500ms", "--timeout", rewards.Timeout, []string{"--timeout", "500ms"}},
	} {
		got, doc := tryJSON(t, append([]string{c.entry}, c.flags...)...)
		require.Equal(t, exitFailure, got.code, got.stderr)
		require.False(t, doc.Scored)
		failed := doc.Samples[0].Errors[0]
		require.Equal(t, c.class, failed.Class, failed.Message)
		blame := rewards.BlameReward
		if c.class == rewards.Unavailable { // it may load another time
			blame = rewards.BlameWorker
		}
		require.Equal(t, blame, failed.Blame)
		require.Contains(t, failed.Message, c.message)
		require.Contains(t, failed.Do, c.do)
		require.Nil(t, doc.Time.SecondMS)

		text := call(t, "", append([]string{"try", c.entry}, c.flags...)...)
		require.Equal(t, exitFailure, text.code)
		require.Contains(t, text.stdout, "failed     "+string(c.class)+", blame "+string(blame)+": ")
		require.Contains(t, text.stdout, "  do       ")
	}
}

func TestTryOfAModelSaysWhatASampleCostsInGrowingBatches(t *testing.T) {
	t.Parallel()
	needPython(t)
	file := put(t, t.TempDir(), "mine.py", []byte(triedFunctions))
	args := []string{file + ":Model", "--set", "devices=cpu", "--set", "checkpoint=v3"}
	for range 5 {
		args = append(args, "--prompt", "abc")
	}
	got, doc := tryJSON(t, args...)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Len(t, doc.Samples, 5)
	var sizes []int
	for _, x := range doc.Time.Together {
		sizes = append(sizes, x.Samples)
		require.Positive(t, x.Batches)
		require.LessOrEqual(t, x.Batches, uint64(x.Samples))
	}
	require.Equal(t, []int{2, 4, 5}, sizes)
	require.Contains(t, doc.Runs, "1 Python process on cpu")
	require.Contains(t, doc.Processes[0].What, "python cpu/mine.py:Model")
	require.Positive(t, doc.Processes[0].Peak)
	require.Empty(t, doc.Cards, "it runs on none")
}

func TestCtrlCEndsTryAtOnceAndLeavesNoProcess(t *testing.T) {
	t.Parallel()
	needPython(t)
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	for name, text := range map[string]string{
		"call.py": "import subprocess, time\ndef compute_score(solution_str):\n    tell()\n    time.sleep(600)\n",
		"load.py": "import subprocess, time\nclass compute_score:\n    def __init__(self):\n        tell()\n        time.sleep(600)\n    def compute_score(self, solution_str):\n        return 1\n",
	} {
		require.NoError(t, syscall.Mkfifo(pipe, 0o600))
		tell := "def tell():\n    open(" + strconv.Quote(pipe) + ", 'w').write(str(subprocess.Popen(['sleep', '600'], start_new_session=True).pid))\n"
		p := start(t, dir, nil, nil, "try", put(t, dir, name, []byte(text+tell)))
		said, err := os.ReadFile(pipe) // waits until the function has started
		require.NoError(t, err)
		pid, err := strconv.Atoi(string(said))
		require.NoError(t, err)
		require.NoError(t, p.Process.Signal(os.Interrupt))
		require.Equal(t, exitFailure, p.code(t))
		require.Contains(t, p.stderr.String(), "interrupted")
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "what the function has started ends with it")
		require.NoError(t, os.Remove(pipe))
	}
}
