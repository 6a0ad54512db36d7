package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestWhatAMachineWithoutANetworkHasToBeBroughtIsSaidByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.py"), []byte("def compute_score(solution_str): return 1.0\n"), 0o600))
	cfg := filepath.Join(dir, "cfg.yaml")
	require.NoError(t, os.WriteFile(cfg, []byte(`
reward:
  reward_functions:
    bare: {path: mine.py, required: true}
    seen: {path: mine.py, required: true, environment: {system_site_packages: true, requirements: [dep]}}
    made: {path: mine.py, required: true, environment: {requirements: [dep]}}
    hps: {path: "scorer://hpsv2", required: true}
`), 0o600))
	c, err := config.Load(cfg, nil, func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	needs := c.Carry(new(rewards.Registry))
	require.Empty(t, needs.Models)
	require.Empty(t, needs.Agreed)
	require.Len(t, needs.Without, 3, "%v", needs.Without)
	require.Contains(t, needs.Without[0], "reward.reward_functions.bare has no environment: it runs in the Python of the machine")
	require.Contains(t, needs.Without[2], "reward.reward_functions.hps: its model in Python downloads ")
	require.Contains(t, needs.Without[1], "reward.reward_functions.seen: its environment shows the packages of its Python")
}
