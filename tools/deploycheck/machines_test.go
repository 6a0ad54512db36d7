package deploycheck_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/executable"
	"github.com/rewardloop/rewardloop/tools/deploycheck"
)

func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a program")
	}
	return exec.CommandContext(t.Context(), name, args...)
}

// write writes a file of a test that may be run.
func write(t *testing.T, path, text string) {
	t.Helper()
	executable.Write(t, path, text)
}

func TestTheComposeFileIsWhatComposeTakes(t *testing.T) {
	t.Parallel()
	lines, err := deploycheck.Compose(t.Context(), filepath.Join(deploy, "compose.yaml"), t.TempDir())
	require.NoError(t, err)
	require.Len(t, lines, 3)
	checkLines(t, lines)
}

func TestAMistakeInTheComposeFileIsFound(t *testing.T) {
	t.Parallel()
	for _, m := range []struct{ old, new, want string }{
		{"stop_grace_period:", "stop_grace:", "stop_grace"},
		{"networks: [bus, default]\n    configs", "networks: [bus, elsewhere]\n    configs", "elsewhere"},
		{"configs: [{source: config,", "configs: [{source: conf,", "conf"},
		{"--join=nats://nats:4222", "--join=nats://bus:4222", "nobody called bus"},
		{"--token-file=/run/secrets/token", "--token-file=/run/secrets/key", "nothing is mounted at /run/secrets/key"},
		{"networks: [bus]\n    healthcheck", "networks: [other]\n    healthcheck", "other"},
		{"{file: ./config.yaml}", "{file: ./conf.yaml}", "conf.yaml"},
		{"max_memory_store: 1GB", "max_memory: 1GB", "NATS configuration"},
		{"  read_only: true\n  cap_drop", "  cap_drop", "want read_only"},
		{"MODELS: ppocr-v4-mobile", "MODELS: clip-vit-base-patch32", "MODELS names no model for builtin://ocr"},
		{"capabilities: [gpu]", "capabilities: [compute]", "no device of nvidia with the capability gpu is reserved"},
		{"      target: cuda\n", "", "want cuda"},
	} {
		dir := changed(t, deploy, "compose.yaml", m.old, m.new)
		write(t, filepath.Join(filepath.Dir(dir), "Dockerfile"), "")
		_, err := deploycheck.Compose(t.Context(), filepath.Join(dir, "compose.yaml"), t.TempDir())
		require.ErrorContains(t, err, m.want, m.old)
	}
}

// units are the unit files below a folder.
func units(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(deploy, "systemd", "*.service"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	return files
}

func TestTheUnitsStartWhatTheBinaryTakes(t *testing.T) {
	t.Parallel()
	for _, file := range units(t) {
		line, err := deploycheck.Unit(file, filepath.Join(deploy, "config.yaml"))
		require.NoError(t, err)
		checkLines(t, []deploycheck.CommandLine{line})
	}
}

func TestSystemdFindsNothingToSayAboutTheUnits(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("SKIPPED: systemd-analyze is not installed; the keys of the units are checked all the same")
	}
	dir := t.TempDir()
	for _, file := range units(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		// It wants the program to be there, and of a template an instance.
		copied := strings.ReplaceAll(string(text), "/usr/local/bin/rewardloop", rewardloop(t).Path)
		instance := filepath.Join(dir, strings.Replace(filepath.Base(file), "@", "@0", 1))
		require.NoError(t, os.WriteFile(instance, []byte(copied), 0o600))
		out, err := command(t, "systemd-analyze", "verify", "--man=no", instance).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Empty(t, string(out), file)
		// 0 is closed, 10 open; systemd calls up to 4.9 "medium".
		out, err = command(t, "systemd-analyze", "security", "--offline=true", "--threshold=25", instance).CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}
}

