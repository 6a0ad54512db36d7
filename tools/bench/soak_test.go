package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

func TestAQuickRunOfTheSoakWorks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts the program")
	}
	root, err := report.Repository()
	require.NoError(t, err)
	if _, err := rewardloopProgram(root); err != nil {
		t.Skipf("SKIPPED: %v: the soak was not tried", err)
	}
	var out, stderr bytes.Buffer
	code := run(t.Context(), suites(), []string{"-quick", "-suite", "soak"}, &out, &stderr)
	require.Equal(t, exitHeld, code, stderr.String())
	for _, row := range names([]Suite{soak()}) {
		assert.Contains(t, out.String(), row)
	}
}

func TestTheSlopeIsThatOfAStraightLine(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 2.5, slope([]float64{0, 1, 2, 3}, []float64{1, 3.5, 6, 8.5}), 1e-12)
	require.Zero(t, slope([]float64{1}, []float64{5}))
	require.Zero(t, slope(nil, nil))
}
