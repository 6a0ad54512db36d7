package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
)

// modelFile is a folder with a model in Python and an interpreter of its own.
func modelFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hps.py"), []byte("class HPS:\n    def compute_scores(self, samples):\n        return [0.0 for _ in samples]\n\ndef compute_score(prompt, batch=1):\n    return 0.0\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "python"), []byte("#!/bin/sh\n"), 0o755)) //nolint:gosec // A program must be executable.
	return dir
}

// loadModel loads a reward whose one function has these keys beside its path.
func loadModel(t *testing.T, dir, rest string) (*config.Config, error) {
	t.Helper()
	file := filepath.Join(dir, "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("reward: {reward_functions: {hps: {path: hps.py, "+rest+"}}}\n"), 0o600))
	return config.Load(file, nil, nil)
}

func TestAnEntrySaysWhereAndHowItsModelRuns(t *testing.T) {
	t.Parallel()
	dir := modelFile(t)
	c, err := loadModel(t, dir, `name: HPS, devices: [cuda:0, cuda:1], num_replicas: 2, fraction: 0.4, interpreter: ./python, max_batch_size: 64,
    batch_wait_timeout_s: 0.02, max_batch_pixels: 1000000, load_timeout: 300s, pixels: pil, checkpoint: v3`)
	require.NoError(t, err)
	entry := c.Profiles[config.DefaultProfile].Components[0]
	p := entry.Placement
	require.NotNil(t, p)
	assert.Equal(t, []string{"cuda:0", "cuda:1"}, p.Devices)
	assert.Equal(t, []any{2, 64, 1000000, 300 * time.Second, 0.4, 0.02}, []any{p.Replicas, p.MaxBatch, p.MaxBatchPixels, p.LoadTimeout, p.Fraction, *p.BatchWait})
	assert.Equal(t, filepath.Join(dir, "python"), entry.Interpreter)
	assert.JSONEq(t, `{"checkpoint": "v3"}`, string(entry.Options), "the other keys are the model's own")
	shown := printed(t, c)
	again, err := config.Load(write(t, filepath.Join(dir, "printed.yaml"), shown), nil, nil)
	require.NoError(t, err, shown)
	assert.Equal(t, entry.Placement, again.Profiles[config.DefaultProfile].Components[0].Placement, "what is printed means the same")
}

func TestAClassWithComputeScoresIsAModelAndAFunctionIsNone(t *testing.T) {
	t.Parallel()
	dir := modelFile(t)
	c, err := loadModel(t, dir, "name: HPS")
	require.NoError(t, err)
	p := c.Profiles[config.DefaultProfile].Components[0].Placement
	require.NotNil(t, p)
	assert.Equal(t, []string{"cpu"}, p.Devices)
	assert.Equal(t, []any{1, 32, 10 * time.Minute}, []any{p.Replicas, p.MaxBatch, p.LoadTimeout})
	c, err = loadModel(t, dir, "fraction: 0.5")
	require.NoError(t, err)
	entry := c.Profiles[config.DefaultProfile].Components[0]
	assert.Nil(t, entry.Placement)
	assert.JSONEq(t, `{"fraction": 0.5}`, string(entry.Options), "an option of the function")
}

func TestFaultsOfAPlacementAreToldWithTheirLines(t *testing.T) {
	t.Parallel()
	dir := modelFile(t)
	for rest, want := range map[string]string{
		"devices: gpu":                      `devices: want cpu, cuda (every card of the reward pool) or cuda:<n>, got "gpu"`,
		"devices: [cpu, cpu]":               "duplicate device cpu: num_replicas",
		"devices: [cuda, cpu]":              "cuda means every card of the reward pool and must be the only device",
		"batch: 8":                          `batch: want true or false, got "8"`,
		"num_replicas: 0":                   "num_replicas: want 1",
		"batch_wait_timeout_s: 3":           "batch_wait_timeout_s: want auto, or 0 to 1 seconds",
		"max_batch_size: 4, fraction: 2":    "fraction: want a share of a card",
		"interpreter: envs/none/bin/python": "interpreter: no program " + filepath.Join(dir, "envs/none/bin/python"),
		"load_timeout: 1ms":                 "load_timeout: want",
	} {
		_, err := loadModel(t, dir, rest)
		require.Error(t, err, rest)
		require.ErrorContains(t, err, want, rest)
	}
	file := filepath.Join(dir, "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("reward: {custom_reward_function: {path: \"builtin://gsm8k\", devices: cpu}}\n"), 0o600))
	_, err := config.Load(file, nil, nil)
	require.ErrorContains(t, err, "devices: is for Python functions; leave it out")
}
