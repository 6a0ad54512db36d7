package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/deploy/check"
)

// deploy is the folder that is checked, root the repository's.
const (
	deploy = ".."
	root   = "../.."
)

// binary is built once for all tests.
var binary = sync.OnceValues(func() (check.Binary, error) {
	if path := os.Getenv("REWARDLOOP_BIN"); path != "" {
		return check.Binary{Path: path}, nil
	}
	dir, err := os.MkdirTemp("", "rewardloop-bin-")
	if err != nil {
		return check.Binary{}, err
	}
	b := check.Binary{Path: filepath.Join(dir, "rewardloop")}
	cmd := exec.Command("go", "build", "-o", b.Path, "./cmd/rewardloop")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	return b, cmd.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if b, err := binary(); err == nil && os.Getenv("REWARDLOOP_BIN") == "" {
		_ = os.RemoveAll(filepath.Dir(b.Path))
	}
	os.Exit(code)
}

// rewardloop returns the binary of this tree.
func rewardloop(t *testing.T) check.Binary {
	t.Helper()
	b, err := binary()
	require.NoError(t, err, "building rewardloop")
	return b
}

// checkLines holds command lines to the binary.
func checkLines(t *testing.T, lines []check.CommandLine) {
	t.Helper()
	require.NotEmpty(t, lines)
	for _, line := range lines {
		require.NoError(t, rewardloop(t).Check(t.Context(), line))
	}
}
