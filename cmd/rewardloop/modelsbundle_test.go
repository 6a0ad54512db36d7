package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/bundle"
	"github.com/rewardloop/rewardloop/internal/pyenv"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// weights are bytes that do not compress.
func weights(n int) []byte {
	out := make([]byte, n)
	rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // noise
	for i := range out {
		out[i] = byte(rng.Uint32()) //nolint:gosec // truncation is meant
	}
	return out
}

// bundled is the bundle of two models of a file each, in parts of 1 MiB.
func bundled(t *testing.T) (folder string) {
	t.Helper()
	stick, vars := t.TempDir(), map[string]string{"REWARDLOOP_MODELS": t.TempDir(), "REWARDLOOP_ENVS": t.TempDir()}
	folder = filepath.Join(t.TempDir(), "bundle")
	put(t, stick, "first.onnx", weights(3_000_000))
	put(t, stick, "second.onnx", []byte("weights"))
	got := modelsIn(t.Context(), vars, "bundle", filepath.Join(stick, "first.onnx"), filepath.Join(stick, "second.onnx"), "--out", folder, "--part-size", "1MiB")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "copy it, and there: rewardloop models unbundle bundle\n")
	return folder
}

// elsewhere is a machine with nothing.
func elsewhere(t *testing.T) (dir string, vars map[string]string) {
	t.Helper()
	root := t.TempDir()
	return filepath.Join(root, "models"), map[string]string{"REWARDLOOP_MODELS": filepath.Join(root, "models"), "REWARDLOOP_ENVS": filepath.Join(root, "envs")}
}

// empty requires that nothing can be seen in a folder of models.
func empty(t *testing.T, dir string) {
	t.Helper()
	found, err := os.ReadDir(dir)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for _, f := range found {
		require.Equal(t, ".lock", f.Name())
	}
}

func TestUnbundlePutsModelsWithTheirSumsAndLeavesWhatIsThere(t *testing.T) {
	t.Parallel()
	folder := bundled(t)
	dir, vars := elsewhere(t)
	got := modelsIn(t.Context(), vars, "unbundle", folder)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "2 model files put into "+dir)
	require.Contains(t, got.stderr, "models.000: reading, 1.0 MB, part 1 of ")
	require.Contains(t, got.stderr, "first.onnx: 3.0 MB, and its sum is right")
	got = modelsIn(t.Context(), vars, "verify")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "ok       first.onnx")

	before, err := os.Stat(filepath.Join(dir, "first.onnx"))
	require.NoError(t, err)
	put(t, dir, "second.onnx", []byte("damaged"))
	got = modelsIn(t.Context(), vars, "unbundle", folder)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "here already, left as it is: model first.onnx in "+dir)
	require.Contains(t, got.stdout, "1 model file put into "+dir)
	after, err := os.Stat(filepath.Join(dir, "first.onnx"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	require.Equal(t, exitOK, modelsIn(t.Context(), vars, "verify").code)
}

func TestUnbundleNamesPartsThatAreDamagedOrMissingAndChangesNothing(t *testing.T) {
	t.Parallel()
	folder := bundled(t)
	dir, vars := elsewhere(t)
	part := filepath.Join(folder, "models.001")
	text, err := os.ReadFile(part)
	require.NoError(t, err)
	damaged := bytes.Clone(text)
	damaged[500_000] ^= 1
	require.NoError(t, os.WriteFile(part, damaged, 0o600))
	require.NoError(t, os.Remove(filepath.Join(folder, "models.002")))
	got := modelsIn(t.Context(), vars, "unbundle", folder)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "damaged: part models.001 has 1048576 bytes, but")
	require.Contains(t, got.stderr, "a part is missing: models.002")
	require.Contains(t, got.stderr, "nothing was changed")
	empty(t, dir)

	got = modelsIn(t.Context(), vars, "unbundle", t.TempDir())
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "not a manifest of a bundle")
}

// ender ends a context when a text is written.
type ender struct {
	lockedBuffer
	text string
	end  context.CancelFunc
}

func (e *ender) Write(p []byte) (int, error) {
	if strings.Contains(string(p), e.text) {
		e.end()
	}
	return e.lockedBuffer.Write(p)
}

