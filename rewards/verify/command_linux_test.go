package verify_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/verify"
	"github.com/rewardloop/rewardloop/testkit/executable"
)

// shell makes a verifier whose program is a shell script; the sample is on its stdin.
func shell(tb testing.TB, o options, script string, args ...string) rewards.Verifier {
	tb.Helper()
	if testing.Short() {
		tb.Skip("SKIPPED: -short: it starts processes")
	}
	all := options{"argv": append([]string{"sh", "-c", script, "sh"}, args...)}
	maps.Copy(all, o)
	v, err := verify.New("command", all.raw(tb), nil)
	require.NoError(tb, err)
	return v
}

// runs reports whether a process exists and is no zombie; an orphan may stay one
// where nobody reaps it.
func runs(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// requireDead reads the process numbers that a program noted and checks that none of
// them is left, without waiting.
func requireDead(t *testing.T, notes string, least int) {
	t.Helper()
	text, err := os.ReadFile(notes)
	require.NoError(t, err)
	pids := strings.Fields(string(text))
	require.GreaterOrEqual(t, len(pids), least)
	for _, field := range pids {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		require.False(t, runs(pid), "process %d outlived Verify", pid)
	}
}

func TestACommandIsGivenTheSampleWithoutMedia(t *testing.T) {
	t.Parallel()
	result, err := shell(t, nil, `cat`).Verify(t.Context(), sample())
	require.NoError(t, err)
	assert.JSONEq(t, `{"id":"s1","index":7,"data_source":"spider","prompt":"how many <singers>?","response":"12 & more",
		"ground_truth":{"db":"concerts","n":12},"extra_info":{"caption":"a \"fox\"","n":3.50,"deep":{"k":[1,{"x":null}]}}}`, string(result))
}

func TestACommandMayWriteText(t *testing.T) {
	t.Parallel()
	result, err := shell(t, options{"output": "text"}, `printf 'a "b" <c>\n\377'`).Verify(t.Context(), sample())
	require.NoError(t, err)
	assert.Equal(t, `"a \"b\" <c>\n�"`, string(result))
}

func TestArgumentsReachTheCommandAsTheyAre(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a process")
	}
	hostile := `$(touch x) ; "quoted" 'and' *`
	result, err := shell(t, options{"output": "text"}, `printf %s "$1"`, hostile).Verify(t.Context(), sample())
	require.NoError(t, err)
	var text string
	require.NoError(t, json.Unmarshal(result, &text))
	assert.Equal(t, hostile, text)
}

func TestACommandThatDoesNotReadItsInputIsAnsweredAllTheSame(t *testing.T) {
	t.Parallel()
	s := sample()
	s.Response = strings.Repeat("x", 1<<20) // more than a pipe holds
	result, err := shell(t, nil, `echo 1`).Verify(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, "1", string(result))
}

func TestAFaultyCommandIsAFailureOfItsClass(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script string
		class  rewards.Class
		says   []string
	}{
		"ends with a status":  {`echo 1; echo "no such table: x" >&2; exit 3`, rewards.Internal, []string{"status 3", "no such table: x"}},
		"garbage":             {`printf '{"match": tr\377\000'`, rewards.Internal, []string{"want JSON", "match"}},
		"nothing":             {`true`, rewards.Internal, []string{"nothing on stdout, want JSON"}},
		"two values":          {`echo 1 2`, rewards.Internal, []string{"want JSON"}},
		"NaN":                 {`echo NaN`, rewards.Internal, []string{"want JSON"}},
		"a crash":             {`kill -SEGV $$`, rewards.Crashed, []string{"SIGSEGV"}},
		"killed from outside": {`kill -KILL $$`, rewards.Crashed, []string{"SIGKILL"}},
		"more than 64 KiB":    {`head -c 65537 /dev/zero`, rewards.Internal, []string{"more than 65536 bytes on stdout"}},
		"a gigabyte":          {`head -c 1073741824 /dev/zero; sleep 600`, rewards.Internal, []string{"more than 65536 bytes on stdout"}},
		"endless errors":      {`head -c 268435456 /dev/zero >&2; echo the cause >&2; exit 1`, rewards.Internal, []string{"status 1", "the cause"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := shell(t, nil, tt.script).Verify(t.Context(), sample())
			fails(t, tt.class, result, err, tt.says...)
		})
	}
}

