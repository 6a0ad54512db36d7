package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAProgramThatAWheelInstalledRunsItsEnvironmentsPython(t *testing.T) {
	t.Parallel()
	said, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output() // what is on PATH may be a script
	if err != nil {
		t.Skipf("SKIPPED: no Python: %v", err)
	}
	python := strings.TrimSpace(string(said))
	folder := t.TempDir()
	programs := filepath.Join(folder, "bin")
	require.NoError(t, os.Mkdir(programs, 0o700))
	require.NoError(t, os.Symlink(python, filepath.Join(programs, "python3")))
	program := filepath.Join(programs, "rewardloop")
	copyProgram(t, binary(t), program)
	put(t, folder, "reward.py", []byte("import sys\n\ndef compute_score(solution_str):\n    print('runs in', sys.argv[0], sys.executable)\n    return 1.0\n"))
	tried := func(env ...string) string {
		cmd := exec.CommandContext(t.Context(), program, "try", "reward.py", "--response", "a")
		cmd.Dir, cmd.Env = folder, append(without(os.Environ(), "REWARDLOOP_PYTHON"), env...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	own := filepath.Join(programs, "python3")
	assert.NotContains(t, tried(), own, "a folder with a Python is no environment")
	put(t, folder, "pyvenv.cfg", []byte("home = "+filepath.Dir(python)+"\n"))
	assert.Contains(t, tried(), own)
	assert.NotContains(t, tried("REWARDLOOP_PYTHON="+python), own, "whoever names one gets it")
}

// copyProgram copies a program to where it may be run.
func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	if os.Link(from, to) == nil {
		return
	}
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700) //nolint:gosec // a program
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}

// without leaves a variable out of an environment.
func without(env []string, name string) (rest []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, name+"=") {
			rest = append(rest, v)
		}
	}
	return rest
}
