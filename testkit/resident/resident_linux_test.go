package resident_test

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/resident"
)

func TestThePeakOfAProcessStaysAndItsChildrenCount(t *testing.T) { //nolint:paralleltest // it measures the process
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a process")
	}
	before, err := resident.Peak(os.Getpid())
	require.NoError(t, err)
	var large [][]byte // what was in use before may be used again, and raises no peak
	after := before
	for after < before+32<<20 {
		require.Less(t, len(large), 64)
		large = append(large, bytes.Repeat([]byte{1}, 64<<20))
		after, err = resident.Peak(os.Getpid())
		require.NoError(t, err)
	}

	child := exec.Command("cat")
	in, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	own, err := resident.Peak(child.Process.Pid) // before the sum: it may still grow
	require.NoError(t, err)
	require.Positive(t, own)
	with, err := resident.Peak(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, with, after+own)
	require.NoError(t, in.Close())
	require.NoError(t, child.Wait())
	runtime.KeepAlive(large)
	_, err = resident.Peak(child.Process.Pid)
	require.Error(t, err)
}
