package store_test

import (
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/store"
)

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

const crashPath, crashRows = "REWARDLOOP_TEST_CRASH_PATH", "REWARDLOOP_TEST_CRASH_ROWS"

// crash has another process take so many results and kill itself. It returns how to read the number that the next process says.
func crash(t *testing.T, path string, rows int) (lost func(log string) int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestTheProcessThatKillsItself$")
	cmd.Env = append(os.Environ(), crashPath+"="+path, crashRows+"="+strconv.Itoa(rows))
	out, err := cmd.CombinedOutput()
	require.ErrorContains(t, err, "killed", "%s", out)
	said := regexp.MustCompile(`the store lacks results[^"]*" results=(\d+)`)
	return func(log string) int {
		m := said.FindStringSubmatch(log)
		if m == nil {
			return 0
		}
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		return n
	}
}

func TestTheProcessThatKillsItself(t *testing.T) { //nolint:paralleltest // it is a process of its own
	path := os.Getenv(crashPath)
	if path == "" {
		t.Skip("it is started by TestWhatWasTakenAndNotWrittenIsSaidByTheNextProcess")
	}
	rows, err := strconv.Atoi(os.Getenv(crashRows))
	require.NoError(t, err)
	s, err := store.Open(t.Context(), store.Config{}, store.Options{Path: path})
	require.NoError(t, err)
	for n := range rows {
		rec, _ := kept(t, "a", 1, n, nil)
		s.Put(rec)
		if n == rows/2 {
			await(t, s, 1)
		}
	}
	p, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	select {}
}
