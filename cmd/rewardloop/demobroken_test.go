package main_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/internal/demo"
)

// What the second part of the demo breaks costs time, and no sample.
func TestTheDemoBreaksAWorkerAScorerAndANeighbourAndEverySampleHasItsScore(t *testing.T) {
	t.Parallel()
	pictures, err := demo.Load("../../testdata/golden/ocr")
	require.NoError(t, err)
	python := os.Getenv("REWARDLOOP_PYTHON")
	if python == "" {
		python = "python3"
	}
	_, err = exec.LookPath(python)
	d, err := demo.Break(t.Context(), demo.DamageConfig{Program: main.Binary(t), Down: time.Second, Python: err == nil}, pictures)
	require.NoError(t, err)
	t.Logf("\n%s", d)
	require.True(t, d.Whole(), "%s", d)
	require.Zero(t, d.Lost+d.Swapped+d.Failed)
	require.Equal(t, "worker1", d.Killed)
	require.Greater(t, d.Took, d.Down)
	require.Equal(t, d.NeighbourOf, d.Neighbour)
	if d.NeighbourOf > 0 {
		require.Contains(t, d.Reason, "ValueError: this function always raises")
	}
}
