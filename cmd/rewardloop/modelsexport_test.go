package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/ort"
)

// exportsWell leaves a model, of which nothing but the parity is read.
const exportsWell = `echo loading
echo weights >"$out/model.onnx"
echo '{"kind": "two_tower"}' >"$out/scorer.json"
echo '{"format": 1, "name": "logits of 3", "value": 2.2e-7, "limit": 0.0001, "unit": "of the largest value", "comparisons": 4}' >"$out/parity.json"
`

// stubExporter is a program that takes Python's place, and does the lines of a shell instead of the exporter.
func stubExporter(t *testing.T, lines string) string {
	t.Helper()
	at := put(t, t.TempDir(), "python", []byte("#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in --out) out=$2;; esac; shift; done\n"+lines))
	require.NoError(t, os.Chmod(at, 0o755)) //nolint:gosec // a program
	return at
}

// checkpointHub says of every repository that it has a checkpoint of 4 GB.
func checkpointHub(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/models/") {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"sha": "0123456789abcdef0123456789abcdef01234567", "cardData": {"license": "apache-2.0"},
			"siblings": [{"rfilename": "model.safetensors", "size": 12000}, {"rfilename": "config.json", "size": 345}]}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestModelsExportMakesAModelOnceAndTheOthersKnowIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	vars := map[string]string{"REWARDLOOP_MODELS": dir, "HF_ENDPOINT": checkpointHub(t)}
	args := []string{"export", "pickscore-v1", "--interpreter", stubExporter(t, exportsWell)}
	got := modelsIn(t.Context(), vars, args...)
	require.Equal(t, exitFailure, got.code)
	require.Regexp(t, `yuvalkirstain/PickScore_v1 +12345 bytes +apache-2.0`, got.stderr, "what would come is said all the same")
	require.Contains(t, got.stderr, "run it again with --yes to agree")
	require.NoDirExists(t, filepath.Join(dir, "pickscore-v1"))

	got = modelsIn(t.Context(), vars, append(args, "--yes")...)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stderr, "  loading\n")
	require.Regexp(t, `^pickscore-v1: exported into `+regexp.QuoteMeta(dir)+`/pickscore-v1 \(3 files, \d+ bytes\)
  parity with PyTorch: off by 2.2e-07 at most, in logits of 3 of 4 comparisons; the limit is 0.0001 of the largest value\n$`, got.stdout)

	got = modelsIn(t.Context(), vars, args...)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "here already, in "+dir+"/pickscore-v1; nothing was done, and --again makes it anew\n  parity with PyTorch: off by 2.2e-07")
	require.Empty(t, got.stderr)
	require.Contains(t, modelsIn(t.Context(), vars, "pull", "pickscore-v1").stdout, "pickscore-v1: here, exported into ")
	got = modelsIn(t.Context(), vars, "list", "pickscore-v1")
	require.Regexp(t, `^pickscore-v1  here, \d+ bytes, MIT Yuval`, got.stdout)
	require.Contains(t, got.stdout, "export://hf://yuvalkirstain/PickScore_v1@0123456789abcdef0123456789abcdef01234567")
	for _, names := range [][]string{{}, {"pickscore-v1"}} {
		got = modelsIn(t.Context(), vars, append([]string{"verify"}, names...)...)
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Regexp(t, `(?m)^ok +pickscore-v1/model.onnx  sha256 [0-9a-f]{64}$`, got.stdout)
	}
	put(t, dir, "pickscore-v1/model.onnx", []byte("damaged"))
	got = modelsIn(t.Context(), vars, "verify")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "`rewardloop models export` with --again exports it again")
	require.Equal(t, exitOK, modelsIn(t.Context(), vars, append(args, "--yes", "--again")...).code)
	require.Equal(t, exitOK, modelsIn(t.Context(), vars, "verify").code)
}

func TestModelsExportTakesACheckpointOfOnesOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	python := stubExporter(t, exportsWell)
	got := modelsIn(t.Context(), nil, "export", "--dir", dir, "--family", "clip", "--model", t.TempDir(), "--name", "mine", "--licence", "MIT", "--interpreter", python)
	require.Equal(t, exitOK, got.code, got.stderr)
	got = modelsIn(t.Context(), nil, "list", "--dir", dir)
	require.Regexp(t, `(?m)^mine +here +\d+ bytes +MIT +exported here from local$`, got.stdout)
	var answer struct {
		Models []struct {
			Name                      string
			Exported, Here, Catalogue bool
		}
	}
	got = modelsIn(t.Context(), nil, "list", "mine", "--json", "--dir", dir)
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &answer))
	require.Len(t, answer.Models, 1)
	require.True(t, answer.Models[0].Exported && answer.Models[0].Here && !answer.Models[0].Catalogue)
}

