package documents_test

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

func TestReadmeConfigurationBuildsItsRewards(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(readme(t), "<<'EOF'\n")
	require.True(t, found, "README.md has no configuration")
	text, _, _ := strings.Cut(rest, "EOF")
	cfg, err := config.Parse("README.md", []byte(text), nil, os.LookupEnv)
	require.NoError(t, err)
	var reg rewards.Registry
	standard.Register(&reg, standard.Deps{})
	for _, component := range cfg.Profiles[config.DefaultProfile].Components {
		_, known := reg.Spec(component.Scorer)
		require.True(t, known, component.Path)
	}
}

// The function and the configuration are put beside each other and score a sample.
func TestReadmeShowsAPythonRewardThatScores(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	if _, err := exec.LookPath("python3"); err != nil || runtime.GOOS != "linux" {
		t.Skipf("SKIPPED: no Python functions without Linux and python3 on PATH: %v", err)
	}
	_, text, found := strings.Cut(readme(t), "## Your own reward\n")
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
	standard.Register(&reg, standard.Deps{Python: python.NewFunctions(python.Config{Processes: 1}, nil)})
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

// elsewhere are the commands of the README that TestEveryCommandOfTheReadmeIsRun leaves
// to others, by what they begin with, and to whom.
func elsewhere() map[string]string {
	return map[string]string{
		"make release":             "make release-check installs what it builds",
		"pip install --find-links": "make release-check does so",
		"make demo":                "examples/demo's tests play it",
		"make test":                "runs this",
	}
}

// The README is followed from its first command to its last, in one folder. What its
// first request is answered with must hold what the page shows.
func TestEveryCommandOfTheReadmeIsRun(t *testing.T) {
	t.Parallel()
	needReader(t)
	w := walk(t)
	left := map[string]bool{}
	leave := func(command string) string {
		for start, why := range elsewhere() {
			if strings.HasPrefix(command, start) {
				left[start] = true
				return why
			}
		}
		return ""
	}
	printed, compared := "", 0
	for _, b := range blocks(t, "README.md") {
		switch b.language {
		case "sh":
			printed = w.block(t, b.text, leave)
		case "json":
			var want, got any
			require.NoError(t, json.Unmarshal([]byte(b.text), &want))
			require.NoError(t, json.Unmarshal([]byte(printed), &got), printed)
			holds(t, want, got, "README.md")
			compared++
		}
	}
	require.Equal(t, 1, compared, "README.md shows no answer any more")
	require.Len(t, left, len(elsewhere()), "what is left to others stands in README.md no more: %v", left)
}

// The configurations that no command of the page reads are built all the same, by
// tools/docscheck; here is that the figures are those of docs/results.
func TestTheFiguresOfTheReadmeAreThoseMeasured(t *testing.T) {
	t.Parallel()
	results, err := os.ReadFile(filepath.Join("docs", "results", "README.md"))
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| .* \\| ([^|]+) \\| `([^`]+)` \\| `make [a-z-]+` \\|$").FindAllStringSubmatch(readme(t), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		require.Contains(t, string(results), "| "+row[2]+" | "+row[1]+" |", "README.md says %s of %s", row[1], row[2])
	}
}
