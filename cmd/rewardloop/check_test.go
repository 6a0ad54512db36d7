package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkedFunctions is the Python file that the tests of config check name.
const checkedFunctions = `def strict(solution_str, length_penalty=1):
    return 1


def loose(solution_str, length_penalty=1, **kwargs):
    return 1


def needy(solution_str, tokenizer):
    return 1


class Made:
    def __init__(self):
        raise RuntimeError("config check makes no class")

    def compute_score(self, solution_str, bonus=1):
        return 1


class Grouped(Made):
    def post_process_scores(self, scores):
        return scores
`

// Each fault has its line and what to write instead, and none hides another.
func TestConfigCheckReportsEveryFaultOfFunctionsAndOptionsAtOnce(t *testing.T) {
	t.Parallel()
	interpreter := needPython(t)
	dir := t.TempDir()
	put(t, dir, "mine.py", []byte(checkedFunctions))
	put(t, dir, "broken.py", []byte("x = 1\n\ndef compute_score(:\n"))
	put(t, dir, "lacking.py", []byte("\nimport nothing_of_that_name\n"))
	file := put(t, dir, "cfg.yaml", []byte(`reward:
  reward_functions:
    misspelt: {path: mine.py, name: strict, lenght_penalty: 2}
    weighed: {path: mine.py, name: loose, wieght: 3, height: 5}
    slip: {path: mine.py, name: loose, lenght_penalty: 3, length_penalty_b: 5}
    absent: {path: nowhere.py, requierd: true}
    broken: {path: broken.py}
    nameless: {path: mine.py, name: strikt}
    needy: {path: mine.py, name: needy}
    lacking: {path: lacking.py}
    reader: {path: builtin://ocr, min_cnf: 0.5, wieght: 2, min_conf: high}
    math: {path: builtin://gsm8k, required: perhaps}
    made: {path: mine.py, name: Made, bonnus: 1}
    fine: {path: mine.py, name: Made, bonus: 1}
    lonely: {path: mine.py, name: Grouped}
    grouped: {path: mine.py, name: Grouped}
    group: {post_process: grouped}
    flat: {path: mine.py, name: strict}
    flattened: {post_process: flat}
rewards:
  one: {custom_reward_function: {path: mine.py, name: strict, reward_kwargs: {lenght_penalty: 2}}}
`))
	want := [][2]string{
		{":3:45: reward.reward_functions.misspelt.lenght_penalty: ", "/mine.py:1); did you mean length_penalty?"},
		{":4:43: reward.reward_functions.weighed.wieght: ", "did you mean weight?"},
		{":5:40: reward.reward_functions.slip.lenght_penalty: ", "did you mean length_penalty?"},
		{":6:20: reward.reward_functions.absent.path: ", "there is no file"},
		{":6:32: reward.reward_functions.absent.requierd: ", "did you mean required?"},
		{":7:20: reward.reward_functions.broken.path: ", "SyntaxError: invalid syntax (" + dir + "/broken.py:3)"},
		{":8:22: reward.reward_functions.nameless.path: ", "has no 'strikt'; did you mean strict?"},
		{":9:19: reward.reward_functions.needy.path: ", "needs tokenizer, which nobody gives"},
		{":10:21: reward.reward_functions.lacking.path: ", "No module named 'nothing_of_that_name' (" + dir + "/lacking.py:2)"},
		{":11:35: reward.reward_functions.reader.min_cnf: ", `the scorer "ocr" has no such option; did you mean min_conf?`},
		{":11:49: reward.reward_functions.reader.wieght: ", "did you mean weight?"},
		{":11:60: reward.reward_functions.reader.min_conf: ", "want a number, got string"},
		{":12:45: reward.reward_functions.math.required: ", "want true or false"},
		{":13:39: reward.reward_functions.made.bonnus: ", "did you mean bonus?"},
		{":15:20: reward.reward_functions.lonely.path: ", "no component calls it"},
		{":18:18: reward.reward_functions.flat.path: ", "strict is not a class with a method post_process_scores"},
		{":21:79: rewards.one.custom_reward_function.reward_kwargs.lenght_penalty: ", "did you mean length_penalty?"},
	}
	got := call(t, "", "config", "check", "-c", file, "pool.python.interpreter="+interpreter)
	require.Equal(t, exitUsage, got.code, got.stdout)
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	require.Len(t, lines, len(want), got.stderr)
	for i, w := range want {
		require.Contains(t, lines[i], "cfg.yaml"+w[0])
		require.Contains(t, lines[i], w[1])
	}
}

// What config check refuses no command runs with.
func TestEveryCommandChecksFunctionsAndOptions(t *testing.T) {
	t.Parallel()
	interpreter := needPython(t)
	dir := t.TempDir()
	put(t, dir, "mine.py", []byte(checkedFunctions))
	file := put(t, dir, "cfg.yaml", []byte(`reward:
  reward_functions:
    misspelt: {path: mine.py, name: strict, lenght_penalty: 2}
    reader: {path: builtin://ocr, min_cnf: 0.5}
`))
	for _, command := range [][]string{{"serve"}, {"worker"}, {"score", "-i", dir + "/in.jsonl", "-o", dir + "/out"}} {
		got := call(t, "", append(command, "-c", file, "pool.python.interpreter="+interpreter)...)
		require.Equal(t, exitUsage, got.code, got.stdout)
		require.Contains(t, got.stderr, "did you mean length_penalty?")
		require.Contains(t, got.stderr, "did you mean min_conf?")
	}
	got, checks := examined(t, "-c", file, "pool.python.interpreter="+interpreter, withoutModels(t))
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, checks["configuration"].Detail, "did you mean length_penalty?")
	require.Contains(t, checks["configuration"].Detail, "did you mean min_conf?")
}