func TestModelsExportSaysWhatIsAskedWrongly(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"nothing named to export":                           {},
		"offered in ONNX":                                   {"smolvlm-256m"},
		"unknown model \"pickscore\"":                       {"pickscore"},
		"exclude each other: a checkpoint":                  {"pickscore-v1", "--family", "clip"},
		"needs --name":                                      {"--family", "clip", "--model", "owner/name"},
		"go with --family":                                  {"pickscore-v1", "--model", "owner/name"},
		"--interpreter and --python are mutually exclusive": {"pickscore-v1", "--interpreter", "a", "--python", "3.11"},
		"--timeout must be above 0":                         {"pickscore-v1", "--timeout", "0s"},
		"family \"os\"":                                     {"--family", "os", "--model", "owner/name", "--name", "x"},
		"unsafe name":                                       {"--family", "clip", "--model", "owner/name", "--name", "../x"},
		"--out after --":                                    {"pickscore-v1", "--", "--out", "/etc"},
	} {
		got := modelsIn(t.Context(), nil, append([]string{"export", "--dir", t.TempDir()}, args...)...)
		require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		require.Contains(t, got.stderr, says)
	}
}

// The exporter starts a program of its own, and both wait for a minute.
func TestAnInterruptedModelsExportEndsItsProgramsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	python := stubExporter(t, "echo half >\"$out/model.onnx\"\nsleep 60 &\necho started $!\nwait\n")
	p := startIn(t, dir, append(os.Environ(), "REWARDLOOP_MODELS="+dir), nil, nil, "models", "export", "--family", "clip", "--model", dir, "--name", "mine", "--interpreter", python)
	p.stderr.await(t, "started")
	pid, err := strconv.Atoi(regexp.MustCompile(`started (\d+)`).FindStringSubmatch(p.stderr.String())[1])
	require.NoError(t, err)
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
	require.Equal(t, exitFailure, p.code(t), p.stderr)
	require.Contains(t, p.stderr.String(), "interrupted; nothing was exported; downloads are kept")
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(text), ") Z ")
	}, 30*time.Second, 10*time.Millisecond)
	require.NoDirExists(t, filepath.Join(dir, "mine"))
	require.NoDirExists(t, filepath.Join(dir, ".export-mine"))
}

func TestModelsPullOfARepositoryWithoutGraphsIsAnsweredWithTheExport(t *testing.T) {
	t.Parallel()
	got := modelsIn(t.Context(), map[string]string{"HF_ENDPOINT": checkpointHub(t)}, "pull", "--dir", t.TempDir(), "owner/name")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "`rewardloop models export --family clip --model owner/name --name NAME`")
}

// tinyClip writes a checkpoint of CLIP with random weights, as the tests of the exporters have it.
const tinyClip = `
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import tiny_preference as tiny
out, tok = pathlib.Path(sys.argv[2]), tiny.clip_tokenizer()
tiny.clip_model(tok, 1, 32, 16).save_pretrained(out)
tiny.save_clip_processor(tok, out, 32)
`

// A checkpoint of CLIP's architecture becomes a model by the real exporter, PyTorch and onnxruntime,
// and the server's own onnxruntime answers as PyTorch did: its self-test holds that when it is warmed.
func TestPymodelsACheckpointBecomesAModelThatScores(t *testing.T) {
	t.Parallel()
	python := os.Getenv("REWARDLOOP_EXPORT_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: REWARDLOOP_EXPORT_PYTHON names no Python with the packages of models/export/requirements.txt; make test-pymodels does")
	}
	if _, err := ort.Find(""); err != nil {
		t.Skip("SKIPPED: no ONNX Runtime to score with: make ort")
	}
	sources, err := filepath.Abs(filepath.Join("..", "..", "models", "export"))
	require.NoError(t, err)
	dir := t.TempDir()
	checkpoint := filepath.Join(dir, "checkpoint")
	made, err := exec.CommandContext(t.Context(), python, "-c", tinyClip, sources, checkpoint).CombinedOutput() //nolint:gosec // the Python that the caller names
	require.NoError(t, err, string(made))
	c := &envCalls{dir: dir, vars: append(os.Environ(), "REWARDLOOP_MODELS="+filepath.Join(dir, "models"))}
	got := c.do(t, "models", "export", "--family", "clip", "--model", "checkpoint", "--name", "mine", "--interpreter", python)
	require.Equal(t, exitOK, got.code, got.stderr)
	off := regexp.MustCompile(`parity with PyTorch: off by (\S+) at most`).FindStringSubmatch(got.stdout)
	require.NotNil(t, off, got.stdout)
	value, err := strconv.ParseFloat(off[1], 64)
	require.NoError(t, err)
	require.LessOrEqual(t, value, 1e-4)
	t.Log(got.stdout)
	require.Equal(t, exitOK, c.do(t, "models", "verify", "mine").code)

	picture, _ := drawing(t, 1)
	put(t, dir, "a.png", picture)
	put(t, dir, "cfg.yaml", []byte("reward:\n  num_workers: 1\n  reward_functions:\n    mine: {path: builtin://clipscore, required: true, timeout: 120s, model: mine}\n"))
	put(t, dir, "samples.jsonl", []byte(`{"id": "a", "prompt": "a photo of a cat", "image": "a.png"}`+"\n"))
	got = c.do(t, "score", "-c", "cfg.yaml", "-i", "samples.jsonl", "-o", "-")
	require.Equal(t, exitOK, got.code, got.stderr)
	var row struct {
		Score *float64 `json:"reward_score"`
	}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &row), got.stdout)
	require.NotNil(t, row.Score, got.stdout)
	t.Log(got.stdout)
}
