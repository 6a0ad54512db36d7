package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
)

func TestRewardsWhoseEnvironmentsDifferAreDifferentRewards(t *testing.T) {
	t.Parallel()
	digest := func(requirements, environment string) string {
		dir := t.TempDir()
		file := filepath.Join(dir, "cfg.yaml")
		text := "reward: {reward_functions: {a: {path: mine.py, environment: " + environment + "}}}\n"
		for path, content := range map[string]string{file: text, filepath.Join(dir, "mine.py"): "", filepath.Join(dir, "r.txt"): requirements} {
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		}
		cfg, err := config.Load(file, nil, nil)
		require.NoError(t, err)
		return node.Digest(cfg.Profiles[config.DefaultProfile])
	}
	four := digest("transformers==4.45.2\n", "{requirements: r.txt}")
	require.Equal(t, four, digest("transformers==4.45.2\n", "{requirements: r.txt}"), "on another machine, in another folder")
	require.Equal(t, four, digest("", "{requirements: [\"transformers==4.45.2\"]}"))
	require.NotEqual(t, four, digest("transformers==5.0.0\n", "{requirements: r.txt}"))
	require.NotEqual(t, four, digest("transformers==4.45.2\n", "{requirements: r.txt, python: \"3.11\"}"))
	require.NotEqual(t, four, digest("transformers==4.45.2\n", "{requirements: r.txt, system_site_packages: true}"))
}
