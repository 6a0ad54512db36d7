package models_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/models"
)

// exporting writes a model's folder as an export does, up to its end.
func exporting(t *testing.T, s models.Store, name, text string) *models.Exporting {
	t.Helper()
	x, err := s.BeginExport(name)
	require.NoError(t, err)
	t.Cleanup(x.Close)
	for _, file := range []string{"scorer.json", "model.onnx"} {
		require.NoError(t, os.WriteFile(filepath.Join(x.Dir, file), []byte(text), 0o600))
	}
	return x
}

func TestAnExportIsInTheStoreAsAWholeWithItsSumsAndWhatItWasMadeOf(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	x := exporting(t, s, "mine", "first")
	_, err := s.Resolve("mine")
	want(t, err, models.ErrUnknown)
	m, err := x.Adopt(t.Context(), "hf://owner/name@c0ffee", "MIT", false)
	require.NoError(t, err)
	require.NoDirExists(t, x.Dir)
	dir, err := s.Resolve("mine")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(s.Dir, "mine"), dir)
	_, err = s.Verify(t.Context(), m)
	require.NoError(t, err)

	others, err := s.Others()
	require.NoError(t, err)
	require.Empty(t, others, "its files are no models")
	all, err := s.Exported()
	require.NoError(t, err)
	require.Equal(t, []models.Model{m}, all)
	require.Equal(t, "MIT", m.Licence.SPDX)
	require.Equal(t, "exported here from hf://owner/name@c0ffee", m.Summary)
	require.Equal(t, []string{"mine/model.onnx", "mine/scorer.json"}, []string{m.Files[0].Name, m.Files[1].Name})

	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.onnx"), []byte("other"), 0o600))
	_, err = s.Verify(t.Context(), m)
	want(t, err, models.ErrChecksum, "`rewardloop models export` with --again exports it again")
}

func TestAnExportReplacesWhatIsThereOnlyIfItIsTold(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	x := exporting(t, s, "mine", "first")
	require.NoError(t, os.WriteFile(filepath.Join(x.Dir, "model.onnx_data"), []byte("first"), 0o600))
	_, err := x.Adopt(t.Context(), "local", "MIT", false)
	require.NoError(t, err)
	x.Close()

	x = exporting(t, s, "mine", "second")
	_, err = x.Adopt(t.Context(), "local", "MIT", false)
	require.ErrorContains(t, err, "exists already")
	text, err := os.ReadFile(filepath.Join(s.Dir, "mine", "model.onnx"))
	require.NoError(t, err)
	require.Equal(t, "first", string(text))
	m, err := x.Adopt(t.Context(), "local", "MIT", true)
	require.NoError(t, err)
	require.Len(t, m.Files, 2, "the file that only the first export had is gone")
	_, err = s.Verify(t.Context(), m)
	require.NoError(t, err)
	found, err := os.ReadDir(s.Dir)
	require.NoError(t, err)
	for _, f := range found {
		require.False(t, f.IsDir() && f.Name() != "mine", f.Name())
	}
}

func TestAnExportOfACatalogueModelIsThatModelWithFiles(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	m, err := exporting(t, s, "pickscore-v1", "x").Adopt(t.Context(), "local", "", false)
	require.NoError(t, err)
	is := mustFind(t, "pickscore-v1")
	require.True(t, s.Have(is))
	require.Equal(t, is.Summary, m.Summary)
	require.Equal(t, is.Licence, m.Licence)
}

func TestAnExportThatIsNotAdoptedLeavesNothing(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	x := exporting(t, s, "mine", "half")
	_, err := s.BeginExport("mine")
	require.ErrorContains(t, err, "another process exports the model")
	x.Close()
	require.NoDirExists(t, x.Dir)
	x = exporting(t, s, "mine", "half")
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(x.Dir, "tokenizer.json")))
	_, err = x.Adopt(t.Context(), "local", "", false)
	want(t, err, models.ErrName, "mine/tokenizer.json, which is not a regular file")
	require.NoDirExists(t, filepath.Join(s.Dir, "mine"))
}

func TestAnExportGetsNoNameThatLeavesTheStoreOrMeansAnotherModel(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	for _, name := range []string{"", "../x", "a/b", ".hidden", "manifest.json", "a b"} {
		_, err := s.BeginExport(name)
		want(t, err, models.ErrName)
	}
	_, err := s.BeginExport("smolvlm-256m")
	want(t, err, models.ErrTaken, "give another name")
}

func TestAManifestThatGivesAFileToAnotherModelIsRefused(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	text := `{"version": 1, "files": {"a/b.onnx": {"sha256": "` + strings.Repeat("0", 64) + `", "model": "c"}}}`
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "manifest.json"), []byte(text), 0o600))
	_, err := s.Exported()
	want(t, err, models.ErrManifest, `a/b.onnx is not a file of the model "c"`)
}
