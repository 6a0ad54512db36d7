package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/executable"
)

// makeTest runs scripts/test.sh in a folder that holds the scripts alone, with a go that
// answers what its case statement says and succeeds otherwise.
func makeTest(t *testing.T, cases string) (said string, code int) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	root, bin := t.TempDir(), t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "scripts"), os.DirFS("scripts")))
	require.NoError(t, os.MkdirAll(filepath.Join(root, ".ci"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, ".ci", "run"), nil, 0o600))
	put := func(name, body string) {
		executable.Write(t, filepath.Join(bin, name), "#!/usr/bin/env bash\n"+body+"\n")
	}
	put("gofmt", "exit 0")
	put("gotestsum", "echo DONE 1 tests")
	put("go", "case \"$*\" in\n*'tool -n gotestsum') echo "+filepath.Join(bin, "gotestsum")+" ;;\n'list -C tools '*) echo example.org/tools/x ;;\n"+cases+"\nesac")
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "scripts", "test.sh"))
	cmd.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "GO=go", "REQUIRE_ORT=0", "MIN_FREE_GB=0", "PYTHON=false", "ORT_TIMEOUT=1", "VERSION=v1",
		"ONNXRUNTIME_SHARED_LIBRARY_PATH="+filepath.Join(bin, "none"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestMakeTestEndsWithTheLastLinesOfWhatFailedFirstAndTheNamesOfAllThatFailed(t *testing.T) {
	t.Parallel()
	// Two steps fail; the Go tests, which say more, do not.
	said, code := makeTest(t, "'-C tools build ./...') echo 'tools/x.go:1:1: syntax error' >&2; exit 1 ;;\n'build ./...') echo 'it does not build'; exit 1 ;;")
	require.Equal(t, 1, code, said)
	_, end, found := strings.Cut(said, "==> what failed first: ")
	require.True(t, found, said)
	lines := strings.Split(strings.TrimSpace(end), "\n")
	require.GreaterOrEqual(t, len(lines), 4, end)
	assert.Equal(t, "go build of tools; its last lines, and all of it in .cache/test/5.log:", lines[0])
	assert.Equal(t, "      tools/x.go:1:1: syntax error", lines[1])
	assert.Equal(t, []string{"==> FAILED: go build of tools", "==> FAILED: go build without tags"}, lines[2:4])
	assert.Equal(t, 1, strings.Count(end, "syntax error"), "the first failure alone is repeated")
}

func TestMakeTestFailsWherePackagesHoldNoTest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "scripts"), os.DirFS("scripts")))
	for said, want := range map[string]int{"DONE 0 tests in 0.1s": 1, "DONE 12 tests, 1 skipped in 0.1s": 0} {
		bin := t.TempDir()
		sum := filepath.Join(bin, "gotestsum")
		executable.Write(t, sum, "#!/bin/sh\necho '"+said+"'\n")
		executable.Write(t, filepath.Join(bin, "go"), "#!/bin/sh\ncase \"$*\" in *gotestsum) echo "+sum+" ;; esac\n")
		cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "scripts", "gotest.sh"))
		cmd.Env = append(os.Environ(), "GO="+filepath.Join(bin, "go"))
		out, err := cmd.CombinedOutput()
		if want == 0 {
			require.NoError(t, err, "%s", out)
			continue
		}
		require.Error(t, err, "%s", out)
		assert.Contains(t, string(out), "no test was run")
	}
}

// A disk that is full ends the tests with errors that say nothing of it.
func TestMakeTestSaysAtItsStartThatADiskHasNoRoom(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	root, bin, cleaned := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "cleaned")
	require.NoError(t, os.CopyFS(filepath.Join(root, "scripts"), os.DirFS("scripts")))
	require.NoError(t, os.CopyFS(filepath.Join(root, ".ci"), os.DirFS(".ci")))
	put := func(name, body string) {
		executable.Write(t, filepath.Join(bin, name), "#!/bin/sh\n"+body+"\n")
	}
	put("df", `echo "Filesystem 1024-blocks Used Available Capacity Mounted on"; echo "disk 1 1 7340032 99% /"`)
	put("go", `case "$*" in "env GOCACHE") echo /cache ;; "clean -cache") touch `+cleaned+` ;; esac`)
	put("make", "exec bash scripts/test.sh")
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(root, ".ci", "run"))
	cmd.Env = append(os.Environ(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "GO=go")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "==> ERROR: 7 GB are free on the disk of /cache, and the tests need 15: ")
	assert.FileExists(t, cleaned, "what other builds left there goes first")
}

func TestATestProgramThatDiesIsNotReportedAsAThousandTests(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	root, bin := t.TempDir(), t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "scripts"), os.DirFS("scripts")))
	var report strings.Builder
	report.WriteString("FAIL  loop (1s)\n\n=== Failed\n")
	for range 1000 {
		report.WriteString("=== FAIL: loop TestThatWaits (unknown)\n=== PAUSE TestThatWaits\n\n")
	}
	report.WriteString("=== FAIL: loop TestThatHangs (unknown)\npanic: test timed out after 1s\n\trunning tests:\n\t\tTestThatHangs (1s)\n\nDONE 1001 tests, 1001 failures in 1s\n")
	require.NoError(t, os.WriteFile(filepath.Join(bin, "report"), []byte(report.String()), 0o600))
	sum := filepath.Join(bin, "gotestsum")
	executable.Write(t, sum, "#!/bin/sh\ncat "+filepath.Join(bin, "report")+"\nexit 1\n")
	executable.Write(t, filepath.Join(bin, "go"), "#!/bin/sh\ncase \"$*\" in *gotestsum) echo "+sum+" ;; esac\n")
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "scripts", "gotest.sh"))
	cmd.Env = append(os.Environ(), "GO="+filepath.Join(bin, "go"))
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	said := string(out)
	assert.NotContains(t, said, "TestThatWaits")
	assert.Contains(t, said, "running tests:\n\t\tTestThatHangs (1s)")
	assert.Contains(t, said, "=== FAIL: loop: 1000 more tests had not ended when its program did")
	assert.Contains(t, said, "DONE 1001 tests")
}
