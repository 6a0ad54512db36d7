package deploycheck_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/tools/deploycheck"
)

// deploy is the folder that is checked, root the repository's.
const (
	deploy = root + "/deploy"
	root   = "../.."
)

// binary is built once for all tests.
var binary = sync.OnceValues(func() (deploycheck.Binary, error) {
	if path := os.Getenv("REWARDLOOP_BIN"); path != "" {
		return deploycheck.Binary{Path: path}, nil
	}
	dir, err := os.MkdirTemp("", "rewardloop-bin-")
	if err != nil {
		return deploycheck.Binary{}, err
	}
	b := deploycheck.Binary{Path: filepath.Join(dir, "rewardloop")}
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
func rewardloop(t *testing.T) deploycheck.Binary {
	t.Helper()
	b, err := binary()
	require.NoError(t, err, "building rewardloop")
	return b
}

// checkLines holds command lines to the binary.
func checkLines(t *testing.T, lines []deploycheck.CommandLine) {
	t.Helper()
	require.NotEmpty(t, lines)
	for _, line := range lines {
		require.NoError(t, rewardloop(t).Check(t.Context(), line))
	}
}
