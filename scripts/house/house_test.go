package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tree writes files below a folder of its own.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

const six = "\ta := 1\n\tb := a\n\tc := b\n\td := c\n\te := d\n\tf := e\n"

func TestAHouseIsMeasured(t *testing.T) {
	t.Parallel()
	h, err := measure(tree(t, map[string]string{
		"a/a.go":                  "package a\n\n// one has a word.\nfunc one() {\n" + six + "\t_ = f\n}\n",
		"b/b.go":                  "package b\n\nimport (\n\t\"fmt\"\n)\n\nfunc two() {\n\t// Another word.\n" + six + "\tfmt.Println(f)\n}\n\nfunc three() {}\n",
		"b/b_test.go":             "package b\n\nfunc help() {}\n",
		"internal/testkit/k/k.go": "package k\n",
		"a/testdata/x.go":         "no Go at all",
		".cache/x.go":             "no Go at all",
	}))
	require.NoError(t, err)
	require.Equal(t, 2, h.packages)
	require.Equal(t, part{files: 2, lines: 12 + 18, comments: 2, repeated: 12}, h.code)
	require.Equal(t, part{files: 2, lines: 4}, h.tests)
	require.Equal(t, []span{{"b/b.go two", 10}, {"a/a.go one", 9}, {"b/b.go three", 1}}, h.functions)
	require.Equal(t, []span{{"b/b.go", 18}, {"a/a.go", 12}}, h.files)
}

func TestOverlappingRunsAreCountedOnce(t *testing.T) {
	t.Parallel()
	h, err := measure(tree(t, map[string]string{
		"a.go": "package a\n\nfunc one() {\n" + six + "\tg := f\n\t_ = g\n}\n",
		"b.go": "package a\n\nfunc two() {\n\n" + six + "\t// A word.\n\tg := f\n\t_ = g\n}\n",
	}))
	require.NoError(t, err)
	require.Equal(t, 16, h.code.repeated)
}

func TestQuantilesCountFromTheShortest(t *testing.T) {
	t.Parallel()
	var spans []span
	for n := 100; n > 0; n-- {
		spans = append(spans, span{lines: n})
	}
	require.Equal(t, 50, at(spans, 0.5))
	require.Equal(t, 99, at(spans, 0.99))
	require.Equal(t, 10, longer(spans, 90))
	require.Zero(t, at(nil, 0.5))
}

func TestTheTableHasAColumnForEachHouse(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a.go": "package a\n\nfunc f() {}\n"})
	var out strings.Builder
	require.NoError(t, run([]string{"before=" + dir, "after=" + dir}, &out))
	require.Contains(t, out.String(), "|  | before | after |\n|---|---|---|\n| packages | 1 | 1 |\n")
	require.Contains(t, out.String(), "| largest files | `a.go` 3 | `a.go` 3 |\n")
}

func TestAFolderWithoutGoIsRefused(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run([]string{"x=" + t.TempDir()}, &strings.Builder{}), "holds no Go")
	require.Error(t, run([]string{filepath.Join(t.TempDir(), "nowhere")}, &strings.Builder{}))
}