func TestAnUnbundleThatIsInterruptedLeavesNoHalfModelAndIsRunAgain(t *testing.T) {
	t.Parallel()
	folder := bundled(t)
	for _, at := range []string{"models.001: reading", "first.onnx: unpacking", "second.onnx: unpacking"} {
		dir, vars := elsewhere(t)
		ctx, end := context.WithCancel(t.Context())
		stderr := &ender{text: at, end: end}
		code := run(ctx, []string{"models", "unbundle", folder}, env{
			stdin: strings.NewReader(""), stdout: &lockedBuffer{}, stderr: stderr, getenv: func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		})
		require.Equal(t, exitFailure, code, stderr.String())
		require.Contains(t, stderr.String(), "interrupted")
		found, err := filepath.Glob(filepath.Join(dir, "*.onnx"))
		require.NoError(t, err)
		for _, whole := range found {
			require.Equal(t, "first.onnx", filepath.Base(whole), at)
			info, err := os.Stat(whole)
			require.NoError(t, err)
			require.EqualValues(t, 3_000_000, info.Size())
		}
		got := modelsIn(t.Context(), vars, "unbundle", folder)
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Equal(t, exitOK, modelsIn(t.Context(), vars, "verify").code)
		left, err := filepath.Glob(filepath.Join(dir, "*.part"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestAnUnbundleThatIsKilledLeavesNoHalfModelAndIsRunAgain(t *testing.T) {
	t.Parallel()
	folder := bundled(t)
	dir, vars := elsewhere(t)
	environ := os.Environ()
	for name, value := range vars {
		environ = append(environ, name+"="+value)
	}
	p := startIn(t, t.TempDir(), environ, nil, nil, "models", "unbundle", folder)
	p.stderr.await(t, "first.onnx: unpacking")
	require.NoError(t, p.Process.Kill())
	<-p.exited
	if info, err := os.Stat(filepath.Join(dir, "first.onnx")); err == nil {
		require.EqualValues(t, 3_000_000, info.Size(), "it was whole before the end")
	}
	got := modelsIn(t.Context(), vars, "unbundle", folder)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Equal(t, exitOK, modelsIn(t.Context(), vars, "verify").code)
}

// packedBy is a bundle of somebody's making.
func packedBy(t *testing.T, contents bundleContents, files map[string]string) (folder string) {
	t.Helper()
	from := t.TempDir()
	text, err := json.Marshal(contents)
	require.NoError(t, err)
	all := []bundle.File{{Name: contentsName, Path: put(t, from, contentsName, text)}}
	for name, content := range files {
		all = append(all, bundle.File{Name: name, Path: put(t, from, name, []byte(content))})
	}
	folder = t.TempDir()
	_, err = bundle.Pack(t.Context(), folder, bundle.Options{Name: bundleName}, all)
	require.NoError(t, err)
	return folder
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// oneModel are contents with one model.
func oneModel(name string) bundleContents {
	return bundleContents{Version: 1, System: "linux/amd64", Models: []bundledModel{{
		Name: name, Licence: models.Licence{SPDX: "MIT"},
		Files: []models.Given{{Name: name, Size: 7, SHA256: sumOf("weights"), Source: "hf://owner/repository/model.onnx@main"}},
	}}}
}

func TestABundleOfAnotherPlatformGivesItsModelsAndRefusesTheRestByName(t *testing.T) {
	t.Parallel()
	needPython(t)
	contents := oneModel("mine.onnx")
	contents.System = "plan9/mips"
	contents.Library = &bundledLibrary{Version: "1.29.0", Files: []string{"libonnxruntime.so.1.29.0"}}
	contents.Environments = []bundledEnv{{Entries: []string{"reward.mine"}, Packed: pyenv.Packed{
		Name: "py3.11-0123456789abcdef", Digest: strings.Repeat("0", 20), Python: "3.1.2", Platform: "cpython-plan9-mips",
		Packages: []pyenv.Package{{Name: "dep", Version: "1.0", SHA256: sumOf("a wheel")}}, Wheels: []string{"dep-1.0-py3-none-any.whl"},
	}}}
	folder := packedBy(t, contents, map[string]string{
		"models/mine.onnx": "weights", "onnxruntime/libonnxruntime.so.1.29.0": "a library",
		"wheels/" + sumOf("a wheel")[:16] + "/dep-1.0-py3-none-any.whl": "a wheel",
	})
	dir, vars := elsewhere(t)
	got := modelsIn(t.Context(), vars, "unbundle", folder)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "reward.mine: environment py3.11-0123456789abcdef: the wheels are for Python 3.1 on cpython-plan9-mips")
	if _, err := ort.Find(""); err != nil {
		require.Contains(t, got.stderr, "ONNX Runtime 1.29.0 is for plan9/mips, but this machine is ")
	}
	require.Contains(t, got.stdout, "1 model file put into "+dir)
	require.NoDirExists(t, filepath.Join(filepath.Dir(dir), "onnxruntime"))
	require.Equal(t, exitOK, modelsIn(t.Context(), vars, "verify").code)
}

func TestABundleThatSaysOtherThingsThanItHoldsIsRefused(t *testing.T) {
	t.Parallel()
	known, err := models.Find("ppocr-v4-mobile")
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		change func(c *bundleContents, files map[string]string)
		says   string
	}{
		"a model outside of the folder": {func(c *bundleContents, files map[string]string) {
			c.Models[0].Files[0].Name = "../mine.onnx"
		}, `unsafe name: file name "../mine.onnx"`},
		"another file under a known name": {func(c *bundleContents, files map[string]string) {
			c.Models[0].Files[0].Name = known.Files[0].Name
		}, "want " + known.Files[0].SHA256 + " as in the catalogue"},
		"a library outside of the folder": {func(c *bundleContents, files map[string]string) {
			c.Library = &bundledLibrary{Version: "1", Files: []string{"../../libonnxruntime.so"}}
		}, `"../../libonnxruntime.so" is not a file of ONNX Runtime`},
		"an environment that is a path": {func(c *bundleContents, files map[string]string) {
			c.Environments = []bundledEnv{{Packed: pyenv.Packed{Name: "../../x"}}}
		}, "bad environment"},
		"a file too many":   {func(_ *bundleContents, files map[string]string) { files["models/x"] = "x" }, "does not list the file models/x"},
		"a file too few":    {func(_ *bundleContents, files map[string]string) { delete(files, "models/mine.onnx"); files["y"] = "y" }, "does not list the file y"},
		"another sum":       {func(_ *bundleContents, files map[string]string) { files["models/mine.onnx"] = "another" }, "or lists another checksum"},
		"a later version":   {func(c *bundleContents, _ map[string]string) { c.Version = 2 }, "version 2, this program reads 1"},
		"a licence to read": {func(c *bundleContents, _ map[string]string) { c.Models[0].Licence.NonCommercial = true }, "add --accept-licence if you agree"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contents, files := oneModel("mine.onnx"), map[string]string{"models/mine.onnx": "weights"}
			tt.change(&contents, files)
			dir, vars := elsewhere(t)
			got := modelsIn(t.Context(), vars, "unbundle", packedBy(t, contents, files))
			require.NotEqual(t, exitOK, got.code)
			require.Contains(t, got.stderr, tt.says)
			empty(t, dir)
		})
	}
	contents := oneModel("mine.onnx")
	contents.Models[0].Licence.NonCommercial = true
	_, vars := elsewhere(t)
	got := modelsIn(t.Context(), vars, "unbundle", packedBy(t, contents, map[string]string{"models/mine.onnx": "weights"}), "--accept-licence")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "model mine.onnx")
}

func TestABundleOfSomethingElseIsRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	_, err := bundle.Pack(t.Context(), folder, bundle.Options{Name: "gpu"}, []bundle.File{{Name: "bin/x", Path: put(t, t.TempDir(), "x", []byte("x"))}})
	require.NoError(t, err)
	_, vars := elsewhere(t)
	got := modelsIn(t.Context(), vars, "unbundle", folder)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "is not a bundle of models: the file begins with bin/x, want contents.json")
}

