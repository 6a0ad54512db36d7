package python_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// mine is a file with a function.
func mine(t *testing.T, code string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mine.py")
	require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
	return file
}

// inspected is what an inspection finds.
func inspected(t *testing.T, cfg python.Config, opts python.Options) (rewards.Signature, error) {
	t.Helper()
	cfg.Interpreter = interpreter(t)
	raw, err := json.Marshal(opts)
	require.NoError(t, err)
	return python.NewFunctions(cfg, nil).Spec().Inspect(t.Context(), raw, false)
}

func TestAnInspectionSaysWhatAFunctionTakesAndMakesNoClass(t *testing.T) {
	t.Parallel()
	file := mine(t, `
class Made:
    def __init__(self):
        raise RuntimeError("made")

    def compute_score(self, solution_str, *, bonus=1):
        return bonus


class Static:
    @staticmethod
    def compute_score(solution_str):
        return 1


async def anything(ground_truth, **kwargs):
    return 1
`)
	for name, want := range map[string]rewards.Signature{
		"Made":     {Names: []string{"bonus", "solution_str"}, At: file + ":6", Faults: []string{}},
		"Static":   {Names: []string{"solution_str"}, At: file + ":11", Faults: []string{}},
		"anything": {Names: []string{"ground_truth"}, Any: true, At: file + ":16", Faults: []string{}},
	} {
		got, err := inspected(t, python.Config{}, python.Options{Path: file, Name: name})
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	got, err := inspected(t, python.Config{}, python.Options{Path: mine(t, "def compute_score(solution_str, tokens, /):\n    return 1\n")})
	require.NoError(t, err)
	assert.Equal(t, []string{"the function takes positional-only arguments; it is called by keyword"}, got.Faults)
}

func TestAnInspectionSaysInOneLineWhyAFunctionCannotBeCalled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ code, says string }{
		"a syntax error":                {"x = 1\ndef compute_score(:\n", "SyntaxError: invalid syntax (%s:2)"},
		"a module that is not there":    {"\nimport nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of_that_name' (%s:2)"},
		"a file that raises":            {"def f():\n    raise OSError('no such\\ndevice')\n\nf()\n", "OSError: no such (%s:4)"},
		"a function under another name": {"def compute_scores():\n    return 1\n", "has no 'compute_score'; did you mean compute_scores?"},
		"a file that ends its process":  {"import os\nos._exit(3)\n", "the process ended during the import of the module (exit status 3)"},
		"a file that calls sys.exit":    {"import sys\nsys.exit('enough')\n", "SystemExit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := mine(t, c.code)
			_, err := inspected(t, python.Config{}, python.Options{Path: file})
			require.ErrorContains(t, err, strings.ReplaceAll(c.says, "%s", file))
			require.NotErrorIs(t, err, rewards.Timeout)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestAnInspectionOfAFileWhoseImportHangsEnds(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	_, err := inspected(t, python.Config{StartTimeout: 500 * time.Millisecond}, python.Options{Path: mine(t, "import time\ntime.sleep(1000)\n")})
	require.ErrorIs(t, err, rewards.Timeout)
	require.ErrorContains(t, err, "the import of the module took longer than 500ms")
	require.Less(t, time.Since(begun), 30*time.Second)
}

// A function is tried with the kinds that its parameters name.
func TestAFunctionIsTriedWithTheKindsOfSampleThatItTakes(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	const head = "def compute_score("
	const tail = "):\n    return 1\n"
	for parameters, want := range map[string][]string{
		"solution_str, ground_truth":             {"text"},
		"solution_image, prompt, extra_info":     {"image"},
		"media":                                  {"image"},
		"solution_image=None, solution_str=None": {"image", "text"},
		"solution_image, solution_str":           {"image"},
		"solution_str, solution_image=None":      {"image", "text"},
		"solution_str, **kwargs":                 {"text"},
		"**kwargs":                               {"image"},
		"ground_truth":                           {"text"},
	} {
		s := scorer(t, python.Config{}, python.Options{Path: mine(t, head+parameters+tail)})
		warm(t, s)
		var got []string
		for _, tried := range s.(rewards.Knower).TryKnown(t.Context(), time.Minute) {
			require.NoError(t, tried.Err, parameters)
			got = append(got, tried.Kind)
		}
		assert.Equal(t, want, got, parameters)
		assert.Len(t, s.(rewards.Knower).KnownSamples(), len(want), parameters)
	}
}

func TestKnownSamplesAreAsTheTrainersGiveThem(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	s := scorer(t, python.Config{}, python.Options{Probe: []string{"image", "video", "text"}, Path: mine(t, `
def compute_score(data_source, ground_truth, extra_info, prompt, solution_image=None, solution_str=None):
    assert ground_truth == "hello" and data_source == "rewardloop_known" and "hello" in prompt and extra_info["index"] == 0
    if solution_image is None:
        assert solution_str == "hello"
    else:
        assert solution_image.shape in ((3, 64, 64), (4, 3, 64, 64)) and solution_image.max() > solution_image.min()
    return 1
`)})
	warm(t, s)
	tried := s.(rewards.Knower).TryKnown(t.Context(), time.Minute)
	require.Len(t, tried, 3)
	for _, x := range tried {
		require.NoError(t, x.Err, x.Kind)
	}
	for i, known := range s.(rewards.Knower).KnownSamples() {
		require.Equal(t, "rewardloop-known-"+tried[i].Kind, known.ID)
	}
}

func TestAFunctionThatWantsNoKnownSampleIsNotCalled(t *testing.T) {
	t.Parallel()
	s := scorer(t, python.Config{}, python.Options{Probe: []string{}, Path: mine(t, "def compute_score(solution_str):\n    raise ValueError\n")})
	warm(t, s)
	require.Empty(t, s.(rewards.Knower).KnownSamples())
	require.Empty(t, s.(rewards.Knower).TryKnown(t.Context(), time.Minute))
	require.Zero(t, stats(s).Calls)
}

// A function without which module nothing works depends on it, until that is there.
func TestAFunctionDependsOnTheModuleThatItLacks(t *testing.T) {
	t.Parallel()
	file := mine(t, "def compute_score(solution_str):\n    import installed_later\n    return 1\n")
	s := scorer(t, python.Config{}, python.Options{Path: file})
	warm(t, s)
	require.Empty(t, rewards.DependencyOf(s).Name)
	tried := s.(rewards.Knower).TryKnown(t.Context(), time.Minute)
	require.Len(t, tried, 1)
	require.Equal(t, "installed_later", tried[0].Lacks)
	d := rewards.DependencyOf(s)
	require.True(t, d.Down)
	require.Equal(t, "the Python module installed_later, which mine.py:compute_score needs", d.Name)
	require.Contains(t, d.Last, "No module named 'installed_later'")

	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(file), "installed_later.py"), nil, 0o600))
	require.Eventually(t, func() bool {
		return s.(rewards.Knower).TryKnown(t.Context(), time.Minute)[0].Err == nil
	}, 10*time.Second, 100*time.Millisecond)
	require.Empty(t, rewards.DependencyOf(s).Name)
}

// Where one kind can be scored, the profile goes on.
func TestAFunctionThatLacksAModuleForOneKindDependsOnNothing(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	s := scorer(t, python.Config{}, python.Options{Path: mine(t, `
def compute_score(solution_str=None, solution_image=None):
    if solution_image is not None:
        import nothing_of_that_name
    return 1
`)})
	warm(t, s)
	tried := s.(rewards.Knower).TryKnown(t.Context(), time.Minute)
	require.Len(t, tried, 2)
	require.Equal(t, []string{"nothing_of_that_name", ""}, []string{tried[0].Lacks, tried[1].Lacks})
	require.Empty(t, rewards.DependencyOf(s).Name)
}

func TestAKnownSampleOnWhichAFunctionHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	s := scorer(t, python.Config{}, python.Options{Path: mine(t, "import time\ndef compute_score(solution_str):\n    time.sleep(1000)\n")})
	warm(t, s)
	tried := s.(rewards.Knower).TryKnown(t.Context(), 300*time.Millisecond)
	require.Len(t, tried, 1)
	require.ErrorIs(t, tried[0].Err, rewards.Timeout)
	require.Empty(t, rewards.DependencyOf(s).Name, "it may answer others")
}
