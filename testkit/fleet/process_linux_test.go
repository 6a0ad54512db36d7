package fleet

import (
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whoever starts a process may end with its thread: the system would kill the process with it.
func TestAProcessOutlivesTheThreadThatStartedIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a process")
	}
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	f := &Fleet{t: t}
	t.Cleanup(f.wg.Wait)
	processes := [2]*Process{} // two, since the first thread of a program never ends
	var starters, locked sync.WaitGroup
	locked.Add(len(processes))
	for i := range processes {
		p := &Process{Name: "sleep", f: f, bin: sleep, args: []string{"0.5"}}
		processes[i] = p
		starters.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			locked.Done()
			locked.Wait() // each has a thread of its own
			p.launch()
		})
	}
	starters.Wait()
	for _, p := range processes {
		select {
		case <-p.exited:
			require.True(t, p.cmd.ProcessState.Success(), "it ended with %v", p.cmd.ProcessState)
		case <-time.After(patience):
			p.end()
			require.Fail(t, "the process has not ended")
		}
	}
}
