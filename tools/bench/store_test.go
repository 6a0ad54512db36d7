package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// TestAQuickRunOfTheStoreWorks starts the program as it was built.
func TestAQuickRunOfTheStoreWorks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	root, err := report.Repository()
	require.NoError(t, err)
	if _, err := rewardloopProgram(root); err != nil {
		t.Skipf("SKIPPED: %v: the benchmarks of the store were not tried", err)
	}
	var out, stderr bytes.Buffer
	code := run(t.Context(), suites(), []string{"-quick", "-suite", "store"}, &out, &stderr)
	require.Equal(t, exitHeld, code, stderr.String())
	for _, row := range names([]Suite{overStore()}) {
		assert.Contains(t, out.String(), row)
	}
}
