package models_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/rewardloop/rewardloop/models"
)

func TestADamagedManifestIsNamedAndNothingIsLost(t *testing.T) {
	t.Parallel()
	sum := hexSum(body)
	for name, text := range map[string]string{
		"empty":         "",
		"cut off":       `{"version": 1, "files": {"m.onnx": {"sha`,
		"not JSON":      "\x00\x00\x00\x00",
		"other type":    `[]`,
		"newer":         `{"version": 2, "files": {}}`,
		"unsafe name":   `{"version": 1, "files": {"../m.onnx": {"sha256": "` + sum + `"}}}`,
		"no sum":        `{"version": 1, "files": {"m.onnx": {"sha256": "spoilt", "size": 1}}}`,
		"without end":   `{"version": 1, "files": {` + string(bytes.Repeat([]byte(" "), 17<<20)) + `}}`,
		"negative size": `{"version": 1, "files": {"m.onnx": {"sha256": "` + sum + `", "size": -1}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, asked, _ := server(t, 0, same)
			s := store(t, srv.URL)
			at := filepath.Join(s.Dir, "manifest.json")
			ok(t, os.WriteFile(at, []byte(text), 0o600))
			want(t, s.Pull(t.Context(), hub(""), models.Options{}), models.ErrManifest, at, "remove the file")
			_, err := s.Verify(t.Context(), hub(""))
			want(t, err, models.ErrManifest, at)
			_, err = s.Others()
			want(t, err, models.ErrManifest, at)
			still, err := os.ReadFile(at)
			ok(t, err)
			if asked.Load() != 0 || string(still) != text {
				t.Fatalf("asked %d times, or the manifest was changed", asked.Load())
			}
			ok(t, os.Remove(at))
			ok(t, s.Pull(t.Context(), hub(""), models.Options{}))
		})
	}
}

func TestAManifestThatIsAFolderIsNamed(t *testing.T) {
	t.Parallel()
	s := store(t, "http://localhost")
	ok(t, os.Mkdir(filepath.Join(s.Dir, "manifest.json"), 0o700))
	want(t, s.Pull(t.Context(), hub(""), models.Options{}), models.ErrManifest)
}

func TestAFileOfUnknownSourceIsFoundAgainByItsName(t *testing.T) {
	t.Parallel()
	from := filepath.Join(t.TempDir(), "scorer.onnx")
	ok(t, os.WriteFile(from, body, 0o600))
	m, err := models.FromSource(from)
	ok(t, err)
	s := store(t, "")
	ok(t, s.Pull(t.Context(), m, models.Options{}))
	others, err := s.Others()
	ok(t, err)
	if len(others) != 1 || others[0].Name != "scorer.onnx" || others[0].Size() != int64(len(body)) || others[0].Files[0].Source != "file://"+from {
		t.Fatalf("%+v", others)
	}
	_, err = s.Verify(t.Context(), others[0])
	ok(t, err)
	ok(t, os.WriteFile(filepath.Join(s.Dir, "scorer.onnx"), bytes.ToUpper(body), 0o600))
	_, err = s.Verify(t.Context(), others[0])
	want(t, err, models.ErrChecksum, "recorded at the first pull", hexSum(body))
}

func TestTwoFilesOfOneNameAreNotTakenForOneAnother(t *testing.T) {
	t.Parallel()
	var pulled []models.Model
	for _, content := range []string{"one", "two"} {
		from := filepath.Join(t.TempDir(), "scorer.onnx")
		ok(t, os.WriteFile(from, []byte(content), 0o600))
		m, err := models.FromSource(from)
		ok(t, err)
		pulled = append(pulled, m)
	}
	s := store(t, "")
	ok(t, s.Pull(t.Context(), pulled[0], models.Options{}))
	want(t, s.Pull(t.Context(), pulled[1], models.Options{}), models.ErrTaken, pulled[0].Files[0].Source, "remove")
	ok(t, os.Remove(filepath.Join(s.Dir, "scorer.onnx")))
	ok(t, s.Pull(t.Context(), pulled[1], models.Options{}))
	_, err := s.Verify(t.Context(), pulled[1])
	ok(t, err)
}

func TestWhatAPersonNamesBecomesAModelOfOneFile(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs("x.onnx")
	ok(t, err)
	for text, is := range map[string][2]string{ // name, source
		"hf://a/b/onnx/m.onnx":           {"a/b/onnx/m.onnx", "hf://a/b/onnx/m.onnx@main"},
		"hf://a/b/m.onnx@c0ffee":         {"a/b/m.onnx", "hf://a/b/m.onnx@c0ffee"},
		"pip://p==1.2/p/models/det.onnx": {"p-1.2/det.onnx", "pip://p==1.2/p/models/det.onnx"},
		"x.onnx":                         {"x.onnx", "file://" + here},
		"file:///d/x.onnx":               {"x.onnx", "file:///d/x.onnx"},
	} {
		m, err := models.FromSource(text)
		ok(t, err)
		if m.Name != is[0] || m.Files[0].Name != is[0] || m.Files[0].Source != is[1] {
			t.Errorf("%s: %+v", text, m)
		}
	}
	for text, target := range map[string]error{
		"ftp://a/b": models.ErrSource, "hf://a": models.ErrSource, "hf://a/b/../../c@main": models.ErrSource,
		"pip://p/x": models.ErrSource, "file://x": models.ErrSource, "": models.ErrSource, "/": models.ErrName, ".hidden": models.ErrName,
		"with blank.onnx": models.ErrName, "hf://a/.b/c@main": models.ErrName,
	} {
		_, err := models.FromSource(text)
		want(t, err, target)
	}
}

func TestAFileTheCatalogueKnowsIsHeldToItsSum(t *testing.T) {
	t.Parallel()
	known := mustFind(t, "ppocr-v4-mobile").Files[0]
	from := filepath.Join(t.TempDir(), known.Name)
	ok(t, os.WriteFile(from, body, 0o600))
	m, err := models.FromSource(from)
	ok(t, err)
	s := store(t, "")
	want(t, s.Pull(t.Context(), m, models.Options{}), models.ErrChecksum)
	if _, err := os.Stat(filepath.Join(s.Dir, known.Name)); !os.IsNotExist(err) {
		t.Fatal("it was taken all the same")
	}
}

func TestAFolderAndAPipeAreNoSources(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "folder")
	ok(t, os.Mkdir(dir, 0o700))
	m, err := models.FromSource(dir)
	ok(t, err)
	want(t, store(t, "").Pull(t.Context(), m, models.Options{}), models.ErrFetch, "not a regular file")
}
