package scripts_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/testkit/executable"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

// gpuRun packs a bundle whose programs are scripts that say what they are asked, and runs it
// with scripts/gpu-run.sh on a machine that has bash, coreutils and what tools says, each a
// script under its name.
func gpuRun(t *testing.T, programs, tools map[string]string, env ...string) (said string, code int, run report.CardRun) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	stage, parts, bin, out := t.TempDir(), filepath.Join(t.TempDir(), "parts"), t.TempDir(), t.TempDir()
	put := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		executable.Write(t, path, text)
	}
	const head = "#!/usr/bin/env bash\n"
	for name, text := range map[string]string{
		"rewardloop": "echo doctor: everything is there", "pool-ort.test": `echo "asked $*"; echo "--- PASS: TestA (0.1s)"; echo "--- SKIP: TestB (0.1s)"`,
		"bench": `echo "measured $*"; while [ "$1" != -out ]; do shift; done; echo '{"suite": "gpu", "about": "a card", "rows": []}' >"$2/gpu.json"`,
	} {
		put(filepath.Join(stage, "bin", name), head+text+"\n")
	}
	for name, text := range programs {
		put(filepath.Join(stage, "bin", name), head+text+"\n")
	}
	put(filepath.Join(stage, "about.json"), `{"version": "v1", "target": "pytorch", "arch": "sm_90", "onnxruntime": "1.29.0"}`)
	put(filepath.Join(stage, "tests"), "pool/ort pool-ort.test . ^(TestOnACard)$\n")
	put(filepath.Join(stage, "lib", "libonnxruntime.so.1.29.0"), "")
	put(filepath.Join(stage, "src", "go.mod"), "")
	program := filepath.Join(t.TempDir(), "bundle")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "tools", "-o", program, "./bundle")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	text, err = exec.CommandContext(t.Context(), program, "pack", stage, parts, "small").CombinedOutput()
	require.NoError(t, err, "%s", text)
	built, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(parts, "bundle"), built, 0o600))

	for _, tool := range []string{"bash", "cat", "chmod", "cp", "date", "dirname", "env", "head", "ls", "mkdir", "mktemp", "rm", "tee", "timeout", "tr"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Skipf("%s is not installed", tool)
		}
		require.NoError(t, os.Symlink(path, filepath.Join(bin, tool)))
	}
	for name, text := range tools {
		put(filepath.Join(bin, name), head+text+"\n")
	}
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join("scripts", "gpu-run.sh"), parts)
	cmd.Env = append([]string{"PATH=" + bin, "OUT=" + out, "WORK=" + t.TempDir()}, env...)
	text, err = cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	log, err := os.ReadFile(filepath.Join(out, "gpu.log"))
	require.NoError(t, err)
	require.Equal(t, string(text), string(log))
	if result, err := os.ReadFile(filepath.Join(out, "gpu.json")); err == nil {
		require.NoError(t, json.Unmarshal(result, &run), "%s", result)
	}
	return string(text), cmd.ProcessState.ExitCode(), run
}

// aCard is an nvidia-smi that knows one.
func aCard() map[string]string {
	return map[string]string{"nvidia-smi": `echo 'NVIDIA H100 "80GB", GPU-1, 580.65.06, 81559 MiB'`}
}

// cudaFolder holds files by the names of CUDA's libraries, but for some.
func cudaFolder(t *testing.T, but ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10", "libcudnn.so.9", "libnvrtc.so.13"} {
		if !strings.Contains(strings.Join(but, " "), name) {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
		}
	}
	return folder
}

