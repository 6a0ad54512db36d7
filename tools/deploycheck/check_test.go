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

// workshop is the folder in which binary builds; TestMain makes and removes it.
var workshop string

// binary is built once for all tests.
var binary = sync.OnceValues(func() (deploycheck.Binary, error) {
	if path := os.Getenv("REWARDLOOP_BIN"); path != "" {
		return deploycheck.Binary{Path: path}, nil
	}
	b := deploycheck.Binary{Path: filepath.Join(workshop, "rewardloop")}
	cmd := exec.Command("go", "build", "-o", b.Path, "./cmd/rewardloop")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	return b, cmd.Run()
})

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rewardloop-bin-")
	if err != nil {
		panic(err)
	}
	workshop = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// rewardloop returns the binary of this tree.
func rewardloop(t *testing.T) deploycheck.Binary {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it builds the program")
	}
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
