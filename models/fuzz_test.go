package models_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rewardloop/rewardloop/models"
)

func FuzzWhatAPersonNamesStaysInTheStore(f *testing.F) {
	for _, text := range []string{
		"hf://a/b/c.onnx@main", "hf://a/b/../../c", "pip://p==1/a/b.onnx", "file:///a/b.onnx", "x.onnx", "../x.onnx", "hf://a/../c@d", "pip://..==1/x",
	} {
		f.Add(text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		m, err := models.FromSource(text)
		if err != nil {
			return
		}
		ok(t, m.Validate())
		at, err := models.Store{Dir: dir}.Path(m, "model")
		ok(t, err)
		rel, err := filepath.Rel(dir, at)
		ok(t, err)
		if !filepath.IsLocal(rel) || rel == "." || strings.HasPrefix(filepath.Base(rel), ".") || rel == "manifest.json" {
			t.Fatalf("%q lies at %q", text, rel)
		}
	})
}