func TestConfigCheckCountsRewards(t *testing.T) {
	t.Parallel()
	interpreter := "pool.python.interpreter=" + needPython(t)
	dir := t.TempDir()
	file := put(t, dir, "mine.py", []byte(checkedFunctions))
	for says, overrides := range map[string][]string{
		"ok: 1 reward in 1 profile\n": {"reward.custom_reward_function.path=" + file, "reward.custom_reward_function.name=strict"},
		"ok: 3 rewards in 2 profiles\n": {
			"+reward.reward_functions.a.path=" + file, "+reward.reward_functions.a.name=strict", "+reward.reward_functions.b.path=builtin://length",
			"+rewards.c.custom_reward_function.path=builtin://length",
		},
	} {
		got := call(t, "", append([]string{"config", "check", interpreter}, overrides...)...)
		require.Equal(t, exitOK, got.code, got.stderr)
		require.True(t, strings.HasSuffix(got.stdout, says), got.stdout)
	}
}

// A file that loads a model while it is imported is no fault.
func TestConfigCheckEndsWhereAnImportHangs(t *testing.T) {
	t.Parallel()
	interpreter := needPython(t)
	dir := t.TempDir()
	file := put(t, dir, "slow.py", []byte("import time\ntime.sleep(1000)\n"))
	begun := time.Now()
	args := []string{"config", "check", "pool.python.interpreter=" + interpreter, "pool.python.start_timeout=1s", "+reward.reward_functions.a.path=" + file}
	got := call(t, "", args...)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "reward.reward_functions.a.path: the names of its options are not checked: timeout: the import of the module took longer than 1s")
	got = call(t, "", append(args, "+reward.reward_functions.a.wieght=3")...)
	require.Equal(t, exitUsage, got.code, "what is certain is a fault all the same")
	require.Contains(t, got.stderr, "did you mean weight?")
	require.Less(t, time.Since(begun), time.Minute)
}

// The machine of a gateway that scores nothing need not have what its workers have.
func TestConfigCheckImportsNothingWhereNothingIsScored(t *testing.T) {
	t.Parallel()
	file := put(t, t.TempDir(), "mine.py", []byte("import nothing_of_that_name\n"))
	got := call(t, "", "config", "check", "reward.num_workers=0", "queue.nats_listen=127.0.0.1:0", "+reward.reward_functions.a.path="+file)
	require.Equal(t, exitOK, got.code, got.stderr)
}

func TestTheDoctorNamesAModuleThatAFunctionLacks(t *testing.T) {
	t.Parallel()
	interpreter := needPython(t)
	dir := t.TempDir()
	put(t, dir, "mine.py", []byte("def compute_score(solution_str):\n    import nothing_of_that_name\n"))
	put(t, dir, "picky.py", []byte("def compute_score(solution_str):\n    raise ValueError('unknown text')\n"))
	put(t, dir, "good.py", []byte("def compute_score(solution_str):\n    return 1\n"))
	file := put(t, dir, "cfg.yaml", []byte(`reward:
  reward_functions:
    mine: {path: mine.py, required: true}
    also: {path: mine.py}
    picky: {path: picky.py, required: true}
    quiet: {path: picky.py, probe: false}
    good: {path: good.py, required: true}
server: {listen: "127.0.0.1:0"}
`))
	got, checks := examined(t, "-c", file, "pool.python.interpreter="+interpreter, withoutModels(t))
	require.Equal(t, exitFailure, got.code, got.stdout)
	mine := checks["function default/mine"]
	require.Equal(t, stateMissing, mine.State)
	require.Contains(t, mine.Detail, "No module named 'nothing_of_that_name'")
	require.Contains(t, mine.Advice, "install the module nothing_of_that_name")
	also := checks["function default/also"]
	require.False(t, also.Required)
	require.Contains(t, also.Detail, "optional: ")
	picky := checks["function default/picky"]
	require.Equal(t, stateWarn, picky.State)
	require.Contains(t, picky.Detail, "ValueError: unknown text")
	require.Contains(t, picky.Advice, "probe: false")
	require.NotContains(t, checks, "function default/quiet")
	require.Equal(t, stateOK, checks["function default/good"].State)
}

func TestTheDoctorSaysWhichServersAreOptional(t *testing.T) {
	t.Parallel()
	file := put(t, t.TempDir(), "cfg.yaml", []byte(`reward:
  reward_functions:
    some: {path: builtin://judge, engine: extra, template: "{response}?", on_failure: zero}
    all: {path: builtin://judge, engine: needed, template: "{response}?", required: true}
engines:
  extra: {base_urls: ["http://127.0.0.1:9/v1"], model: m}
  needed: {base_urls: ["http://127.0.0.1:11/v1"], model: m}
server: {listen: "127.0.0.1:0"}
`))
	got, checks := examined(t, "-c", file, withoutModels(t))
	require.Equal(t, exitFailure, got.code, got.stdout)
	for name, required := range map[string]bool{"server extra": false, "server needed": true} {
		require.Equal(t, stateMissing, checks[name].State, name)
		require.Equal(t, required, checks[name].Required, name)
		require.Equal(t, !required, strings.HasPrefix(checks[name].Detail, "optional: "), checks[name].Detail)
	}
}
