package scripts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// workflow is what a file of .github/workflows has, as far as it is held to something.
type workflow struct {
	Name        string
	On          any
	Permissions map[string]string
	Jobs        map[string]struct {
		RunsOn      string `yaml:"runs-on"`
		Timeout     any    `yaml:"timeout-minutes"`
		Permissions map[string]string
		Needs       string
		Strategy    struct {
			Matrix struct {
				Include []struct {
					Target  string
					Minutes int
				}
			}
		}
		Steps []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

// mayWrite are the permissions to write, of the jobs that publish something.
func mayWrite() map[string]string {
	return map[string]string{"release.yml publish": "contents", "release.yml image": "packages", "release.yml wheels": "id-token"}
}

func TestWorkflowsAskForWhatIsThereAndForLittleElse(t *testing.T) {
	t.Parallel()
	var (
		pinned  = regexp.MustCompile(`^[\w-]+/[\w-]+@v\d+\.\d+\.\d+$`)
		makes   = regexp.MustCompile(`(?m)(?:^|&&|;)\s*make ([a-z][a-z-]*)`)
		scripts = regexp.MustCompile(`(?:scripts/[\w-]+\.(?:sh|py)|\.ci/run)\b`)
		written = mayWrite()
	)
	paths, err := filepath.Glob(".github/workflows/*")
	require.NoError(t, err)
	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, filepath.Base(path))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var w workflow
		require.NoError(t, yaml.Unmarshal(text, &w), path)
		assert.NotNil(t, w.On, path)
		assert.Equal(t, map[string]string{"contents": "read"}, w.Permissions, "%s: what jobs may that say nothing else", path)
		require.NotEmpty(t, w.Jobs, path)
		for name, job := range w.Jobs {
			at := filepath.Base(path) + " " + name
			assert.NotEmpty(t, job.RunsOn, at)
			switch limit := job.Timeout.(type) {
			case int:
				assert.Positive(t, limit, at)
			default:
				assert.Equal(t, "${{ matrix.minutes }}", limit, "%s: timeout-minutes", at)
				assert.NotEmpty(t, job.Strategy.Matrix.Include, at)
			}
			for what, kind := range job.Permissions {
				if kind == "write" {
					assert.Equal(t, written[at], what, "%s may write", at)
				} else {
					assert.Equal(t, "read", kind, at)
				}
			}
			if job.Needs != "" {
				assert.Contains(t, w.Jobs, job.Needs, at)
			}
			for _, entry := range job.Strategy.Matrix.Include {
				assert.Contains(t, targets(t), entry.Target, at)
				assert.Positive(t, entry.Minutes, "%s: make %s", at, entry.Target)
			}
			for _, step := range job.Steps {
				if step.Uses != "" {
					assert.Regexp(t, pinned, step.Uses, at)
				}
				if step.Uses != "" && filepath.Dir(step.Uses) == "actions" && step.With["persist-credentials"] != false {
					assert.NotContains(t, step.Uses, "checkout", "%s: the token would stay in the clone", at)
				}
				for _, m := range makes.FindAllStringSubmatch(step.Run, -1) {
					assert.Contains(t, targets(t), m[1], at)
				}
				for _, script := range scripts.FindAllString(step.Run, -1) {
					assert.FileExists(t, script, at)
				}
			}
		}
	}
	assert.ElementsMatch(t, []string{"ci.yml", "nightly.yml", "release.yml"}, names)
}
