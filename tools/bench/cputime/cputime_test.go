package cputime

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProcessorTimeOfAProcessIsReadFromProc(t *testing.T) {
	t.Parallel()
	s, err := parseProcess("1234 (a (b) c) S 99 1234 1234 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100")
	require.NoError(t, err)
	assert.Equal(t, stat{parent: 99, cpu: 3 * time.Second}, s)
	for _, bad := range []string{"", "1 (x) S", "1 (x) S a b c d e f g h i j k l m n"} {
		_, err := parseProcess(bad)
		require.Error(t, err, "%q", bad)
	}
	assert.GreaterOrEqual(t, Machine(), time.Duration(0))
	assert.GreaterOrEqual(t, Children(), time.Duration(0))
	assert.GreaterOrEqual(t, Process(os.Getpid()), time.Duration(0))
	assert.Zero(t, Process(-1))
	assert.Positive(t, Own())
}

func TestProcessorTimeOfTheMachineIsReadFromProc(t *testing.T) {
	t.Parallel()
	d, err := parseMachine("cpu  100 20 3 999 9 9 9 9 0 0\ncpu0 1 1 1 1\n")
	require.NoError(t, err)
	assert.Equal(t, 1230*time.Millisecond, d)
	for _, bad := range []string{"", "cpu0 1 1 1", "cpu 1 2", "cpu 1 x 3 4"} {
		_, err := parseMachine(bad)
		require.Error(t, err, bad)
	}
}
