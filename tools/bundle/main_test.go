package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// static builds the program as it travels.
func static(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it builds the program")
	}
	path := filepath.Join(t.TempDir(), "bundle")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// alone runs a program with an empty environment in an empty folder.
func alone(t *testing.T, program string, args ...string) (said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env, cmd.Dir = []string{}, t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestABundleIsJoinedAndStartedWhereNothingIs(t *testing.T) {
	t.Parallel()
	program := static(t)
	if f, err := elf.Open(program); err == nil { // elsewhere than on Linux it is no ELF
		for _, p := range f.Progs {
			require.NotEqual(t, elf.PT_INTERP, p.Type, "the program wants a loader")
		}
		require.NoError(t, f.Close())
	}
	stage, parts := t.TempDir(), filepath.Join(t.TempDir(), "parts")
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	for name, data := range map[string][]byte{"bin/program": text, "lib/libfake.so": []byte("not a library")} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(stage, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(stage, name), data, 0o755))
	}
	said, code := alone(t, program, "pack", stage, parts, "small")
	require.Zero(t, code, said)
	require.NoError(t, os.RemoveAll(stage))

	root := filepath.Join(t.TempDir(), "root")
	said, code = alone(t, program, "join", parts, root)
	require.Zero(t, code, said)
	require.Contains(t, said, "joined in "+root)
	said, code = alone(t, filepath.Join(root, "bin", "program"), "check", parts)
	require.Zero(t, code, said)
	require.Contains(t, said, "1 parts are whole")

	require.NoError(t, os.Remove(filepath.Join(parts, "small.000")))
	said, code = alone(t, program, "join", parts, filepath.Join(t.TempDir(), "root"))
	require.Equal(t, 1, code)
	require.Contains(t, said, "a part is missing: small.000")
}

func TestWhatItDoesNotUnderstandItSays(t *testing.T) {
	t.Parallel()
	program := static(t)
	said, code := alone(t, program, "joins", "a", "b")
	require.Equal(t, 2, code)
	require.Contains(t, said, "usage: bundle pack")
	said, code = alone(t, program, "thin", "hopper", program)
	require.Equal(t, 1, code)
	require.Contains(t, said, `architecture "hopper", want sm_`)
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	library := filepath.Join(t.TempDir(), "lib.so") // a program has no fat binary either
	require.NoError(t, os.WriteFile(library, text, 0o600))
	said, code = alone(t, program, "thin", "sm_90", library)
	require.Zero(t, code, said)
	require.Contains(t, said, "0.0 MiB for others are zeroed")
}
