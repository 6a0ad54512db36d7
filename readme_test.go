package rewardloop_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/standard"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(b)
}

func TestReadmeShowsThePythonClientThatIsTested(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(readme(t), "```python\n")
	require.True(t, found, "README.md has no python block")
	block, _, _ := strings.Cut(rest, "```")
	file, err := os.ReadFile(filepath.Join("examples", "python_ten_lines", "client.py"))
	require.NoError(t, err)
	require.Equal(t, string(file), block, "README.md and examples/python_ten_lines/client.py differ")
}

func TestReadmeConfigurationBuildsItsRewards(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(readme(t), "<<'EOF'\n")
	require.True(t, found, "README.md has no configuration")
	text, _, _ := strings.Cut(rest, "EOF")
	cfg, err := config.Parse("README.md", []byte(text), nil, os.LookupEnv)
	require.NoError(t, err)
	var reg rewards.Registry
	standard.Register(&reg, standard.Deps{})
	for _, term := range cfg.Profiles[config.DefaultProfile].Terms {
		_, known := reg.Spec(term.Scorer)
		require.True(t, known, term.Path)
	}
}

func TestDocumentsLinkToFilesThatExist(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	docs = append(docs, "README.md", "CONTRIBUTING.md")
	path := regexp.MustCompile("`((?:docs|examples|rewards|loop|wire|client|server|workers|fabric|config|internal|media|bench|scripts|cmd)/[A-Za-z0-9_./-]+)`")
	for _, doc := range docs {
		b, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, m := range path.FindAllStringSubmatch(string(b), -1) {
			_, err := os.Stat(filepath.FromSlash(m[1]))
			require.NoError(t, err, "%s names %s", doc, m[1])
		}
	}
}
