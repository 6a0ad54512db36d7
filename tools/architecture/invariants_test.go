package architecture_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testsOf are the names of the tests and fuzz targets of a package, whatever the build.
func testsOf(t *testing.T, pkg string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.FromSlash(pkg), "*_test.go"))
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// TestEveryInvariantNamesTestsThatExist reads docs/invariants.md: under each of the ten
// promises stand lines with a package in a code span, and after it names of its tests.
func TestEveryInvariantNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	const page = "docs/invariants.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	spans := regexp.MustCompile("`([^`]+)`")
	isTest := regexp.MustCompile(`^(Test|Fuzz)\w*…?$`)
	known := map[string][]string{}
	named, promise := map[string]int{}, ""
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			promise = strings.TrimSpace(heading)
		}
		if !strings.HasPrefix(line, "- ") {
			continue
		}
		pkg := ""
		for _, m := range spans.FindAllStringSubmatch(line, -1) {
			span := m[1]
			if !isTest.MatchString(span) {
				pkg = span
				continue
			}
			if known[pkg] == nil {
				known[pkg] = testsOf(t, pkg)
			}
			found := false
			for _, name := range known[pkg] {
				prefix, open := strings.CutSuffix(span, "…")
				found = found || name == span || open && strings.HasPrefix(name, prefix)
			}
			assert.True(t, found, "%s names %s of package %q, and there is none", page, span, pkg)
			named[promise]++
		}
	}
	assert.Len(t, named, 10, "the promises, each with tests: %v", named)
	for promise, tests := range named {
		assert.GreaterOrEqual(t, tests, 5, promise)
	}
}
