package scripts_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/executable"
)

func makefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	return string(text)
}

// targets are those that .PHONY declares, which is all of them.
func targets(t *testing.T) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindStringSubmatch(makefile(t))
	require.NotNil(t, m, "Makefile has no .PHONY line")
	return strings.Fields(m[1])
}

// runMake runs make as a person would, without what an outer make passes on.
func runMake(t *testing.T, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts make")
	}
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	cmd := exec.CommandContext(t.Context(), "make", args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "MAKE") || strings.HasPrefix(kv, "MFLAGS=")
	})
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "make %v: %s", args, out)
	return string(out)
}

func TestHelpNamesEveryTarget(t *testing.T) {
	t.Parallel()
	var listed []string
	for line := range strings.Lines(runMake(t, "help")) {
		if fields := strings.Fields(line); len(fields) > 1 {
			listed = append(listed, fields[0])
		}
	}
	assert.ElementsMatch(t, targets(t), listed)
	assert.Equal(t, runMake(t, "help"), runMake(t), "make without a target is make help")
}

func TestMakeNeverCallsSudo(t *testing.T) {
	t.Parallel()
	for _, target := range targets(t) {
		assert.NotContains(t, runMake(t, "-n", target), "sudo", "make -n %s", target)
	}
	scripts, err := filepath.Glob("scripts/*.sh")
	require.NoError(t, err)
	for _, path := range append(scripts, "Makefile", ".ci/run", "Dockerfile") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "sudo", path)
	}
}

func TestCleanAllRemovesEveryFolderThatGitIgnores(t *testing.T) {
	t.Parallel()
	ignored, err := os.ReadFile(".gitignore")
	require.NoError(t, err)
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^/(.*?)/?$`).FindAllSubmatch(ignored, -1) {
		want = append(want, string(m[1]))
	}
	script, err := os.ReadFile("scripts/clean-all.sh")
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^made=\((.*)\)$`).FindSubmatch(script)
	require.NotNil(t, m)
	assert.ElementsMatch(t, want, strings.Fields(string(m[1])))
}

// bareMachine is a copy of the set-up scripts and a PATH with little more than
// the tools they are written with: no compiler, no Tesseract. apt-get is a fake
// that notes how it was called.
type bareMachine struct {
	root, bin string
}

func newBareMachine(t *testing.T, uid string) bareMachine {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	m := bareMachine{root: t.TempDir(), bin: t.TempDir()}
	require.NoError(t, os.CopyFS(filepath.Join(m.root, "scripts"), os.DirFS("scripts")))
	for _, tool := range []string{"bash", "dirname", "mkdir", "tail", "cat"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Skipf("%s is not installed", tool)
		}
		require.NoError(t, os.Symlink(path, filepath.Join(m.bin, tool)))
	}
	m.fake(t, "id", "echo "+uid)
	m.fake(t, "apt-get", `echo "apt-get $*" >> "`+m.root+`/called"`)
	return m
}

func (m bareMachine) fake(t *testing.T, name, body string) {
	t.Helper()
	script := "#!" + filepath.Join(m.bin, "bash") + "\n" + body + "\n"
	executable.Write(t, filepath.Join(m.bin, name), script)
}

// setUp runs `deps.sh debian` and returns what it said and what it asked apt.
func (m bareMachine) setUp(t *testing.T, env ...string) (said, asked string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(m.bin, "bash"), filepath.Join(m.root, "scripts/deps.sh"), "debian")
	cmd.Env = append([]string{"PATH=" + m.bin}, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Run(), out.String())
	called, err := os.ReadFile(filepath.Join(m.root, "called"))
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	return out.String(), string(called)
}

func TestAsRootMissingPackagesAreInstalledAfterSayingSo(t *testing.T) {
	t.Parallel()
	said, asked := newBareMachine(t, "0").setUp(t)
	assert.Regexp(t, `(?m)^apt-get update`, asked)
	assert.Regexp(t, `(?m)^apt-get install .*-y.* tesseract-ocr`, asked)
	assert.Contains(t, said, "==> apt-get update")
	assert.Regexp(t, `==> apt-get install -y --no-install-recommends .*tesseract-ocr`, said)
	assert.Regexp(t, `tesseract-ocr +OCR program.* MB; Apache-2.0`, said, "what, how big, which licence")
}

func TestInstallZeroForbidsApt(t *testing.T) {
	t.Parallel()
	said, asked := newBareMachine(t, "0").setUp(t, "INSTALL=0")
	assert.Empty(t, asked)
	assert.Contains(t, said, "INSTALL=0")
}

func TestAnotherUserIsGivenTheLineAndTheSetUpGoesOn(t *testing.T) {
	t.Parallel()
	said, asked := newBareMachine(t, "1000").setUp(t)
	assert.Empty(t, asked)
	assert.Regexp(t, `(?m)^ +apt-get update && apt-get install -y --no-install-recommends .*tesseract-ocr`, said)
}

func TestAFailedInstallDoesNotStopTheSetUp(t *testing.T) {
	t.Parallel()
	m := newBareMachine(t, "0")
	m.fake(t, "apt-get", "echo no network >&2; exit 100")
	said, _ := m.setUp(t)
	assert.Contains(t, said, "no network")
	assert.Contains(t, said, "going on without")
}
