package main

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// TestAQuickRunOfTheQueueWorks starts a broker, and the program as it was built.
func TestAQuickRunOfTheQueueWorks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	root, err := report.Repository()
	require.NoError(t, err)
	if _, err := rewardloopProgram(root); err != nil {
		t.Skipf("SKIPPED: %v: the benchmarks of the queue were not tried", err)
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skipf("SKIPPED: %v: the benchmarks of the queue were not tried", err)
	}
	var out, stderr bytes.Buffer
	code := run(t.Context(), suites(), []string{"-quick", "-suite", "queue"}, &out, &stderr)
	require.Equal(t, exitHeld, code, stderr.String())
	for _, row := range names([]Suite{overQueue()}) {
		assert.Contains(t, out.String(), row)
	}
}
