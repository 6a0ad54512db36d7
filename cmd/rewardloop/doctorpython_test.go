package main

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

const oneFunction = "reward: {custom_reward_function: {path: mine.py}}\nserver: {listen: \"127.0.0.1:0\"}\n"

// needPython names an interpreter for functions that need nothing but the standard library.
func needPython(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	found, err := exec.LookPath("python3")
	if err != nil || runtime.GOOS != "linux" {
		t.Skipf("SKIPPED: no Python functions without Linux and python3 on PATH: %v", err)
	}
	return found
}

func TestTheDoctorCallsAFunctionInPython(t *testing.T) {
	t.Parallel()
	interpreter := needPython(t)
	dir := t.TempDir()
	put(t, dir, "mine.py", []byte("def compute_score(solution_str):\n    return 1\n"))
	got, checks := examined(t, "-c", put(t, dir, "cfg.yaml", []byte(oneFunction)), "pool.python.interpreter="+interpreter, withoutModels(t))
	require.Equal(t, exitOK, got.code, got.stdout)
	c := checks["python"]
	require.True(t, c.Required)
	require.NotEqual(t, stateMissing, c.State, c.Detail)
	require.Contains(t, c.Detail, interpreter+", called a function")
	require.Equal(t, stateOK, checks["reward default"].State)
}

func TestTheDoctorMissesPythonOnlyWhereARewardNeedsIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	dir := t.TempDir()
	put(t, dir, "mine.py", []byte("def compute_score(solution_str):\n    return 1\n"))
	mine := put(t, dir, "cfg.yaml", []byte(oneFunction))
	other := put(t, dir, "other.yaml", []byte("reward: {custom_reward_function: {path: builtin://jpeg_compressibility}}\nserver: {listen: \"127.0.0.1:0\"}\n"))
	liar := put(t, dir, "liar", []byte("#!/bin/sh\necho 3.12\n"))
	require.NoError(t, exec.CommandContext(t.Context(), "chmod", "+x", liar).Run())
	for name, says := range map[string]string{
		filepath.Join(dir, "python"): "no such file",
		"/bin/false":                 "/bin/false: exit status 1",
		liar:                         "is not a Python interpreter",
	} {
		got, checks := examined(t, "-c", mine, "pool.python.interpreter="+name, withoutModels(t))
		require.Equal(t, exitFailure, got.code, got.stdout)
		require.True(t, checks["python"].Required)
		require.Equal(t, stateMissing, checks["python"].State)
		require.Contains(t, checks["python"].Detail, says)
	}
	got, checks := examined(t, "-c", other, "pool.python.interpreter="+filepath.Join(dir, "python"), withoutModels(t))
	require.Equal(t, exitOK, got.code, got.stdout)
	require.False(t, checks["python"].Required)
	require.Equal(t, stateMissing, checks["python"].State)
}

func TestTheDoctorShowsWhyAFunctionCannotBeImported(t *testing.T) {
	t.Parallel()
	interpreter := needPython(t)
	dir := t.TempDir()
	put(t, dir, "mine.py", []byte("import nothing_of_that_name\n"))
	got, checks := examined(t, "-c", put(t, dir, "cfg.yaml", []byte(oneFunction)), "pool.python.interpreter="+interpreter, withoutModels(t))
	require.Equal(t, exitFailure, got.code)
	require.NotEqual(t, stateMissing, checks["python"].State, "Python itself is well")
	require.Equal(t, stateMissing, checks["reward default"].State)
	require.Contains(t, checks["reward default"].Detail, "No module named 'nothing_of_that_name'")
	require.NotContains(t, checks["reward default"].Detail, "<frozen")
}
