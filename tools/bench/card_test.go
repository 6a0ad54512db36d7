package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

func TestAQuickRunOfTheCardSuiteWorksWithoutACard(t *testing.T) { //nolint:paralleltest // t.Setenv
	if testing.Short() {
		t.Skip("SKIPPED: -short: it runs models")
	}
	root, err := report.Repository()
	require.NoError(t, err)
	if os.Getenv(ort.LibraryEnv) == "" { // as in the tests of models: that of the clone
		t.Setenv(ort.LibraryEnv, filepath.Join(root, ".cache", "ort", "1.29.0", "libonnxruntime.so.1.29.0"))
	}
	if os.Getenv("REWARDLOOP_MODELS") == "" {
		t.Setenv("REWARDLOOP_MODELS", filepath.Join(root, ".cache", "models"))
	}
	if _, err := ort.Find(""); err != nil {
		skipOrFail(t, err)
	}
	c, err := newCardModels(Options{Device: "cpu"})
	require.NoError(t, err)
	if _, err := os.Stat(c.detector().Path); errors.Is(err, fs.ErrNotExist) {
		skipOrFail(t, err)
	}
	var out, stderr bytes.Buffer
	code := run(t.Context(), suites(), []string{"-quick", "-suite", "gpu", "-device", "cpu"}, &out, &stderr)
	require.Equal(t, exitHeld, code, stderr.String())
	for _, row := range names([]Suite{onCards()}) {
		assert.Contains(t, out.String(), row)
	}
	require.NotContains(t, out.String(), "not measured")
	require.NotContains(t, out.String(), "MISSES")
}

// skipOrFail skips for what is not here, or fails where REQUIRE_ORT=1 says that it must be.
func skipOrFail(t *testing.T, why error) {
	t.Helper()
	if os.Getenv("REQUIRE_ORT") == "1" {
		t.Fatalf("REQUIRE_ORT=1: %v", why)
	}
	t.Skipf("SKIPPED: %v", why)
}

func TestWithoutACardNoTargetOfACardIsHeld(t *testing.T) {
	t.Parallel()
	left := 0
	for _, e := range withoutCard(onCards()).Experiments {
		for _, r := range e.Rows {
			if r.Target != nil {
				left++
				require.NotContains(t, r.Name, "loop-vs-bare")
			}
		}
	}
	require.Positive(t, left, "outputs, memory and lost samples are held to anywhere")
	for _, e := range onCards().Experiments {
		for _, r := range e.Rows {
			require.NotNil(t, r.Target, "%s/%s: the suite itself is not changed", e.Name, r.Name)
		}
	}
}

func TestExperimentsThatBeginTooLateMiss(t *testing.T) {
	t.Parallel()
	var out, stderr bytes.Buffer
	code := run(t.Context(), suites(), []string{"-quick", "-suite", "gpu", "-device", "cpu", "-within", "1ns"}, &out, &stderr)
	require.Equal(t, exitHeld, code, "a quick run misses nothing: %s", stderr.String())
	require.Equal(t, len(names([]Suite{onCards()})), strings.Count(out.String(), "not measured: the 1ns of -within were over"))
}

func TestTheFarthestOfTwoOutputsIsRelativeToLargeOnes(t *testing.T) {
	t.Parallel()
	floats := func(v ...float32) []infer.Tensor { return []infer.Tensor{infer.Floats("", v, len(v))} }
	require.InDelta(t, 0.1, farthest(floats(0.1, 0.5), floats(0.2, 0.5)), 1e-6)
	require.InDelta(t, 0.001, farthest(floats(100.1, 5), floats(100, 5)), 1e-6)
	require.Greater(t, farthest(floats(1), floats(1, 2)), 1e9)
	require.Greater(t, farthest(nil, floats(1)), 1e9)
}
