package subprocess_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// kept is a command under a keeper, with a second for its grace.
func kept(command ...string) *exec.Cmd {
	args, err := subprocess.KeepCommand(time.Second, command...)
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return cmd
}

// keepsParent is the life of a process that is killed while a command runs under its keeper.
func keepsParent(script string) {
	runtime.LockOSThread()
	cmd := kept("sh", "-c", script)
	cmd.Stdout = os.Stdout
	fmt.Println(cmd.Start(), cmd.Wait())
	os.Exit(1)
}

// stubborn starts a process in a session of its own, which ignores SIGTERM; both say their pids.
const stubborn = `setsid sh -c 'trap "" TERM; echo $$; sleep 1000 & wait; sleep 1000' & echo $$; `

// pids reads n of them from a command's output.
func pids(t *testing.T, out io.Reader, n int) (found []int) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for len(found) < n && lines.Scan() {
		pid, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		require.NoError(t, err, lines.Text())
		found = append(found, pid)
	}
	require.Len(t, found, n)
	return found
}

func allGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		assert.Eventually(t, func() bool { return !runs(pid) }, 10*time.Second, time.Millisecond, "process %d runs", pid)
	}
}

func TestACommandAndAllThatItStartedEndWhenTheParentOfItsKeeperIsKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "keeps", stubborn+`trap "" TERM; while :; do sleep 1000; done`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	started := pids(t, out, 2)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	allGone(t, started)
}

func TestWhatACommandLeavesEndsWithIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	cmd := kept("sh", "-c", stubborn+"sleep 0.2; exit 7")
	var said strings.Builder
	cmd.Stdout = &said
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit)
	assert.Equal(t, 7, exit.ExitCode(), "the keeper ends as its command did")
	allGone(t, pids(t, strings.NewReader(said.String()), 2))
}

func TestACommandThatIsAskedToEndMayDoSoByItself(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	for script, code := range map[string]int{
		`trap "exit 5" TERM; echo $$; while :; do sleep 0.01; done`: 5,
		`trap "" TERM; echo $$; while :; do sleep 0.01; done`:       128 + 9,
		`echo $$; exec sleep 1000`:                                  128 + 15,
	} {
		cmd := kept("sh", "-c", script)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		started := pids(t, out, 1)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		assert.Equal(t, code, exit.ExitCode(), script)
		allGone(t, started)
	}
}

func TestAKeeperSaysWhyItCannotStartItsCommand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	said, err := kept("no-such-engine").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 127, exit.ExitCode())
	assert.Contains(t, string(said), `"no-such-engine": executable file not found`)
}
