package config_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
)

// TestGoldenReference holds docs/configuration.md to what the packages say of their keys.
func TestGoldenReference(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, config.Reference(&b))
	const page = "../docs/configuration.md"
	if *update {
		require.NoError(t, os.WriteFile(page, b.Bytes(), 0o600))
	}
	want, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String(), "run go test ./config -run Golden -update if this is meant")
}

func TestTheSchemaOfEditorsHasEveryKeyOfAPrintedFile(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, config.Schema(&b))
	var schema map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &schema))
	for _, path := range [][]string{
		{"loop", "resume_grace"}, {"loop", "dispatch", "policy"}, {"loop", "workers", "breaker_pause"}, {"loop", "http_sample_timeout"},
		{"pool", "python", "memory"}, {"server", "listen"}, {"fabric", "spool_fsync"}, {"outbound", "allow"},
	} {
		at := schema
		for _, name := range path {
			assert.Equal(t, false, at["additionalProperties"] == true, path)
			at = at["properties"].(map[string]any)[name].(map[string]any)
		}
		assert.NotEmpty(t, at["description"], path)
	}
	reward := schema["$defs"].(map[string]any)["reward"].(map[string]any)["properties"].(map[string]any)
	assert.Contains(t, reward, "reward_functions")
	assert.Contains(t, reward["reward_model"].(map[string]any)["properties"], "rollout")
}