func TestAMistakeInAUnitIsFound(t *testing.T) {
	t.Parallel()
	config := filepath.Join(deploy, "config.yaml")
	for _, m := range []struct{ old, new, want string }{
		{"PrivateTmp=", "PrivateTemp=", `has no key "PrivateTemp"`},
		{"[Service]", "[Services]", "no section [Services]"},
		{"KillMode=mixed", "KillMode=control-group", "want mixed"},
		{"LoadCredential=token:", "LoadCredential=tokn:", "no LoadCredential is called token"},
		{"TimeoutStopSec=150", "TimeoutStopSec=long", "TimeoutStopSec"},
		{"/usr/local/bin/rewardloop", "/usr/bin/rewardlop", "ExecStart"},
	} {
		dir := changed(t, filepath.Join(deploy, "systemd"), "rewardloop-gateway.service", m.old, m.new)
		_, err := deploycheck.Unit(filepath.Join(dir, "rewardloop-gateway.service"), config)
		require.ErrorContains(t, err, m.want)
	}
}

// slurm runs the job's script with a fake srun, which runs one task, and a fake rewardloop.
func slurm(t *testing.T, rewardloop string, env ...string) (called, said string, err error) {
	t.Helper()
	bin := t.TempDir()
	calls := filepath.Join(bin, "calls")
	write(t, filepath.Join(bin, "srun"), `#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
export SLURM_PROCID=3
exec "$@"
`)
	write(t, filepath.Join(bin, "sleep"), "#!/usr/bin/env bash\n")
	write(t, filepath.Join(bin, "rewardloop"), "#!/usr/bin/env bash\nprintf '%s\\n' \"$@\" >>'"+calls+"'\n"+rewardloop)
	cmd := command(t, "bash", filepath.Join(deploy, "slurm", "rewardloop-workers.sbatch"))
	cmd.Env = append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=/home/me", "SLURM_SUBMIT_DIR=/job", "SLURM_JOB_ID=7"}, env...)
	out, err := cmd.CombinedOutput()
	text, _ := os.ReadFile(calls)
	return string(text), string(out), err
}

const join = "REWARDLOOP_JOIN=nats://gateway:4222"

func TestTheSlurmScriptStartsWhatTheBinaryTakes(t *testing.T) {
	t.Parallel()
	called, said, err := slurm(t, "", join, "REWARDLOOP_ARGS=++reward.reward_functions.text.device=cuda:0 reward.concurrency=4")
	require.NoError(t, err, said)
	args := strings.Split(strings.TrimSpace(called), "\n")
	assert.Equal(t, "worker", args[0])
	assert.Contains(t, args, "-c=/job/config.yaml")
	assert.Contains(t, args, "--join=nats://gateway:4222")
	assert.Contains(t, args, "reward.concurrency=4")
	assert.Regexp(t, `--name=\S+-7-3\n`, called)
	text, err := os.ReadFile(filepath.Join(deploy, "config.yaml"))
	require.NoError(t, err)
	checkLines(t, []deploycheck.CommandLine{{Where: "slurm", Args: args, Config: string(text), Grace: 150e9}})
}

func TestAWorkerThatDiesUnderSlurmIsStartedAgainUnlessThatCannotHelp(t *testing.T) {
	t.Parallel()
	once := func(code string) string { // ends with code the first time, with 0 then
		return `[ "$(grep -c '^worker$' "${BASH_SOURCE[0]%/*}/calls")" -gt 1 ] || exit ` + code + "\n"
	}
	called, said, err := slurm(t, once("137"), join)
	require.NoError(t, err, said)
	assert.Equal(t, 2, strings.Count(called, "worker\n"))
	assert.Contains(t, said, "the worker of task 3 ended with 137")

	called, _, err = slurm(t, once("2"), join)
	require.Error(t, err, "a wrong configuration ends the task")
	assert.Equal(t, 1, strings.Count(called, "worker\n"))

	_, said, err = slurm(t, "")
	require.Error(t, err)
	assert.Contains(t, said, "REWARDLOOP_JOIN: where to join")
}

func TestASlurmTaskThatIsToldToStopStartsNoOtherWorker(t *testing.T) {
	t.Parallel()
	// Slurm signals every process of a task: here the worker does it to the shell.
	called, said, err := slurm(t, "kill -TERM $PPID; exit 1\n", join)
	require.NoError(t, err, said)
	assert.Equal(t, 1, strings.Count(called, "worker\n"))
}

func TestTheScriptsAreSound(t *testing.T) {
	t.Parallel()
	script := filepath.Join(deploy, "slurm", "rewardloop-workers.sbatch")
	out, err := command(t, "bash", "-n", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("SKIPPED: shellcheck is not installed")
	}
	out, err = command(t, "shellcheck", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