func TestABundleWithoutACardSaysSoAndTestsTheCPU(t *testing.T) {
	t.Parallel()
	if matches, _ := filepath.Glob("/dev/nvidia[0-9]*"); len(matches) > 0 {
		t.Skip("SKIPPED: this machine has a card")
	}
	said, code, run := gpuRun(t, nil, map[string]string{"nvidia-smi": "echo No devices were found; exit 6"})
	require.Zero(t, code, said)
	assert.Contains(t, said, "there is no card at hand")
	assert.Contains(t, said, "doctor: everything is there")
	assert.Contains(t, said, "-test.run . -test.skip ^(TestOnACard)$")
	assert.Contains(t, said, "-device cpu")
	assert.Equal(t, "cpu", run.Device)
	assert.True(t, run.Tests.Held)
	assert.Equal(t, []int{1, 0, 1}, []int{run.Tests.Passed, run.Tests.Failed, run.Tests.Skipped})
	require.NotNil(t, run.Report)
	assert.Equal(t, "gpu", run.Report.Suite)
	assert.Equal(t, "v1", run.Bundle.Version)
}

func TestABundleOnACardRunsTheTestsThatNeedOne(t *testing.T) {
	t.Parallel()
	said, code, run := gpuRun(t, nil, aCard(), "LD_LIBRARY_PATH="+cudaFolder(t))
	require.Zero(t, code, said)
	assert.Contains(t, said, "-test.run ^(TestOnACard)$")
	assert.NotContains(t, said, "-test.skip")
	assert.Contains(t, said, "-device cuda:0")
	assert.Equal(t, "cuda:0", run.Device)
	assert.Equal(t, "NVIDIA H100 80GB, GPU-1, 580.65.06, 81559 MiB", run.Cards)
}

func TestLibrariesOfCUDAThatAreNowhereAreNamed(t *testing.T) {
	t.Parallel()
	said, code, _ := gpuRun(t, nil, aCard(), "LD_LIBRARY_PATH="+cudaFolder(t, "libcurand.so.10", "libnvrtc.so.13"))
	require.Equal(t, 2, code, said)
	assert.Contains(t, said, "these are nowhere: libcurand.so.10 libnvrtc.so.13.")
	assert.Contains(t, said, "TARGET=driver")
}

func TestThePyTorchOfTheMachineLendsItsLibraries(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: no python3")
	}
	site := t.TempDir()
	for _, folder := range []string{"torch", "nvidia/cudnn/lib", "nvidia/cu13"} {
		require.NoError(t, os.MkdirAll(filepath.Join(site, folder), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(site, "torch", "__init__.py"), []byte("raise SystemExit('it takes ten seconds')"), 0o600))
	require.NoError(t, os.Rename(cudaFolder(t), filepath.Join(site, "nvidia", "cu13", "lib")))
	tools := aCard()
	tools["python3"] = "PATH=/usr/bin:/bin PYTHONPATH='" + site + "' exec '" + resolved(t, python) + `' "$@"`
	said, code, _ := gpuRun(t, nil, tools)
	require.Zero(t, code, said)
	assert.Contains(t, said, filepath.Join(site, "nvidia/cu13/lib")+":"+filepath.Join(site, "nvidia/cudnn/lib"))
}

// resolved is the program that a python3 on PATH, which may be a script that chooses, runs.
func resolved(t *testing.T, python string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python, "-c", "import sys; print(sys.executable)").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func TestAFailedTestAndAMissedFigureAreTold(t *testing.T) {
	t.Parallel()
	said, code, run := gpuRun(t, map[string]string{"pool-ort.test": `echo "--- FAIL: TestA (0.1s)"; exit 1`}, nil, "DEVICE=cpu")
	require.Equal(t, 1, code, said)
	assert.False(t, run.Tests.Held)
	assert.Equal(t, 1, run.Tests.Failed)
	assert.Zero(t, run.BenchExit)

	said, code, run = gpuRun(t, map[string]string{"bench": "echo 'MISS: clip'; exit 1"}, nil, "DEVICE=cpu")
	require.Equal(t, 1, code, said)
	assert.True(t, run.Tests.Held)
	assert.Equal(t, 1, run.BenchExit)
	assert.Nil(t, run.Report)
}
