package rewardloop_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
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
	_, rest, found := strings.Cut(readme(t), "(`examples/python_ten_lines`):\n\n```python\n")
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

// The function and the configuration are put beside each other and score a sample.
func TestReadmeShowsAPythonRewardThatScores(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil || runtime.GOOS != "linux" {
		t.Skipf("SKIPPED: no Python functions without Linux and python3 on PATH: %v", err)
	}
	_, text, found := strings.Cut(readme(t), "## Your own reward in Python\n")
	require.True(t, found)
	dir := t.TempDir()
	for block, name := range map[string]string{"```python\n": "my_reward.py", "```yaml\n": "cfg.yaml"} {
		_, rest, found := strings.Cut(text, block)
		require.True(t, found, "README.md shows no %s", name)
		content, _, _ := strings.Cut(rest, "```")
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	cfg, err := config.Load(filepath.Join(dir, "cfg.yaml"), nil, os.LookupEnv)
	require.NoError(t, err)
	var reg rewards.Registry
	standard.Register(&reg, standard.Deps{Python: python.NewFunctions(python.Config{Hosts: 1})})
	managers, err := config.BuildManagers(cfg, &reg)
	require.NoError(t, err)
	m := managers[config.DefaultProfile]
	defer m.Close()
	require.NoError(t, m.Warm(t.Context()))
	res := m.Run(t.Context(), &rewards.Sample{ID: "a", Response: "so it is 4", GroundTruth: json.RawMessage(`"4"`)}).Result
	require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
	require.InDelta(t, 1.5, res.Score, 1e-12)
	require.Equal(t, true, res.Extra["reward/answer/acc"])
}

func TestDocumentsLinkToFilesThatExist(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	docs = append(docs, "README.md", "CONTRIBUTING.md")
	path := regexp.MustCompile("`((?:docs|examples|rewards|python|loop|wire|client|server|workers|fabric|config|internal|media|bench|scripts|cmd)/[A-Za-z0-9_./-]+)`")
	for _, doc := range docs {
		b, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, m := range path.FindAllStringSubmatch(string(b), -1) {
			_, err := os.Stat(filepath.FromSlash(m[1]))
			require.NoError(t, err, "%s names %s", doc, m[1])
		}
	}
}
