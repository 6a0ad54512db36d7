package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAQuickstartForEachTrainerIsAConfigurationAndNamesAPage(t *testing.T) {
	t.Parallel()
	modules := regexp.MustCompile(`rewardloop\.([a-z_]+)`)
	for _, s := range starters() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "rewardloop.yaml")
			got := call(t, "", "quickstart", "--for", s.name, "-o", path)
			require.Equal(t, exitOK, got.code, got.stderr)
			assert.Contains(t, got.stdout, "rewardloop serve -c "+path)
			assert.NotContains(t, got.stdout, "%")
			checked := call(t, "", "config", "check", "-c", path)
			require.Equal(t, exitOK, checked.code, checked.stderr)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			if s.listen != "" {
				assert.Contains(t, string(text), "listen: "+s.listen, "the port that the trainer's own client expects")
			}
			_, err = os.Stat(filepath.Join("../..", s.page))
			require.NoError(t, err, "its page is there")
			for _, m := range modules.FindAllStringSubmatch(s.paste, -1) {
				found, err := filepath.Glob(filepath.Join("../../python/rewardloop", m[1]+"*"))
				require.NoError(t, err)
				if m[1] != "url" { // a key of verl-omni's configuration
					assert.NotEmpty(t, found, "there is no module rewardloop.%s", m[1])
				}
			}
		})
	}
}

func TestAQuickstartLeavesAFileThatIsThere(t *testing.T) {
	t.Parallel()
	path := put(t, t.TempDir(), "mine.yaml", []byte("mine"))
	got := call(t, "", "quickstart", "--for", "trl", "-o", path)
	assert.Equal(t, exitFailure, got.code)
	assert.Contains(t, got.stderr, "exists already: name another file with -o, or overwrite it with --force")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(text))
	assert.Equal(t, exitOK, call(t, "", "quickstart", "--for", "trl", "-o", path, "--force").code)
	got = call(t, "", "quickstart", "--for", "tlr")
	assert.Equal(t, exitUsage, got.code)
	assert.Contains(t, got.stderr, `--for "tlr": want one of verl, verl-omni, flow_grpo`)
	assert.Equal(t, exitFailure, call(t, "", "quickstart", "--for", "trl", "-o", filepath.Join(path, "x")).code)
}
