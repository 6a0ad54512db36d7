package models_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/models"
)

const listedCommit = "0123456789abcdef0123456789abcdef01234567"

// listing serves what the hub says of owner/name, which has the files that are named.
func listing(t *testing.T, files ...string) models.Store {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, is := strings.CutPrefix(r.URL.Path, "/owner/name/resolve/"+listedCommit+"/")
		switch {
		case is:
			fmt.Fprint(w, at)
		case r.URL.Path == "/api/models/owner/name/revision/main" && r.URL.Query().Get("blobs") == "true" && r.Header.Get("Authorization") == "Bearer a-token":
			fmt.Fprintf(w, `{"sha": "%s", "cardData": {"license": "mit"}, "siblings": [{"rfilename": "../x.onnx", "size": 1}`, listedCommit)
			for _, f := range files {
				fmt.Fprintf(w, `, {"rfilename": %q, "size": %d}`, f, len(f))
			}
			fmt.Fprint(w, "]}")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	s := store(t, srv.URL)
	s.Token = "a-token"
	return s
}

// names are those of a model's files.
func names(m models.Model) (all []string) {
	for _, f := range m.Files {
		all = append(all, strings.TrimPrefix(f.Name, "owner/name/"))
	}
	return all
}

func TestOfARepositoryTheFilesComeThatAScorerNeeds(t *testing.T) {
	t.Parallel()
	s := listing(t, "README.md", "config.json", "tokenizer.json", "model.safetensors", "onnx/model.onnx", "onnx/vision_model.onnx", "onnx/vision_model_fp16.onnx",
		"onnx/vision_model_quantized.onnx", "onnx/text_model.onnx", "onnx/text_model.onnx_data", "onnx/text_model_q4f16.onnx_data")
	r, err := s.Repository(t.Context(), "owner/name")
	require.NoError(t, err)
	require.Equal(t, listedCommit, r.Commit)
	require.Equal(t, []models.RepositoryFile{{Path: "model.safetensors", Size: 17}, {Path: "config.json", Size: 11}, {Path: "tokenizer.json", Size: 14}}, r.Checkpoint())
	m, err := models.FromRepository(r)
	require.NoError(t, err)
	require.Equal(t, "mit", m.Licence.SPDX)
	require.Equal(t, []string{"config.json", "onnx/text_model.onnx", "onnx/text_model.onnx_data", "onnx/vision_model.onnx", "tokenizer.json"}, names(m))
	require.NoError(t, s.Pull(t.Context(), m, models.Options{}))
	dir, err := s.Resolve("owner/name")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(s.Dir, "owner", "name"), dir)
	text, err := os.ReadFile(filepath.Join(dir, "onnx", "vision_model.onnx"))
	require.NoError(t, err)
	require.Equal(t, "onnx/vision_model.onnx", string(text))
}

func TestARepositoryWithoutGraphsIsAnsweredWithTheExport(t *testing.T) {
	t.Parallel()
	s := listing(t, "config.json", "pytorch_model.bin", "onnx/model_fp16.onnx")
	r, err := s.Repository(t.Context(), "owner/name@main")
	require.NoError(t, err)
	require.Equal(t, "pytorch_model.bin", r.Checkpoint()[0].Path)
	_, err = models.FromRepository(r)
	want(t, err, models.ErrSource, "`rewardloop models export --family clip --model owner/name --name NAME`", "hf://owner/name/FILE@"+listedCommit)
}

func TestARepositoryThatCannotBeHadIsNamedWithWhatToDo(t *testing.T) {
	t.Parallel()
	s := listing(t)
	_, err := s.Repository(t.Context(), "owner/other")
	want(t, err, models.ErrFetch, "owner/other@main", "404", "HF_TOKEN")
	_, err = s.Repository(t.Context(), "name")
	want(t, err, models.ErrSource, "owner/name@revision")
	away := s
	away.Endpoint = "http://127.0.0.1:1"
	_, err = away.Repository(t.Context(), "owner/name")
	want(t, err, models.ErrFetch, "no answer from http://127.0.0.1:1", "check the network")
	s.Offline = "HF_HUB_OFFLINE=1"
	_, err = s.Repository(t.Context(), "owner/name")
	want(t, err, models.ErrOffline, "HF_HUB_OFFLINE=1 forbids")
	for _, text := range []string{"no JSON", `{"sha": "main", "siblings": []}`} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		t.Cleanup(srv.Close)
		hostile := models.Store{Config: models.Config{Endpoint: srv.URL}}
		_, err = hostile.Repository(t.Context(), "owner/name")
		want(t, err, models.ErrFetch, "list of files")
	}
}
