package hfcache_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/hfcache"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

func vars(all map[string]string) hfcache.Getenv {
	return func(name string) (string, bool) { v, is := all[name]; return v, is }
}

func TestTheFolderIsTheOneOfHuggingFacesLibrary(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		vars map[string]string
		dir  string
	}{
		{map[string]string{"HF_HUB_CACHE": "/a", "HUGGINGFACE_HUB_CACHE": "/b", "HF_HOME": "/c", "XDG_CACHE_HOME": "/d", "HOME": "/e"}, "/a"},
		{map[string]string{"HUGGINGFACE_HUB_CACHE": "/b", "HF_HOME": "/c", "XDG_CACHE_HOME": "/d", "HOME": "/e"}, "/b"},
		{map[string]string{"HF_HOME": "/c", "XDG_CACHE_HOME": "/d", "HOME": "/e"}, "/c/hub"},
		{map[string]string{"XDG_CACHE_HOME": "/d", "HOME": "/e"}, "/d/huggingface/hub"},
		{map[string]string{"HOME": "/e"}, "/e/.cache/huggingface/hub"},
		{map[string]string{"HF_HOME": "~/hf", "HOME": "/e"}, "/e/hf/hub"},
		{map[string]string{"HF_HUB_CACHE": "$SCRATCH/hf", "SCRATCH": "/s"}, "/s/hf"},
		{map[string]string{}, ""},
	} {
		require.Equal(t, c.dir, hfcache.FromEnvironment(vars(c.vars)).Dir, "%v", c.vars)
	}
}

func TestTheTokenIsTheOneOfHuggingFacesLibrary(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(home, "token"), []byte("of home\n"), 0o600))
	path := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(path, []byte("of path"), 0o600))
	for _, c := range []struct {
		vars  map[string]string
		token string
	}{
		{map[string]string{"HF_TOKEN": " one\n", "HUGGING_FACE_HUB_TOKEN": "two", "HF_HOME": home}, "one"},
		{map[string]string{"HUGGING_FACE_HUB_TOKEN": "two", "HF_HOME": home}, "two"},
		{map[string]string{"HF_TOKEN_PATH": path, "HF_HOME": home}, "of path"},
		{map[string]string{"HF_HOME": home}, "of home"},
		{map[string]string{"HF_HOME": path}, ""},
		{map[string]string{}, ""},
	} {
		require.Equal(t, c.token, hfcache.Token(vars(c.vars)), "%v", c.vars)
	}
}

func TestOfflineIsSaidAsHuggingFacesLibraryReadsIt(t *testing.T) {
	t.Parallel()
	require.Equal(t, "HF_HUB_OFFLINE=True", hfcache.Offline(vars(map[string]string{"HF_HUB_OFFLINE": "True"})))
	require.Equal(t, "TRANSFORMERS_OFFLINE=on", hfcache.Offline(vars(map[string]string{"TRANSFORMERS_OFFLINE": "on"})))
	require.Empty(t, hfcache.Offline(vars(map[string]string{"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"})))
	require.Empty(t, hfcache.Offline(vars(nil)))
}

func TestNamesThatLeadOutOfTheCacheAreRefused(t *testing.T) {
	t.Parallel()
	c := hfcache.Cache{Dir: t.TempDir()}
	good := hfcache.Entry{File: hfcache.File{Repository: "a/b", Revision: "main", Path: "c"}, Commit: commit, ETag: "e"}
	slot, err := c.Begin(t.Context(), good, nil)
	require.NoError(t, err)
	slot.Close()
	for name, change := range map[string]func(*hfcache.Entry){
		"repository of dots":    func(e *hfcache.Entry) { e.Repository = "a/.." },
		"repository with depth": func(e *hfcache.Entry) { e.Repository = "a/b/c" },
		"repository of another": func(e *hfcache.Entry) { e.Repository = "a--b/c" },
		"revision of dots":      func(e *hfcache.Entry) { e.Revision = "refs/../../x" },
		"path of dots":          func(e *hfcache.Entry) { e.Path = "../c" },
		"absolute path":         func(e *hfcache.Entry) { e.Path = "/c" },
		"path of Windows":       func(e *hfcache.Entry) { e.Path = `..\c` },
		"empty path":            func(e *hfcache.Entry) { e.Path = "" },
		"commit":                func(e *hfcache.Entry) { e.Commit = "../" + commit },
		"ETag with a slash":     func(e *hfcache.Entry) { e.ETag = "../e" },
		"hidden ETag":           func(e *hfcache.Entry) { e.ETag = ".e" },
		"long ETag":             func(e *hfcache.Entry) { e.ETag = strings.Repeat("e", 129) },
		"ETag that is no sum":   func(e *hfcache.Entry) { e.Sum = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := good
			change(&bad)
			_, err := c.Begin(t.Context(), bad, nil)
			require.ErrorContains(t, err, "unsafe name")
			if bad.File != good.File {
				_, err = c.Find(bad.File)
				require.ErrorContains(t, err, "unsafe name")
			}
		})
	}
}

func TestADamagedRefIsNamed(t *testing.T) {
	t.Parallel()
	c := hfcache.Cache{Dir: t.TempDir()}
	ref := filepath.Join(c.Dir, "models--a--b", "refs", "main")
	require.NoError(t, os.MkdirAll(filepath.Dir(ref), 0o700))
	require.NoError(t, os.WriteFile(ref, []byte("../../../etc"), 0o600))
	_, err := c.Find(hfcache.File{Repository: "a/b", Revision: "main", Path: "c"})
	require.ErrorIs(t, err, hfcache.ErrNotCached)
	require.ErrorContains(t, err, ref)
}

func TestAFolderInPlaceOfAFileIsNoFile(t *testing.T) {
	t.Parallel()
	c := hfcache.Cache{Dir: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Join(c.Dir, "models--a--b", "snapshots", commit, "c"), 0o700))
	_, err := c.Find(hfcache.File{Repository: "a/b", Revision: commit, Path: "c"})
	require.ErrorIs(t, err, hfcache.ErrNotCached)
	at, err := c.Snapshot("a/b", commit)
	require.NoError(t, err)
	require.DirExists(t, at)
}

func TestNoCacheHasNothing(t *testing.T) {
	t.Parallel()
	_, err := hfcache.Cache{}.Find(hfcache.File{Repository: "a/b", Revision: commit, Path: "c"})
	require.ErrorIs(t, err, hfcache.ErrNotCached)
	require.Empty(t, hfcache.Cache{}.Blob("a/b", strings.Repeat("a", 64)))
}

func TestWhatHasNoSumLeavesNothingToGoOnFrom(t *testing.T) {
	t.Parallel()
	c := hfcache.Cache{Dir: t.TempDir()}
	e := hfcache.Entry{File: hfcache.File{Repository: "a/b", Revision: commit, Path: "d/c"}, Commit: commit, ETag: "e"}
	slot, err := c.Begin(t.Context(), e, nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(slot.Partial(), []byte("half"), 0o600))
	slot.Close()
	require.NoFileExists(t, slot.Partial())
	require.Zero(t, c.Left(e))
}