func TestACommandIsHeldToItsLimits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options options
		script  string
		class   rewards.Class
		says    string
	}{
		"memory":     {options{"memory_mb": 16}, `exec dd if=/dev/zero of=/dev/null bs=64M count=1`, rewards.Internal, "memory"},
		"CPU time":   {options{"cpu_seconds": 1}, `while :; do :; done`, rewards.Timeout, "cpu_seconds = 1"},
		"a file":     {options{"file_mb": 1}, `exec head -c 2000000 /dev/zero > x`, rewards.Internal, "file_mb = 1"},
		"open files": {options{"files": 8}, `ulimit -n 9 && echo 1`, rewards.Internal, "status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := shell(t, tt.options, `cat >/dev/null; `+tt.script).Verify(t.Context(), sample())
			fails(t, tt.class, result, err, tt.says)
		})
	}
}

func TestTheLimitsStandBeforeTheSampleIsRead(t *testing.T) {
	t.Parallel()
	v := shell(t, options{"output": "text", "memory_mb": 300, "cpu_seconds": 11, "files": 33, "file_mb": 2}, `read x; ulimit -v; ulimit -t; ulimit -n; ulimit -f; ulimit -c`)
	for range 20 {
		result, err := v.Verify(t.Context(), sample())
		require.NoError(t, err)
		assert.Equal(t, `"307200\n11\n33\n4096\n0\n"`, string(result))
	}
}

func TestACommandThatHangsIsKilledWithAllItStarted(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"itself":                     `echo $$ >> "$1"; exec sleep 600`,
		"its child":                  `echo $$ >> "$1"; sleep 600 & echo $! >> "$1"; wait`,
		"ignores signals":            `trap "" TERM INT HUP; echo $$ >> "$1"; while :; do sleep 600; done`,
		"a child of its own group":   `set -m; sleep 600 & echo $! >> "$1"; sleep 600`,
		"a child of its own session": `setsid sleep 600 & echo $! >> "$1"; sleep 600`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			notes := filepath.Join(t.TempDir(), "pids")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			v := shell(t, options{"run_timeout": "600s"}, script+"; echo 1", notes)
			done := make(chan error, 1)
			go func() {
				_, err := v.Verify(ctx, sample())
				done <- err
			}()
			require.Eventually(t, func() bool {
				text, err := os.ReadFile(notes)
				return err == nil && strings.HasSuffix(string(text), "\n")
			}, 10*time.Second, time.Millisecond)
			cancel()
			fails(t, rewards.Cancelled, nil, <-done, "was killed")
			requireDead(t, notes, 1)
		})
	}
}

func TestRunTimeoutEndsARun(t *testing.T) {
	t.Parallel()
	notes := filepath.Join(t.TempDir(), "pids")
	began := time.Now()
	result, err := shell(t, options{"run_timeout": "200ms"}, `echo $$ > "$1"; echo still thinking >&2; sleep 600`, notes).Verify(t.Context(), sample())
	fails(t, rewards.Timeout, result, err, "was killed", "still thinking")
	assert.Less(t, time.Since(began), 60*time.Second)
	requireDead(t, notes, 1)
}

func TestWhatACommandLeavesBehindDoesNotOutliveTheAnswer(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"holding the output":  `sleep 600 & echo $! >> "$1"; echo 1`,
		"with closed output":  `sleep 600 >/dev/null 2>&1 </dev/null & echo $! >> "$1"; echo 1`,
		"no environment":      `env -i sleep 600 >/dev/null 2>&1 & echo $! >> "$1"; echo 1`,
		"in its own session":  `setsid sleep 600 & echo $! >> "$1"; echo 1`,
		"a daemon, twice":     `(setsid sh -c 'setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $! >> "$0"' "$1"); echo 1`,
		"a hundred":           `i=0; while [ $i -lt 100 ]; do setsid sleep 600 >/dev/null 2>&1 & echo $! >> "$1"; i=$((i+1)); done; echo 1`,
		"that starts another": `setsid sh -c 'while :; do sleep 0.01; done' >/dev/null 2>&1 & echo $! >> "$1"; echo 1`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			notes := filepath.Join(t.TempDir(), "pids")
			result, err := shell(t, nil, script, notes).Verify(t.Context(), sample())
			require.NoError(t, err)
			assert.Equal(t, "1", string(result))
			requireDead(t, notes, 1)
		})
	}
}

