package documents_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each page of docs/recipes is followed from its first command to its last: its server runs, its Python is called with the
// package of python/, and what the page shows is what it prints. Blocks called trainer need a trainer and its cards, and so do
// blocks of Python without a file: make test-trainers has the trainers' own code call the adapters.
func TestEveryRecipeOfATrainerIsFollowed(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join("docs", "recipes", "*.md"))
	require.NoError(t, err)
	require.Greater(t, len(pages), 11)
	for _, page := range pages {
		if filepath.Base(page) == "README.md" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			followRecipe(t, page)
		})
	}
}

func followRecipe(t *testing.T, page string) {
	t.Helper()
	w := walk(t)
	w.python(t)
	printed, compared, served := "", 0, false
	for _, b := range blocks(t, page) {
		switch {
		case b.language == "sh":
			printed = w.block(t, b.text, func(string) string { return "" })
			served = served || strings.Contains(b.text, "rewardloop serve")
		case b.file != "":
			require.NoError(t, os.WriteFile(filepath.Join(w.dir, b.file), []byte(w.here(t, b.text)), 0o600))
		case b.language == "text":
			require.Equal(t, b.text, printed, "%s\n%s", page, w.logs())
			compared++
		default:
			require.Contains(t, []string{"trainer", "python"}, b.language, page)
		}
	}
	require.True(t, served, "%s starts no server", page)
	require.Equal(t, 1, compared, "%s shows no answer", page)
}

// python has the walk find the packages of the clone's environment, and that of python/.
func (w *walker) python(t *testing.T) {
	t.Helper()
	root, err := os.Getwd()
	require.NoError(t, err)
	bin := filepath.Join(root, ".venv", "bin")
	if _, err := os.Stat(filepath.Join(bin, "python")); err != nil {
		t.Skipf("SKIPPED: there is no .venv, which make deps makes: %v", err)
	}
	w.env = append(w.env, "PATH="+filepath.Join(w.dir, "bin")+string(filepath.ListSeparator)+bin+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"PYTHONPATH="+filepath.Join(root, "python"), "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=127.0.0.1")
}
