package subprocess_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// confined runs a command of the shell in confinement and returns what it says, errors included, and its status.
func confined(t *testing.T, c subprocess.Confinement, script string, inherits ...*os.File) (text string, status int) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	command, err := subprocess.ConfineCommand(c, "/bin/sh", "-c", script)
	require.NoError(t, err)
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), command[0])
	cmd.Args, cmd.Env, cmd.ExtraFiles = command, []string{"LEAKED=yes"}, inherits
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	return out.String(), cmd.ProcessState.ExitCode()
}

func usual() subprocess.Confinement {
	return subprocess.Confinement{Folders: []string{"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/no/such/folder"}, Memory: 1 << 30, CPUSeconds: 10, Files: 32}
}

// landlock skips a test where the kernel has none.
func landlock(t *testing.T) {
	t.Helper()
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 {
		t.Skipf("SKIPPED: this kernel has no Landlock: %v", errno)
	}
}

func TestAConfinedCommandOpensNoFileButThoseOfItsFolders(t *testing.T) {
	t.Parallel()
	landlock(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "canary")
	require.NoError(t, os.WriteFile(secret, []byte("the canary sings"), 0o600))
	text, status := confined(t, usual(), "cat "+secret)
	assert.NotContains(t, text, "sings")
	assert.Contains(t, text, "Permission denied")
	assert.NotZero(t, status)
	text, _ = confined(t, usual(), "ls "+dir+"; echo x > "+filepath.Join(dir, "new")+"; cat /etc/passwd /proc/1/environ")
	assert.NotContains(t, text, "canary")
	assert.Equal(t, 4, strings.Count(strings.ToLower(text), "permission denied"), "%s", text)
	assert.NoFileExists(t, filepath.Join(dir, "new"))
	free := usual()
	free.Folders = append(free.Folders, dir)
	text, _ = confined(t, free, "cat "+secret)
	assert.Equal(t, "the canary sings", text)
}

func TestAConfinedCommandReadsWhatItInherits(t *testing.T) {
	t.Parallel()
	fd, err := unix.MemfdCreate("given", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	file := os.NewFile(uintptr(fd), "given")
	defer file.Close()
	_, err = file.WriteString("for you")
	require.NoError(t, err)
	text, _ := confined(t, usual(), "cat /proc/self/fd/3; env", file)
	assert.Contains(t, text, "for you")
	assert.NotContains(t, text, "LEAKED")
}

func TestAConfinedCommandReachesNoNetwork(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("SKIPPED: no bash on PATH")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	script := bash + " -c 'exec 9<>/dev/tcp/127.0.0.1/" + port + " && echo connected'"
	text, status := confined(t, usual(), script)
	assert.NotContains(t, text, "connected")
	assert.Contains(t, text, "Operation not permitted")
	assert.NotZero(t, status)
	out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "connected\n", string(out), "and outside it does")
}

func TestAConfinedCommandHasItsLimits(t *testing.T) {
	t.Parallel()
	text, _ := confined(t, usual(), "ulimit -c; ulimit -f; ulimit -t; ulimit -n; ulimit -v")
	assert.Equal(t, "0\n0\n10\n32\n1048576\n", text)
	text, _ = confined(t, usual(), "kill -9 $PPID || echo cannot")
	assert.Contains(t, text, "cannot")
}

func TestAConfinementThatCannotBeIsToldAndRunsNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	command, err := subprocess.ConfineCommand(usual(), "/no/such/program")
	require.NoError(t, err)
	for want, args := range map[string][]string{"no such file": command, "invalid character": {command[0], "child", "confine", "garbage", "/bin/echo"}} {
		cmd := exec.CommandContext(t.Context(), command[0])
		cmd.Args = args
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		assert.Equal(t, 126, cmd.ProcessState.ExitCode())
		assert.Contains(t, string(out), want)
	}
}
