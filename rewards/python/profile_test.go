package python_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// profiledFunctions are functions of a file, by name, which one Functions has made and warmed.
func profiledFunctions(t *testing.T, interpreter string, all ...python.Options) (*python.Functions, map[string]rewards.Scorer) {
	t.Helper()
	f := python.NewFunctions(python.Config{Interpreter: interpreter, Processes: 1}, newDevices(t, pool.Config{}))
	scorers := map[string]rewards.Scorer{}
	for _, opts := range all {
		raw, err := json.Marshal(opts)
		require.NoError(t, err)
		s, err := f.Spec().Build(raw)
		require.NoError(t, err)
		if c, ok := s.(rewards.Closer); ok {
			t.Cleanup(func() { require.NoError(t, c.Close()) })
		}
		warm(t, s)
		scorers[opts.Name] = s
	}
	return f, scorers
}

// multiplications counts those in a trace.
func multiplications(t *testing.T, path string) (n int) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	r, err := gzip.NewReader(file)
	require.NoError(t, err)
	var trace struct {
		TraceEvents []struct{ Name, Cat string }
	}
	require.NoError(t, json.NewDecoder(r).Decode(&trace))
	for _, e := range trace.TraceEvents {
		if e.Name == "aten::mm" && e.Cat == "cpu_op" {
			n++
		}
	}
	return n
}

// profilesOfAll profiles a function, an async one and a model, each in one of two steps.
func profilesOfAll(t *testing.T, interpreter string, mayBeStub bool) {
	t.Helper()
	file := func(name string) python.Options { return python.Options{Path: "testdata/profiled.py", Name: name} }
	ofModel := file("Model")
	ofModel.Placement = &python.Placement{}
	f, scorers := profiledFunctions(t, interpreter, file("multiply"), file("waiting"), ofModel)
	scored := func(times int) {
		for i := range times {
			for name, s := range scorers {
				got, err := score(t, s, &rewards.Sample{ID: fmt.Sprint(name, i), Response: "four"})
				require.NoError(t, err)
				assert.InDelta(t, 8, got.Value, 0)
				assert.True(t, mayBeStub || got.Extra["stub"] == false)
			}
		}
	}
	folder := filepath.Join(t.TempDir(), "profiles")
	scored(2)
	for step, times := range map[int]int{2: 3, 5: 4} {
		begun, err := f.Profile(t.Context(), &python.Profile{Tool: "torch", Ranks: []int{0}, Folder: folder, Step: step})
		require.NoError(t, err)
		scored(times)
		ended, err := f.Profile(t.Context(), nil)
		require.NoError(t, err)
		scored(1)
		assert.Equal(t, begun, ended)
		require.Len(t, ended, 3)
		for i, name := range []string{"multiply", "waiting", "Model"} {
			assert.True(t, strings.HasPrefix(filepath.Base(ended[i]), fmt.Sprintf("profiled.%s.step-%d.pid-", name, step)), ended[i])
			assert.Equal(t, times, multiplications(t, ended[i]), "%s: those of the step alone", name)
		}
	}
	again, err := f.Profile(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, again, "no profile runs")
	none, err := f.Profile(t.Context(), &python.Profile{Tool: "torch", Ranks: []int{7}, Folder: folder, Step: 6})
	require.NoError(t, err)
	assert.Empty(t, none, "there is no such process")
}

func TestProcessesOfFunctionsAndModelsAreProfiledByTorch(t *testing.T) {
	t.Parallel()
	profilesOfAll(t, interpreter(t), true)
}

func TestPymodelsProcessesOfFunctionsAndModelsAreProfiledByTorch(t *testing.T) {
	t.Parallel()
	profilesOfAll(t, torchPython(t), false)
}

func TestAProfileThatCannotBeMadeSaysWhyAndScoringGoesOn(t *testing.T) {
	t.Parallel()
	f, scorers := profiledFunctions(t, interpreter(t), python.Options{Path: "testdata/profiled.py", Name: "multiply"}, python.Options{Path: "testdata/rewards.py", Name: "length"})
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	for _, c := range []struct{ tool, folder, want string }{
		{"torch", t.TempDir(), "length: the process has not imported torch"},
		{"torch", blocked, "multiply: FileExistsError"},
		{"nsys", t.TempDir(), "multiply: this process has no card: nsys captures nothing of it"},
	} {
		_, err := f.Profile(t.Context(), &python.Profile{Tool: c.tool, All: true, Folder: c.folder, Step: 1})
		require.ErrorContains(t, err, c.want)
		for name, s := range scorers {
			_, err := score(t, s, &rewards.Sample{ID: name, Response: "four"})
			require.NoError(t, err)
		}
		_, err = f.Profile(t.Context(), nil)
		require.NoError(t, err)
	}
}

func TestAProcessThatStartsDuringAProfileJoinsIt(t *testing.T) {
	t.Parallel()
	f, scorers := profiledFunctions(t, interpreter(t), python.Options{Path: "testdata/profiled.py", Name: "multiply"})
	folder := t.TempDir()
	_, err := f.Profile(t.Context(), &python.Profile{Tool: "torch", All: true, Folder: folder, Step: 3})
	require.NoError(t, err)
	s := scorers["multiply"]
	p, err := os.FindProcess(stats(s).PIDs[0])
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	for i := range 3 { // the first may meet the process that has just been killed, which is no fault of its own
		_, err = score(t, s, &rewards.Sample{ID: fmt.Sprint(i), Response: "four"})
	}
	require.NoError(t, err)
	ended, err := f.Profile(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, ended, 1)
	assert.Positive(t, multiplications(t, ended[0]))
}
