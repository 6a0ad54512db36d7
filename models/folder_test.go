package models_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/models"
)

// filled is a folder with a file.
func filled(t *testing.T, dir, file string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte("{}"), 0o600))
	return dir
}

func TestANameIsResolvedToAFolderOfTheCatalogueByPathOrByHand(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	mine := filled(t, filepath.Join(s.Dir, "my-reward"), "scorer.json")
	elsewhere := filled(t, filepath.Join(t.TempDir(), "x"), "scorer.json")
	picked := filled(t, filepath.Join(s.Dir, "pickscore-v1"), "scorer.json")
	here, err := os.Getwd()
	require.NoError(t, err)
	rel, err := filepath.Rel(here, elsewhere)
	require.NoError(t, err)
	for name, is := range map[string]string{
		"my-reward": mine, elsewhere: elsewhere, rel: elsewhere, "./sidecars": filepath.Join(here, "sidecars"), ".": here, "pickscore-v1": picked,
	} {
		got, err := s.Resolve(name)
		require.NoError(t, err, name)
		require.Equal(t, is, got, name)
	}
	require.NoError(t, s.Pull(t.Context(), mustFind(t, "pickscore-v1"), models.Options{}), "it is here")
	require.True(t, s.Have(mustFind(t, "pickscore-v1")))
}

func TestANameThatIsNoFolderIsAnsweredWithWhatThereIs(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	_, err := s.Resolve("nothing")
	want(t, err, models.ErrUnknown, "clip-vit-large-patch14", "further folders: none")
	filled(t, filepath.Join(s.Dir, "my-judge"), "config.json")
	filled(t, filepath.Join(s.Dir, "no-model"), "notes.txt")
	_, err = s.Resolve("nothing")
	want(t, err, models.ErrUnknown, "further folders: my-judge;")
	for _, name := range []string{"", "a b", "manifest.json"} {
		_, err = s.Resolve(name)
		want(t, err, models.ErrUnknown)
	}
	for _, name := range []string{"./nothing", "/nothing/here", "a/b", "../models/folder_test.go"} {
		_, err = s.Resolve(name)
		want(t, err, models.ErrMissing, name)
	}
	_, err = s.Resolve("clip-vit-base-patch32")
	want(t, err, models.ErrMissing, "`rewardloop models pull clip-vit-base-patch32`", "vision_model.onnx", "scorer.json")
	_, err = s.Resolve("ppocr-v4-mobile")
	want(t, err, models.ErrUnknown, "not a folder")
}

func TestAModelThatHasToBeExportedIsAnsweredWithTheCommand(t *testing.T) {
	t.Parallel()
	exported := 0
	for _, m := range models.Catalogue() {
		if m.Export == "" {
			continue
		}
		exported++
		s := store(t, "http://localhost")
		err := s.Pull(t.Context(), m, models.Options{})
		want(t, err, models.ErrExport, "run `rewardloop models export "+m.Name+"`", s.Dir)
		_, err = s.Resolve(m.Name)
		want(t, err, models.ErrExport, m.Export)
		require.False(t, s.Have(m))
	}
	require.Equal(t, 3, exported)
}

func TestAFileOfAnotherSizeIsNotTakenForTheModels(t *testing.T) {
	t.Parallel()
	s, m := store(t, ""), mustFind(t, "clip-vit-base-patch32")
	for _, f := range m.Files {
		at, err := s.Path(m, f.Role)
		require.NoError(t, err)
		filled(t, filepath.Dir(at), filepath.Base(at))
	}
	_, err := s.Folder(m)
	want(t, err, models.ErrChecksum, "vision_model.onnx has 2 bytes, not 351685709")
	require.False(t, s.Have(m))
}

// Files of a model lie below a folder of its name, and the sidecar is one that the
// program has and can be read.
func TestEveryFolderOfTheCatalogueHasASidecarThatTheProgramBrings(t *testing.T) {
	t.Parallel()
	s := store(t, "")
	for _, m := range models.Catalogue() {
		side, is := m.File("sidecar")
		if !is {
			require.True(t, m.Export != "" || strings.HasPrefix(m.Name, "ppocr"), m.Name)
			continue
		}
		require.Positive(t, side.Size, m.Name)
		require.Len(t, side.SHA256, 64, m.Name)
		only := m
		only.Files = []models.File{side}
		require.NoError(t, s.Pull(t.Context(), only, models.Options{}), "no network, and no licence to agree to")
		at, err := s.Path(only, "sidecar")
		require.NoError(t, err)
		text, err := os.ReadFile(at)
		require.NoError(t, err)
		var about struct {
			Format             int
			Kind, Name, Source string
			Licence            string
			DType              map[string]string
			LogitScale         float64 `json:"logit_scale"`
		}
		require.NoError(t, json.Unmarshal(text, &about), m.Name)
		require.Equal(t, 1, about.Format)
		if filepath.Base(at) == "scorer.json" {
			require.Equal(t, m.Name, about.Name)
			require.Equal(t, m.Licence.SPDX, about.Licence)
			require.Greater(t, about.LogitScale, 1.0)
			vision, _ := m.File("vision")
			repository, _, _ := strings.Cut(about.Source, "@")
			_, revision, _ := strings.Cut(about.Source, "@")
			require.True(t, strings.HasPrefix(vision.Source, repository+"/") && strings.HasSuffix(vision.Source, "@"+revision), about.Source)
			continue
		}
		for role, dtype := range about.DType {
			f, has := m.File(role)
			require.True(t, has, "%s: %s", m.Name, role)
			if dtype != "" {
				dtype = "_" + dtype
			}
			require.Regexp(t, `(encoder|tokens|merged)`+dtype+`\.onnx$`, f.Name, "judge.json names the files that are pulled")
		}
	}
}

func TestAPartOfTheProgramIsNotPulledByItself(t *testing.T) {
	t.Parallel()
	_, err := models.FromSource("embed://judge-qwen.json")
	want(t, err, models.ErrSource, "name the model")
	for _, text := range []string{"embed://../x", "embed://", "embed://a/b"} {
		_, err := models.ParseSource(text)
		want(t, err, models.ErrSource)
	}
	m := hub("")
	m.Files[0].Source = "embed://nothing.json"
	want(t, store(t, "").Pull(t.Context(), m, models.Options{}), models.ErrFetch, "nothing.json")
}

func TestAModelHasEitherFilesOrACommand(t *testing.T) {
	t.Parallel()
	m := hub("")
	m.Export = "make it"
	require.ErrorContains(t, m.Validate(), "either files or a command")
	m.Export, m.Files = "", nil
	require.ErrorContains(t, m.Validate(), "either files or a command")
}
