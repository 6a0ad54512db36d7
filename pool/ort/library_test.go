package ort_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

func TestAPlaceThatWasNamedIsTheOnlyOneLookedAt(t *testing.T) {
	t.Parallel()
	lib := onnx.Library(t)
	_, err := ort.Find(filepath.Join(t.TempDir(), "nowhere.so"))
	require.ErrorIs(t, err, infer.ErrUnavailable)
	require.ErrorContains(t, err, "nowhere.so (from the configuration): not found")
	require.ErrorContains(t, err, "make ort")
	require.NotContains(t, err.Error(), "/usr/local/lib")

	named, err := ort.Find(lib.Path)
	require.NoError(t, err)
	require.Equal(t, "the configuration", named.From)
	require.Equal(t, lib.Version, named.Version)
	folder, err := ort.Find(filepath.Dir(lib.Path))
	require.NoError(t, err)
	require.Equal(t, lib.Version, folder.Version)
	require.Contains(t, folder.String(), "ONNX Runtime "+lib.Version+" at ")
	require.Contains(t, folder.Providers(), "CPUExecutionProvider")
}

// The version in the file counts, not its name: distributions and npm call every
// release libonnxruntime.so.1.
func TestAnOldLibraryIsRefusedWithBothVersionsAndWhatToDo(t *testing.T) {
	t.Parallel()
	lib := onnx.Library(t)
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: versions are read from file names here")
	}
	whole, err := os.ReadFile(lib.Path)
	require.NoError(t, err)
	old := bytes.ReplaceAll(whole, []byte("VERS_"+lib.Version), []byte("VERS_1.24.3"))
	require.NotEqual(t, whole, old)
	dir := t.TempDir()
	path := filepath.Join(dir, "libonnxruntime.so.1")
	require.NoError(t, os.WriteFile(path, old, 0o600))
	for _, configured := range []string{path, dir} {
		_, err = ort.Find(configured)
		require.ErrorIs(t, err, infer.ErrUnavailable)
		require.ErrorContains(t, err, "version 1.24.3, want 1.29 or newer")
		require.ErrorContains(t, err, "make ort")
	}
	// Beside a good one it does no harm.
	require.NoError(t, os.Symlink(lib.Path, filepath.Join(dir, "libonnxruntime.so")))
	got, err := ort.Find(dir)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "libonnxruntime.so"), got.Path)
}

func TestFilesThatAreNoLibraryAreRefused(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: files are not looked into here")
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	empty := t.TempDir()
	for path, says := range map[string]string{
		write("empty.so", nil): "not a shared library",
		write("lfs.so", []byte("version https://git-lfs.github.com")): "not a shared library",
		write("cut.so", self[:100]):                                   "not a shared library",
		write("other.so", self):                                       "no symbol OrtGetApiBase",
		empty:                                                         "contains no libonnxruntime",
	} {
		_, err := ort.Find(path)
		require.ErrorIs(t, err, infer.ErrUnavailable)
		require.ErrorContains(t, err, says, path)
	}
}
