package cputime

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheLineOfAProcessHasItsStateItsWaitedChildrenItsNicenessAndItsStart(t *testing.T) {
	t.Parallel()
	l, err := parseLineage("12 (a (b) c) S 9 12 12 0 -1 0 1 2 0 0 250 50 30 20 25 5 1 0 7788 0")
	require.NoError(t, err)
	assert.Equal(t, lineage{stat: stat{parent: 9, cpu: 3 * time.Second}, state: "S", waited: 500 * time.Millisecond, nice: 5, start: 7788}, l)
	_, err = parseLineage("12 (a) S 9 12 12 0 -1 0 1 2 0 0 250 50 30 20")
	require.Error(t, err)
}

func TestTheTimesOfDescendantsAreAddedUpApartFromTheProcessesThatAreNamed(t *testing.T) {
	t.Parallel()
	second := time.Second
	all := map[int]lineage{
		1:  {stat: stat{cpu: 100 * second}},
		10: {stat: stat{parent: 1, cpu: second}, waited: 2 * second},            // named
		11: {stat: stat{parent: 10, cpu: 4 * second}, nice: 5, start: 7},        // its child
		12: {stat: stat{parent: 11, cpu: 8 * second}, waited: 16 * second},      // its grandchild
		20: {stat: stat{parent: 1, cpu: 32 * second}, nice: 19},                 // a stranger
		30: {stat: stat{parent: 31, cpu: second}}, 31: {stat: stat{parent: 30}}, // a circle, as two readings apart can show
	}
	u := useOf(all, []int{10})
	assert.Equal(t, second, u.Processes)
	assert.Equal(t, 30*second, u.Below)
	assert.Equal(t, 5, u.Nice)
	assert.Len(t, u.Descendants, 2)
}

func TestAChildLivesUntilItIsKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: /proc is Linux's")
	}
	child := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, child.Start())
	var found Descendant
	for _, d := range Trees(os.Getpid()).Descendants {
		if d.PID == child.Process.Pid {
			found = d
		}
	}
	assert.True(t, found.Lives())
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // it was killed
	assert.False(t, found.Lives())
}
