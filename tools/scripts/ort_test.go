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

// ortScript runs scripts/ort.sh in a clone of its own, with a Python that does what
// pip says when pip is asked to download, and without npm.
func ortScript(t *testing.T, pip string, env ...string) (said, library string, failed bool) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	// What python3 is on PATH may be a script that chooses one.
	out, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skipf("python3 is not installed: %v", err)
	}
	python := strings.TrimSpace(string(out))
	root, bin := t.TempDir(), t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "scripts"), os.DirFS("scripts")))
	tools := []string{"bash", "sh", "uname", "dirname", "mkdir", "mktemp", "rm", "mv", "chmod", "sha256sum", "grep", "tail", "cut", "timeout", "sleep", "flock"}
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Skipf("%s is not installed", tool)
		}
		require.NoError(t, os.Symlink(path, filepath.Join(bin, tool)))
	}
	fake := filepath.Join(bin, "fake-python")
	script := "#!/bin/sh\ncase \"$*\" in\n'-m pip --version') exit 0 ;;\n'-m pip download '*)\n" +
		"while [ $# -gt 1 ]; do [ \"$1\" = --dest ] && into=$2; shift; done\n" + pip + "\n;;\nesac\nexec '" + python + "' \"$@\"\n"
	executable.Write(t, fake, script)
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "scripts", "ort.sh"))
	cmd.Env = append([]string{"PATH=" + bin, "PYTHON=" + fake}, env...)
	out, err = cmd.CombinedOutput()
	return string(out), filepath.Join(root, ".cache/ort/1.29.0/libonnxruntime.so.1.29.0"), err != nil
}

func TestWithoutPipAndNpmMakeOrtSaysWhatHelps(t *testing.T) {
	t.Parallel()
	said, library, failed := ortScript(t, "echo 'ERROR: no network' >&2; exit 1")
	assert.True(t, failed)
	assert.Contains(t, said, "pip download onnxruntime==1.29.0: ERROR: no network")
	assert.Contains(t, said, "npm: it is not installed")
	assert.Contains(t, said, "ONNXRUNTIME_SHARED_LIBRARY_PATH=")
	assert.NoFileExists(t, library)
}

func TestALibraryWithAnotherSumIsNotUsed(t *testing.T) {
	t.Parallel()
	wheel := `"$(dirname "$0")/fake-python" -c '
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/onnxruntime.whl", "w") as z:
    for name in ("capi/libonnxruntime.so.1.29.0", "capi/libonnxruntime_providers_shared.so", "LICENSE", "ThirdPartyNotices.txt"):
        z.writestr("onnxruntime/" + name, "not it")
' "$into"; exit`
	said, library, failed := ortScript(t, wheel)
	assert.True(t, failed)
	assert.Contains(t, said, "has another sum than the known one: it is not used")
	assert.NoFileExists(t, library)
}

func TestAWheelThatIsNoneIsNamed(t *testing.T) {
	t.Parallel()
	said, library, failed := ortScript(t, `echo garbage > "$into/onnxruntime.whl"; exit`)
	assert.True(t, failed)
	assert.Contains(t, said, "the wheel that pip brought: zipfile.BadZipFile")
	assert.NoFileExists(t, library)
}

func TestADownloadThatHangsIsEnded(t *testing.T) {
	t.Parallel()
	said, _, failed := ortScript(t, "exec sleep 600", "ORT_TIMEOUT=1")
	assert.True(t, failed)
	assert.Contains(t, said, "not done after 1 s (ORT_TIMEOUT)")
}

func TestALibraryThatTheEnvironmentNamesIsTakenAsItIs(t *testing.T) {
	t.Parallel()
	mine := filepath.Join(t.TempDir(), "libonnxruntime.so")
	said, _, failed := ortScript(t, "exit 1", "ONNXRUNTIME_SHARED_LIBRARY_PATH="+mine)
	assert.True(t, failed)
	assert.Contains(t, said, mine+", which is not there")
	require.NoError(t, os.WriteFile(mine, nil, 0o600))
	said, _, failed = ortScript(t, "exit 1", "ONNXRUNTIME_SHARED_LIBRARY_PATH="+mine)
	assert.False(t, failed, said)
	assert.NotContains(t, said, "downloading")
}