func TestAnotherModelUnderTheSameNameIsNotReplaced(t *testing.T) {
	t.Parallel()
	folder := bundled(t)
	dir, vars := elsewhere(t)
	stick := put(t, t.TempDir(), "second.onnx", []byte("my own"))
	require.Equal(t, exitOK, modelsIn(t.Context(), vars, "pull", stick).code)
	got := modelsIn(t.Context(), vars, "unbundle", folder)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "second.onnx is recorded in "+dir)
	require.Contains(t, got.stderr, "nothing was changed")
	require.NoFileExists(t, filepath.Join(dir, "first.onnx"))
}

func TestBundleSaysWhatItWouldPackAndWhatItCannot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "mine.py", []byte("def compute_score(solution_str):\n    return 1.0\n"))
	put(t, dir, "own/scorer.json", []byte("{}"))
	cfg := put(t, dir, "cfg.yaml", []byte(`
reward:
  reward_functions:
    read: {path: "builtin://ocr", required: true, reader: ppocr}
    rate: {path: "builtin://clipscore", required: true, model: `+filepath.Join(dir, "own")+`}
    mine: {path: mine.py, required: true}
    made: {path: mine.py, required: true, weight: 2, environment: {requirements: ["--no-index", "dep"]}}
`))
	out := filepath.Join(dir, "bundle")
	vars := map[string]string{"REWARDLOOP_MODELS": filepath.Join(dir, "models"), "REWARDLOOP_ENVS": filepath.Join(dir, "envs")}
	got := modelsIn(t.Context(), vars, "bundle", "-c", cfg, "--out", out, "--dry-run")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "model ppocr-v4-mobile: 16.2 MB, to be downloaded first\n  licence Apache-2.0")
	require.Contains(t, got.stdout, "environment for reward.reward_functions.made: its requirements are not resolved yet")
	require.Contains(t, got.stdout, "not in the bundle: reward.reward_functions.mine has no environment: it runs in the Python of the machine")
	require.Contains(t, got.stdout, "not in the bundle: the folder of model "+filepath.Join(dir, "own")+": copy it to the same path")
	require.Contains(t, got.stdout, "would be packed into "+out+": more than ")
	require.NoDirExists(t, out)
	require.NoDirExists(t, filepath.Join(dir, "models"))
}

