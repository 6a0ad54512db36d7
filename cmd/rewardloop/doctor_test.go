package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// withoutModels keeps PP-OCR, which takes seconds, out of examinations of other things.
func withoutModels(t *testing.T) string {
	t.Helper()
	return "pool.models_dir=" + t.TempDir()
}

// examined runs doctor --json and returns the checks by name.
func examined(t *testing.T, args ...string) (outcome, map[string]check) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python and child processes")
	}
	got := call(t, "", append([]string{"doctor", "--json"}, args...)...)
	var report struct {
		OK     bool    `json:"ok"`
		Checks []check `json:"checks"`
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &report), got.stdout)
	require.Equal(t, got.code == exitOK, report.OK)
	byName := map[string]check{}
	for _, c := range report.Checks {
		byName[c.Name] = c
		if c.State != stateOK {
			require.NotEmpty(t, c.Advice, "%s says what is wrong and not what to do", c.Name)
		}
	}
	require.Len(t, byName, len(report.Checks))
	return got, byName
}

func TestAMachineThatRunsTheseTestsPassesTheDoctorAndReadsWithPPOCRWhereItIsHere(t *testing.T) {
	t.Parallel()
	got, checks := examined(t)
	require.Equal(t, exitOK, got.code, got.stdout)
	for _, name := range []string{"version", "system", "temporary files", "jpeg", "queue", "whole path"} {
		require.Equal(t, stateOK, checks[name].State, checks[name].Detail)
	}
	require.NotContains(t, checks, "configuration")
	require.False(t, checks["tesseract"].Required)
	if checks["onnx runtime"].State == stateOK && checks["models"].State == stateOK {
		require.Contains(t, checks["onnx runtime"].Detail, "CPUExecutionProvider")
		require.Contains(t, checks["reading"].Detail, "PP-OCR")
		require.Contains(t, checks["reading"].Detail, `read "`+ocr.CanaryText+`"`)
	}
}

func TestTheDoctorReadsAPictureThroughARealChild(t *testing.T) {
	t.Parallel()
	needTesseract(t)
	got, checks := examined(t, "server.listen=127.0.0.1:0", withoutModels(t),
		"reward.custom_reward_function.path=builtin://ocr", "+reward.custom_reward_function.reward_kwargs.reader=tesseract")
	require.Equal(t, exitOK, got.code, got.stdout)
	require.True(t, checks["tesseract"].Required)
	require.Contains(t, checks["reading"].Detail, `read "`+ocr.CanaryText+`"`)
	if len(tesseract.Kinds()) > 0 {
		require.Contains(t, checks["reading"].Detail, "OMP_THREAD_LIMIT=1 in the child")
	}
}

// shared compiles a shared library of a line of C, which needs others of its folder.
func shared(t *testing.T, dir, name, code string, needed ...string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("SKIPPED: no C compiler: %v", err)
	}
	source := filepath.Join(dir, "lib.c")
	require.NoError(t, os.WriteFile(source, []byte(code), 0o600))
	args := []string{"-shared", "-fPIC", "-o", filepath.Join(dir, name), "-Wl,-soname," + name, "-Wl,--no-as-needed", source, "-L" + dir}
	for _, n := range needed {
		args = append(args, "-l:"+n)
	}
	out, err := exec.CommandContext(t.Context(), cc, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestTheDoctorSaysForWhichCUDAAProviderWasBuiltAndWhatItLacks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts a compiler")
	}
	dir := t.TempDir()
	shared(t, dir, "libcudart.so.13", "int runtime;")
	shared(t, dir, "libcublas.so.13", "int blas;")
	shared(t, dir, "libonnxruntime.so.1", "void *OrtGetApiBase(void) { return 0; }") // no child can load it
	shared(t, dir, "libonnxruntime_providers_shared.so", "int bridge;")
	shared(t, dir, "libonnxruntime_providers_cuda.so", "int provider;", "libcudart.so.13", "libcublas.so.13")
	require.NoError(t, os.Rename(filepath.Join(dir, "libcudart.so.13"), filepath.Join(dir, "libcudart.so.12")))
	got, checks := examined(t, "server.listen=127.0.0.1:0", withoutModels(t), "pool.onnx.library="+dir,
		"reward.custom_reward_function.path=builtin://jpeg_compressibility")
	require.Equal(t, exitOK, got.code, "no reward asks for a card: %s", got.stdout)
	c := checks["cuda provider"]
	require.Equal(t, stateMissing, c.State)
	require.Contains(t, c.Detail, "built for CUDA 13, at "+dir)
	require.Contains(t, c.Detail, "missing libcudart.so.13")
	require.Contains(t, c.Advice, "the machine has "+filepath.Join(dir, "libcudart.so.12")+", but the provider needs libcudart.so.13")
}