func TestAProcessThatHidesAndHoldsTheOutputIsReported(t *testing.T) {
	t.Parallel()
	notes := filepath.Join(t.TempDir(), "pids")
	result, err := shell(t, nil, `env -i setsid sleep 600 & echo $! >> "$1"; sleep 0.3; echo 1`, notes).Verify(t.Context(), sample())
	text, readErr := os.ReadFile(notes)
	require.NoError(t, readErr)
	pid, atoiErr := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, atoiErr)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	fails(t, rewards.Internal, result, err, "left a process running")
}

func TestACommandHasAFolderOfItsOwnThatIsRemoved(t *testing.T) {
	t.Parallel()
	v := shell(t, options{"output": "text"}, `echo x > file; mkdir -p deep/er; echo y > deep/er/file; chmod 0 deep/er; chmod 500 deep
		[ "$PWD" = "$HOME" ] && [ "$PWD" = "$TMPDIR" ] && printf %s "$PWD"`)
	first, err := v.Verify(t.Context(), sample())
	require.NoError(t, err)
	second, err := v.Verify(t.Context(), sample())
	require.NoError(t, err)
	assert.NotEqual(t, string(first), string(second))
	for _, result := range []json.RawMessage{first, second} {
		var folder string
		require.NoError(t, json.Unmarshal(result, &folder))
		require.NoDirExists(t, folder)
		require.DirExists(t, filepath.Dir(folder))
	}
}

func TestACommandHasNoEnvironmentButWhatIsNamed(t *testing.T) {
	t.Setenv("REWARDLOOP_TEST_NAMED", "a b")
	t.Setenv("REWARDLOOP_TEST_SECRET", "hush")
	names := func(o options) []string {
		o["output"] = "text"
		result, err := shell(t, o, `/usr/bin/env`).Verify(t.Context(), sample())
		require.NoError(t, err)
		var text string
		require.NoError(t, json.Unmarshal(result, &text))
		var out []string
		for line := range strings.Lines(text) {
			name, _, _ := strings.Cut(line, "=")
			if name != "_" && name != "SHLVL" && name != "OLDPWD" && name != "PWD" { // the shell's own
				out = append(out, name)
			}
		}
		return out
	}
	assert.ElementsMatch(t, []string{"REWARDLOOP_VERIFY", "HOME", "TMPDIR", "LANG", "PATH"}, names(options{}))
	assert.ElementsMatch(t, []string{"REWARDLOOP_VERIFY", "HOME", "TMPDIR", "LANG", "REWARDLOOP_TEST_NAMED"}, names(options{"env": []string{"REWARDLOOP_TEST_NAMED"}}))
}

func TestNoMoreRunsThanAllowed(t *testing.T) {
	t.Parallel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	v := shell(t, options{"max_concurrent": 1}, `cat "$1"`, fifo) // ends when the fifo does
	first := make(chan error, 1)
	go func() {
		_, err := v.Verify(t.Context(), sample())
		first <- err
	}()
	writer, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the first run reads
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	result, err := v.Verify(ctx, sample())
	fails(t, rewards.Timeout, result, err, "waiting for one of 1 runs")
	_, err = writer.WriteString("1")
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	require.NoError(t, <-first)
}

func TestRunsBesideEachOtherDoNotTouchEachOther(t *testing.T) {
	t.Parallel()
	v := shell(t, options{"max_concurrent": 4}, `echo $$ >> "$1"; setsid sleep 600 >/dev/null 2>&1 & cat`, filepath.Join(t.TempDir(), "pids"))
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			s := &rewards.Sample{ID: fmt.Sprint(i)}
			result, err := v.Verify(t.Context(), s)
			if assert.NoError(t, err) {
				assert.JSONEq(t, fmt.Sprintf(`{"id":"%d"}`, i), string(result))
			}
		})
	}
	wg.Wait()
}

