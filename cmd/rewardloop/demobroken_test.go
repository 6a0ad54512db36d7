package main_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/examples/demo"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

// What the second part of the demo breaks costs time, and no sample, also where Python has no
// packages, as on a fresh machine.
func TestTheDemoBreaksAWorkerAScorerAndANeighbourAndEverySampleHasItsScore(t *testing.T) { //nolint:paralleltest // t.Setenv
	pictures, err := demo.Load("../../testdata/golden/ocr")
	require.NoError(t, err)
	python, err := exec.LookPath(cmp.Or(os.Getenv("REWARDLOOP_PYTHON"), "python3"))
	if err == nil {
		bare := filepath.Join(t.TempDir(), "python")
		executable.Write(t, bare, "#!/bin/sh\nexec "+python+" -S \"$@\"\n")
		t.Setenv("REWARDLOOP_PYTHON", bare)
	}
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
