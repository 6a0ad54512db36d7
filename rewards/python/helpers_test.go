package python_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// interpreter is REWARDLOOP_PYTHON, the project's own environment, or python3.
func interpreter(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("SKIPPED: -short: it starts Python")
	}
	if named := os.Getenv("REWARDLOOP_PYTHON"); named != "" {
		return named
	}
	own, err := filepath.Abs("../../.venv/bin/python")
	require.NoError(tb, err)
	if _, err := os.Stat(own); err == nil {
		return own
	}
	found, err := exec.LookPath("python3")
	if err != nil {
		tb.Skip("SKIPPED: no Python: neither REWARDLOOP_PYTHON, .venv nor python3 on PATH")
	}
	return found
}

func needs(tb testing.TB, module string) {
	tb.Helper()
	if err := exec.CommandContext(tb.Context(), interpreter(tb), "-c", "import "+module).Run(); err != nil {
		tb.Skipf("SKIPPED: %s has no %s; set REWARDLOOP_PYTHON to one that has, or make deps", interpreter(tb), module)
	}
}

// function makes the scorer of a function of testdata/rewards.py, one process unless
// cfg says otherwise, and closes it at the end of the test.
func function(tb testing.TB, cfg python.Config, name string) rewards.Scorer {
	tb.Helper()
	return scorer(tb, cfg, python.Options{Path: "testdata/rewards.py", Name: name})
}

func scorer(tb testing.TB, cfg python.Config, opts python.Options) rewards.Scorer {
	tb.Helper()
	cfg.Interpreter = interpreter(tb)
	if cfg.Processes == 0 {
		cfg.Processes = 1
	}
	s, err := python.New(cfg, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.(rewards.Closer).Close()) })
	return s
}

func warm(tb testing.TB, s rewards.Scorer) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	require.NoError(tb, s.(rewards.Warmer).Warm(ctx))
}

func score(tb testing.TB, s rewards.Scorer, sample *rewards.Sample) (rewards.Score, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	return s.Score(ctx, sample)
}

// asks is a sample whose ground truth is a word.
func asks(word string) *rewards.Sample {
	js, err := json.Marshal(word)
	if err != nil {
		panic(err)
	}
	return &rewards.Sample{ID: "asks-" + word, GroundTruth: js}
}

func stats(s rewards.Scorer) python.Stats {
	return s.(interface{ Stats() python.Stats }).Stats()
}
