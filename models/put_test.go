package models_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/models"
)

// given describes a file with a content.
func given(name, content string) models.Given {
	sum := sha256.Sum256([]byte(content))
	return models.Given{Name: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Source: "hf://owner/repository/" + filepath.Base(name) + "@main"}
}

func intake(t *testing.T, s models.Store) *models.Intake {
	t.Helper()
	in, err := s.Intake(t.Context(), models.Options{})
	require.NoError(t, err)
	t.Cleanup(in.Close)
	return in
}

func TestAFileThatIsGivenIsPutWithItsSumOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := models.Store{Dir: t.TempDir()}
	in := intake(t, s)
	g := given("mine/model.onnx", "weights")
	there, err := in.Has(t.Context(), g)
	require.NoError(t, err)
	require.False(t, there)
	for _, content := range []string{"weighty", "weight", "weights and more"} {
		require.Error(t, in.Put(t.Context(), g, strings.NewReader(content)))
		left, err := os.ReadDir(filepath.Join(s.Dir, "mine"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
	require.NoError(t, in.Put(t.Context(), g, strings.NewReader("weights")))
	there, err = in.Has(t.Context(), g)
	require.NoError(t, err)
	require.True(t, there)
	sums, err := s.Sums()
	require.NoError(t, err)
	require.Equal(t, map[string]string{g.Name: g.SHA256}, sums)

	_, err = in.Has(t.Context(), given(g.Name, "another"))
	require.ErrorContains(t, err, "is recorded in")
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "mine", "model.onnx"), []byte("damaged"), 0o600))
	there, err = in.Has(t.Context(), g)
	require.NoError(t, err)
	require.False(t, there, "it is damaged, and is put anew")
}

func TestAFolderThatWasExportedIsGivenWithoutARecord(t *testing.T) {
	t.Parallel()
	from, to := models.Store{Dir: t.TempDir()}, models.Store{Dir: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Join(from.Dir, "mine", ".git"), 0o755))
	for name, content := range map[string]string{"scorer.json": "{}", "model.onnx": "weights", ".git/config": "x", ".hidden": "x"} {
		require.NoError(t, os.WriteFile(filepath.Join(from.Dir, "mine", name), []byte(content), 0o600))
	}
	all, err := from.Tree(t.Context(), "mine")
	require.NoError(t, err)
	require.Len(t, all, 2)
	in := intake(t, to)
	for _, g := range all {
		content, err := os.ReadFile(filepath.Join(from.Dir, filepath.FromSlash(g.Name)))
		require.NoError(t, err)
		require.NoError(t, in.Put(t.Context(), g, strings.NewReader(string(content))))
	}
	others, err := to.Others()
	require.NoError(t, err)
	require.Empty(t, others)
	changed := all[0]
	changed.SHA256 = all[1].SHA256
	_, err = in.Has(t.Context(), changed)
	require.ErrorContains(t, err, "differs from the new file")
}

func TestAFileWithAWrongNameOrAgainstTheCatalogueIsRefused(t *testing.T) {
	t.Parallel()
	s := models.Store{Dir: t.TempDir()}
	in := intake(t, s)
	for _, name := range []string{"../model.onnx", "/model.onnx", ".hidden", "manifest.json", "x.part", ""} {
		require.ErrorIs(t, in.Put(t.Context(), given(name, "weights"), strings.NewReader("weights")), models.ErrName, name)
	}
	m, err := models.Find("ppocr-v4-mobile")
	require.NoError(t, err)
	_, err = in.Has(t.Context(), given(m.Files[0].Name, "weights"))
	require.ErrorContains(t, err, "as in the catalogue")
}

func TestAnExportThatIsGivenKeepsItsSumsSourceAndLicence(t *testing.T) {
	t.Parallel()
	from, to := store(t, ""), store(t, "")
	m, err := exporting(t, from, "mine", "weights").Adopt(t.Context(), "hf://owner/name@c0ffee", "MIT", false)
	require.NoError(t, err)
	all, err := from.Tree(t.Context(), "mine")
	require.NoError(t, err)
	in := intake(t, to)
	for _, g := range all {
		require.NoError(t, in.Put(t.Context(), g, strings.NewReader("weights")))
	}
	exported, err := to.Exported()
	require.NoError(t, err)
	require.Equal(t, []models.Model{m}, exported)
	_, err = to.Verify(t.Context(), m)
	require.NoError(t, err)

	wrong := all[0]
	wrong.Model = "other"
	require.ErrorIs(t, in.Put(t.Context(), wrong, strings.NewReader("weights")), models.ErrName)
	require.NoError(t, os.WriteFile(filepath.Join(from.Dir, "mine", "model.onnx"), []byte("other"), 0o600))
	_, err = from.Tree(t.Context(), "mine")
	require.ErrorIs(t, err, models.ErrChecksum)
}