func TestBundleSaysWhatIsAskedWrongly(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	put(t, full, "x", []byte("x"))
	for text, args := range map[string][]string{
		"nothing named to bundle: give -c cfg.yaml": {"bundle"},
		"--out is missing":                          {"bundle", "ppocr-v4-mobile"},
		"--part-size \"1\": want 1MiB to 64GiB":     {"bundle", "ppocr-v4-mobile", "--out", "x", "--part-size", "1"},
		"is not empty: name another folder":         {"bundle", "ppocr-v4-mobile", "--out", full},
		"unknown model \"ppocr-v5\"":                {"bundle", "ppocr-v5", "--out", "none"},
		"unbundle what? name the one folder":        {"unbundle"},
		"nothing would be packed":                   {"bundle", "testdata/cfg.yaml", "--out", "none", "--dry-run"},
		"nothing to pack: this configuration needs": {"bundle", "testdata/cfg.yaml", "--out", "none"},
	} {
		vars := map[string]string{"REWARDLOOP_MODELS": t.TempDir(), "REWARDLOOP_ENVS": t.TempDir()}
		got := modelsIn(t.Context(), vars, args...)
		require.Contains(t, got.stderr+got.stdout, text, args)
	}
}

func TestAPullWithoutANetworkLeadsToTheBundle(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"REWARDLOOP_MODELS": t.TempDir(), "HF_HUB_OFFLINE": "1", "HF_HOME": t.TempDir()}
	got := modelsIn(t.Context(), vars, "pull", "hf://owner/repository/model.onnx@main")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "for a machine without a network: `rewardloop models bundle` on a machine with a network packs the files")
	vars = map[string]string{"REWARDLOOP_MODELS": t.TempDir()}
	got = modelsIn(t.Context(), vars, "pull", "ppocr-v4-mobile", "--python", noPython(t))
	require.NotContains(t, got.stderr, "models bundle", "it lacks pip, not a network")
}