// TestAForkBombIsBounded forks as often as it may and at most 3000 times. Root and
// others who may exceed limits are exempt from that of processes, so that root runs
// the test again as nobody.
func TestAForkBombIsBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	if os.Getuid() == 0 {
		again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestAForkBombIsBounded$", "-test.v")
		again.Dir = "/"
		again.Env = []string{"PATH=" + filepath.Dir(python(t)) + ":/usr/bin:/bin", "TMPDIR=/tmp", "REWARDLOOP_PYTHON=" + python(t)}
		again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := again.CombinedOutput()
		if strings.Contains(string(out), "SKIPPED") {
			t.Skipf("SKIPPED as nobody: %s", out)
		}
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "--- PASS: TestAForkBombIsBounded")
		return
	}
	interpreter := "/usr/bin/python3"
	if _, err := os.Stat(interpreter); err != nil {
		interpreter = python(t)
	}
	notes := filepath.Join(t.TempDir(), "pids")
	raw := options{"processes": 20, "run_timeout": "60s", "argv": []string{interpreter, "-c", `
import os, sys, time
sys.stdin.read()
with open(sys.argv[1], "w") as notes:
    for n in range(3000):
        try:
            pid = os.fork()
        except BlockingIOError:
            break
        if pid == 0:
            os.setsid()
            time.sleep(600)
        notes.write(f"{pid}\n")
    else:
        n = 3000
print(n)
`, notes}}.raw(t)
	v, err := verify.New("command", raw, nil)
	require.NoError(t, err)
	result, err := v.Verify(t.Context(), sample())
	require.NoError(t, err)
	n, err := strconv.Atoi(string(result))
	require.NoError(t, err)
	assert.Less(t, n, 3000, "the limit of processes does not hold")
	t.Logf("%d forks of 3000", n)
	requireDead(t, notes, n)
}

// parent is the life of a server that is killed while a program hangs.
func parent() {
	ready, err := os.MkdirTemp("", "rewardloop-test-")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	raw := fmt.Sprintf(`{"argv": ["sh", "-c", "echo $$ > \"$1/now\"; mv \"$1/now\" \"$1/pid\"; exec sleep 600", "sh", %q]}`, ready)
	v, err := verify.New("command", json.RawMessage(raw), nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() { _, _ = v.Verify(context.Background(), &rewards.Sample{ID: "s"}) }()
	for {
		if text, err := os.ReadFile(filepath.Join(ready, "pid")); err == nil {
			fmt.Print(string(text))
			_ = os.RemoveAll(ready)
			select {}
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAHangingCommandDiesWithTheServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "parent")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(said))
	require.NoError(t, err, said)
	require.True(t, runs(pid))
	require.NoError(t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return !runs(pid) }, 10*time.Second, time.Millisecond)
}

func TestCommandOptionsThatAreWrongAreAllNamed(t *testing.T) {
	t.Parallel()
	raw := `{"argv": ["./tool", "a\u0000b"], "output": "xml", "env": ["A=B", "REWARDLOOP_TEST_UNSET"], "run_timeout": 0, "max_concurrent": 0,
		"memory_mb": -1, "cpu_seconds": -1, "files": 2, "file_mb": "x", "processes": 0, "shell": true}`
	_, err := verify.New("command", json.RawMessage(raw), nil)
	require.Error(t, err)
	for _, says := range []string{
		"argv[0]: \"./tool\": give the full path", "argv[1]", "output", "env[0]", "env[1]: REWARDLOOP_TEST_UNSET is not set", "run_timeout", "max_concurrent",
		"memory_mb", "cpu_seconds", "files", "file_mb", "processes", "shell: unknown option",
	} {
		require.ErrorContains(t, err, says)
	}
	_, err = verify.New("command", json.RawMessage(`{"argv": ["no-such-program-anywhere"]}`), nil)
	require.ErrorContains(t, err, "argv[0]: no such program")
	_, err = verify.New("command", nil, nil)
	require.ErrorContains(t, err, "argv: is missing")
}

func TestAProgramThatCannotStartIsAFailure(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a process")
	}
	path := filepath.Join(t.TempDir(), "tool")
	executable.Write(t, path, "neither a program nor a script")
	v, err := verify.New("command", options{"argv": []string{path}}.raw(t), nil)
	require.NoError(t, err)
	result, err := v.Verify(t.Context(), sample())
	fails(t, rewards.Internal, result, err, "starting", path)
}

func TestASampleTooLargeForAPipeIsRefused(t *testing.T) {
	t.Parallel()
	s := sample()
	s.Response = strings.Repeat("x", 17<<20)
	result, err := shell(t, nil, `cat`).Verify(t.Context(), s)
	fails(t, rewards.BadInput, result, err, "over 16777216")
	s = sample()
	s.GroundTruth = json.RawMessage(`{"half`)
	result, err = shell(t, nil, `cat`).Verify(t.Context(), s)
	fails(t, rewards.BadInput, result, err)
}

// BenchmarkCommand is what a run costs beside the program's own work: a process, a
// folder, the sweep.
func BenchmarkCommand(b *testing.B) {
	v := shell(b, nil, `echo 1`)
	s := sample()
	for b.Loop() {
		if _, err := v.Verify(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}
