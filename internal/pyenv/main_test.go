package pyenv_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/internal/pywheel"
)

// TestMain has pip ask an index that is not there twice, and leaves no folder.
func TestMain(m *testing.M) {
	for _, name := range []string{"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"} {
		_ = os.Unsetenv(name)
	}
	_ = os.Setenv("PIP_RETRIES", "1")
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir := pipIn; dir != "" {
			_ = os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

// pipIn is where the pip of all tests lies, for TestMain to remove.
var pipIn string

// pip makes what resolves requirements once for all tests: that takes seconds.
var pip = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rewardloop-pyenv-*")
	if err != nil {
		return "", err
	}
	pipIn = dir
	// It has no package of that name, but pip is made by then.
	_, err = pyenv.Store{Dir: dir}.Make(context.Background(), pyenv.Spec{Requirements: "--no-index\nnone\n"}, pyenv.Options{})
	if _, statErr := os.Stat(filepath.Join(dir, ".pip")); statErr != nil {
		return "", err
	}
	return filepath.Join(dir, ".pip"), nil
})

// newStore is an empty store whose pip is made already.
func newStore(t *testing.T) pyenv.Store {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it makes Python environments")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("SKIPPED: no Python environments without python3 on PATH: %v", err)
	}
	made, err := pip()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(made, filepath.Join(dir, ".pip")))
	return pyenv.Store{Dir: dir}
}

// wheels are two packages that contradict each other, and the lines that find them.
func wheels(t *testing.T) (dir, find string) {
	t.Helper()
	dir = t.TempDir()
	find, err := pywheel.Contradictory(dir)
	require.NoError(t, err)
	return dir, find
}

// says runs a line of Python in an environment.
func says(t *testing.T, e pyenv.Env, code string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), e.Interpreter, "-c", code).CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}
