package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/models"
)

// judgeHub serves every file of smolvlm-256m, made up, and notes who asks for what.
func judgeHub(t *testing.T) (*httptest.Server, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, path, _ := strings.Cut(r.URL.Path, "/resolve/")
		_, path, _ = strings.Cut(path, "/")
		mu.Lock()
		asked = append(asked, r.Method+" "+path)
		mu.Unlock()
		if path == "chat_template.jinja" {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(bytes.Repeat([]byte(path), 10_000)))
	}))
	t.Cleanup(s.Close)
	return s, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
}

func TestModelsPullSaysLicenceAndSizeBeforeAModelComes(t *testing.T) {
	t.Parallel()
	srv, asked := judgeHub(t)
	dir := t.TempDir()
	vars := map[string]string{"REWARDLOOP_MODELS": dir, "HF_ENDPOINT": srv.URL}
	got := modelsIn(t.Context(), vars, "pull", "smolvlm-256m", "--dry-run")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "smolvlm-256m/onnx/decoder_model_merged.onnx, size unknown, from hf://HuggingFaceTB/SmolVLM-256M-Instruct/onnx/")
	require.Contains(t, got.stdout, "smolvlm-256m/chat_template.jinja, optional, from ")
	require.Contains(t, got.stdout, "licence Apache-2.0, Hugging Face, https://")
	require.Empty(t, asked())

	got = modelsIn(t.Context(), vars, "pull", "smolvlm-256m")
	require.Equal(t, exitOK, got.code, got.stderr)
	said := strings.Split(got.stderr, "\n")
	require.Regexp(t, `^smolvlm-256m: 11 of 12 files to fetch, [0-9.]+ MB$`, said[0])
	require.Equal(t, "  licence Apache-2.0, Hugging Face, https://www.apache.org/licenses/LICENSE-2.0", said[1])
	require.Contains(t, got.stderr, "smolvlm-256m/chat_template.jinja: the source has none")
	require.Contains(t, got.stdout, "smolvlm-256m: pulled and verified 11 of 12 files")
	require.NotContains(t, got.stdout, "@main", "it names a commit")
	require.Contains(t, modelsIn(t.Context(), vars, "list", "smolvlm-256m").stdout, "smolvlm-256m  here, ")
	require.FileExists(t, filepath.Join(dir, "smolvlm-256m", "onnx", "vision_encoder.onnx"))

	srv.Close()
	got = modelsIn(t.Context(), vars, "pull", "smolvlm-256m")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "here already and verified")
	got = modelsIn(t.Context(), vars, "verify", "smolvlm-256m")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Equal(t, 11, strings.Count(got.stdout, "ok "), got.stdout)
}

func TestModelsPullWantsALicenceThatForbidsCommerceAccepted(t *testing.T) {
	t.Parallel()
	srv, asked := judgeHub(t)
	dir := t.TempDir()
	vars := map[string]string{"REWARDLOOP_MODELS": dir, "HF_ENDPOINT": srv.URL}
	got := modelsIn(t.Context(), vars, "pull", "qwen2.5-vl-3b-q4")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "LicenseRef-Qwen-Research")
	require.Contains(t, got.stderr, "--accept-licence")
	require.Empty(t, asked())
	got = modelsIn(t.Context(), vars, "pull", "--accept-licence", "qwen2.5-vl-3b-q4")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "@main moves")
}

func TestModelsAnswersWithTheCommandThatExportsAModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	command := "rewardloop models export pickscore-v1"
	got := modelsIn(t.Context(), nil, "list", "pickscore-v1", "--dir", dir)
	require.Contains(t, got.stdout, "pickscore-v1  absent, to be exported, MIT")
	require.Contains(t, got.stdout, "export: "+command+"\n")
	for _, args := range [][]string{{"pull", "pickscore-v1"}, {"pull", "--dry-run", "pickscore-v1"}} {
		got = modelsIn(t.Context(), nil, append(args, "--dir", dir)...)
		require.Equal(t, exitFailure, got.code)
		require.Contains(t, got.stderr, "run `"+command+"`")
	}
	put(t, dir, "pickscore-v1/scorer.json", []byte("{}"))
	for _, args := range [][]string{{"pull", "pickscore-v1"}, {"verify", "pickscore-v1"}} {
		got = modelsIn(t.Context(), nil, append(args, "--dir", dir)...)
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Contains(t, got.stdout, "self-test")
	}
	require.Contains(t, modelsIn(t.Context(), nil, "list", "pickscore-v1", "--dir", dir).stdout, "pickscore-v1  here, to be exported")
}

func modelsPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "models.md"))
	require.NoError(t, err)
	return string(text)
}

// What docs/models.md does on two machines is done here, in one folder; the hub is
// gone by the time of the second.
func TestTheWayToAMachineWithoutANetworkIsWalked(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts programs")
	}
	bin, err := build()
	require.NoError(t, err)
	srv, asked := judgeHub(t)
	_, section, found := strings.Cut(modelsPage(t), "\n## Machines without a network\n")
	require.True(t, found)
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	require.Len(t, blocks, 3)
	dir := t.TempDir()
	script := func(text string) string {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", text)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(bin)+string(filepath.ListSeparator)+os.Getenv("PATH"), "HF_ENDPOINT="+srv.URL, "HF_TOKEN=", "HF_HOME="+filepath.Join(dir, "hf"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", text, out)
		return string(out)
	}
	require.Contains(t, script(blocks[0][1]), "pulled and verified")
	require.NotEmpty(t, asked())
	srv.Close()
	require.Contains(t, script(blocks[1][1]), "nothing was downloaded")
	// What is here was unbundled, not pulled.
	exported := "export REWARDLOOP_MODELS=$PWD/offline/models\n"
	said := script(exported + blocks[2][1])
	require.Contains(t, said, "DIFFERS  smolvlm-256m/config.json\n")
	require.Contains(t, said, "sums differ")
}

// cachedRepository makes the cache of Hugging Face's library below home have a file.
func cachedRepository(t *testing.T, home, text string) {
	t.Helper()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	folder := filepath.Join(home, "hub", "models--owner--name")
	for name, content := range map[string]string{"refs/main": commit, "blobs/etag": text} {
		at := filepath.Join(folder, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
	}
	at := filepath.Join(folder, "snapshots", commit, "model.onnx")
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
	require.NoError(t, os.Symlink("../../blobs/etag", at))
}

func TestModelsPullTakesWhatHuggingFacesCacheHas(t *testing.T) {
	t.Parallel()
	home, dir := t.TempDir(), t.TempDir()
	vars := map[string]string{"REWARDLOOP_MODELS": dir, "HF_HOME": home, "HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:1"}
	const source = "hf://owner/name/model.onnx@main"
	got := modelsIn(t.Context(), vars, "pull", source)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "HF_HUB_OFFLINE=1 forbids access to the hub")
	require.Contains(t, got.stderr, filepath.Join(home, "hub"))

	cachedRepository(t, home, "the bytes")
	got = modelsIn(t.Context(), vars, "pull", source, "--dry-run")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "and in Hugging Face's cache: "+filepath.Join(home, "hub"))
	got = modelsIn(t.Context(), vars, "pull", source)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stderr, "owner/name/model.onnx: out of Hugging Face's cache, ")
	require.Contains(t, got.stdout, "pulled and verified 1 of 1 files")
	require.Contains(t, got.stdout, "1 of them in Hugging Face's cache already")
	text, err := os.ReadFile(filepath.Join(dir, "owner", "name", "model.onnx"))
	require.NoError(t, err)
	require.Equal(t, "the bytes", string(text))
}

func TestTheTableOfModelsIsTheCatalogue(t *testing.T) {
	t.Parallel()
	page := modelsPage(t)
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*$").FindAllStringSubmatch(page, -1)
	all := models.Catalogue()
	require.Len(t, rows, len(all))
	for i, m := range all {
		row := rows[i][0]
		require.Equal(t, m.Name, rows[i][1])
		require.Contains(t, row, "| ["+m.Licence.SPDX+"]("+m.Licence.URL+"), "+m.Licence.Holder+" |")
		require.Equal(t, m.Export != "", strings.HasSuffix(row, "| export |"), row)
		require.Equal(t, m.Licence.NonCommercial, strings.Contains(row, "--accept-licence"), row)
		if m.Export != "" {
			require.Contains(t, page, "rewardloop models export")
		}
	}
}
