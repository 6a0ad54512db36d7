package scripts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// generated are files that a command writes from the code: scripts/newcomer.sh runs it.
var generated = regexp.MustCompile(`^(docs/(configuration|metrics|wire|claim)\.md|.*/testdata/.*)$`)

// Whoever adds a thing of a known kind touches three files of code at most. make newcomer tests
// the patches themselves.
func TestEachKindOfNewThingHasAPatchThatAppliesAndTouchesThreeFilesOfCode(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"scorer", "policy", "message", "protocol", "key", "metric"} {
		patch := filepath.Join("tools", "newcomer", kind+".patch")
		_, err := os.Stat(patch)
		require.NoError(t, err)
		out, err := exec.CommandContext(t.Context(), "git", "apply", "--check", patch).CombinedOutput()
		require.NoError(t, err, "%s does not apply: make its change again and write it with git diff -U2\n%s", patch, out)
		out, err = exec.CommandContext(t.Context(), "git", "apply", "--numstat", patch).Output()
		require.NoError(t, err)
		var code, tests []string
		for line := range strings.Lines(string(out)) {
			file := strings.Fields(line)[2]
			switch {
			case strings.HasSuffix(file, "_test.go"):
				tests = append(tests, file)
			case strings.HasSuffix(file, ".md"):
			default:
				code = append(code, file)
			}
			assert.False(t, generated.MatchString(file), "%s: %s is written by a command", patch, file)
		}
		assert.LessOrEqual(t, len(code), 3, "%s: %q", patch, code)
		assert.NotEmpty(t, tests, "%s has no test", patch)
	}
}
