package resident_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/testkit/resident"
)

func TestThePeakOfAProcessStaysAndItsChildrenCount(t *testing.T) { //nolint:paralleltest // it measures the process
	before, err := resident.Peak(os.Getpid())
	require.NoError(t, err)
	large := bytes.Repeat([]byte{1}, 256<<20) // what other tests had may be used again
	require.NotEmpty(t, large)
	after, err := resident.Peak(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, after, before+32<<20)

	child := exec.Command("cat")
	in, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	with, err := resident.Peak(os.Getpid())
	require.NoError(t, err)
	own, err := resident.Peak(child.Process.Pid)
	require.NoError(t, err)
	require.Positive(t, own)
	require.GreaterOrEqual(t, with, after+own)
	require.NoError(t, in.Close())
	require.NoError(t, child.Wait())
	_, err = resident.Peak(child.Process.Pid)
	require.Error(t, err)
}