func TestTheDoctorSaysWhatPPOCRMisses(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	got, checks := examined(t, "server.listen=127.0.0.1:0", "pool.models_dir="+empty,
		"reward.custom_reward_function.path=builtin://ocr", "+reward.custom_reward_function.reward_kwargs.reader=ppocr")
	require.Equal(t, exitFailure, got.code, got.stdout)
	require.Equal(t, stateMissing, checks["models"].State)
	require.True(t, checks["models"].Required)
	require.Contains(t, checks["models"].Advice, "rewardloop models pull")
	require.Equal(t, stateMissing, checks["reading"].State)
	require.Contains(t, checks["reading"].Detail, empty)
}

func TestTheDoctorReadiesEveryRewardOfAConfiguration(t *testing.T) {
	t.Parallel()
	cfg := put(t, t.TempDir(), "two.yaml", []byte(`
reward: {custom_reward_function: {path: builtin://jpeg_incompressibility}}
rewards: {second: {custom_reward_function: {path: builtin://jpeg_compressibility}}}
server: {listen: "127.0.0.1:0"}
`))
	got, checks := examined(t, "-c", cfg, withoutModels(t))
	require.Equal(t, exitOK, got.code, got.stdout)
	require.Equal(t, stateOK, checks["configuration"].State)
	require.Equal(t, stateOK, checks["reward default"].State)
	require.Equal(t, stateOK, checks["reward second"].State)
	require.Equal(t, stateOK, checks["address"].State)
}

func TestTheDoctorComparesTheSpoolWithItsDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for size, want := range map[string]state{"150MiB": stateOK, "1000000GiB": stateWarn} {
		cfg := put(t, t.TempDir(), "cfg.yaml", fmt.Appendf(nil, `
reward: {custom_reward_function: {path: builtin://jpeg_incompressibility}}
server: {listen: "127.0.0.1:0"}
queue: {durable: true, spool_dir: %q, spool_bytes: %s}
`, filepath.Join(dir, "not", "there"), size))
		_, checks := examined(t, "-c", cfg, withoutModels(t))
		require.Equal(t, want, checks["spool"].State, checks["spool"].Detail)
		if want == stateWarn {
			require.Contains(t, checks["spool"].Detail, "queue.spool_bytes is 1024000000.0 MiB, and the file system of "+dir)
			require.Contains(t, checks["spool"].Advice, "write a smaller queue.spool_bytes")
		}
	}
}

func TestTheDoctorFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() }) // after the subtests
	dir := t.TempDir()
	const base = "reward: {custom_reward_function: {path: builtin://jpeg_incompressibility%s}}\nserver: {listen: %q%s}\n"
	tests := map[string]struct {
		cfg, check, says string
		state            state
		code             int
	}{
		"a wrong configuration":   {"reward: {num_workers: none}", "configuration", "num_workers", stateMissing, exitFailure},
		"a token that is missing": {fmt.Sprintf(base, "", "127.0.0.1:0", ", token_file: "+filepath.Join(dir, "token")), "server files", "token_file", stateMissing, exitFailure},
		"an option that is wrong": {fmt.Sprintf(base, ", reward_kwargs: {quality: 1000}", "127.0.0.1:0", ""), "rewards", "quality", stateMissing, exitFailure},
		"an address in use":       {fmt.Sprintf(base, "", taken.Addr().String(), ""), "address", "in use", stateWarn, exitOK},
		"an address of others":    {fmt.Sprintf(base, "", "192.0.2.1:80", ", token_file: "+os.DevNull), "address", "192.0.2.1", stateMissing, exitFailure},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, checks := examined(t, "-c", put(t, t.TempDir(), "cfg.yaml", []byte(tt.cfg)), withoutModels(t))
			require.Equal(t, tt.code, got.code, got.stdout)
			require.Equal(t, tt.state, checks[tt.check].State, got.stdout)
			require.Contains(t, checks[tt.check].Detail, tt.says)
		})
	}
}

// Not parallel: it changes the environment of the process.
func TestTheDoctorMissesAFolderForTemporaryFiles(t *testing.T) {
	lean := withoutModels(t)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	got, checks := examined(t, lean, "server.listen=127.0.0.1:0", "reward.custom_reward_function.path=builtin://jpeg_compressibility")
	require.Equal(t, exitFailure, got.code)
	require.Equal(t, stateMissing, checks["temporary files"].State)
}

func TestTheDoctorDecodesAClip(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("SKIPPED: no ffmpeg")
	}
	_, checks := examined(t, "testdata/cfg.yaml", withoutModels(t))
	require.Equal(t, stateOK, checks["ffmpeg"].State, checks["ffmpeg"].Detail)
	require.Contains(t, checks["ffmpeg"].Detail, "decoded a clip of 2 frames")
	_, checks = examined(t, "testdata/cfg.yaml", withoutModels(t), "++pool.decode.ffmpeg=/bin/false")
	require.Equal(t, stateMissing, checks["ffmpeg"].State)
	require.Contains(t, checks["ffmpeg"].Detail, "/bin/false: ")
	_, checks = examined(t, "testdata/cfg.yaml", withoutModels(t), "++pool.decode.ffmpeg=off")
	require.Equal(t, stateOK, checks["ffmpeg"].State)
	require.Contains(t, checks["ffmpeg"].Detail, "are refused")
}
