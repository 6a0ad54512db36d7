package config_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
)

// agent is a file in the form of the recipe async_reward_agent.
const agent = `import requests

class Agent:
    """Asks a server.

and this text is no code.
    """

    def compute_score(self, data_source, solution_str, ground_truth, extra_info=None):
        return 1.0, "query", "answer"
# a remark

    def post_process_scores(self, scores):
        return scores

class Bare:
    def compute_score(self, solution_str):
        return 1.0, "query", "answer"

def post_process_scores(scores):
    return scores
`

// The lines of the recipe async_reward_agent: custom_reward_function with path and name,
// and max_concurrency, which stands at the top there.
func TestTheKeysOfAsyncRewardAgentAreRead(t *testing.T) {
	t.Parallel()
	file := write(t, filepath.Join(t.TempDir(), "agent.py"), agent)
	load := func(name string, more ...string) (*config.Config, error) {
		return config.Load("", append([]string{"reward.custom_reward_function.path=" + file, "reward.custom_reward_function.name=" + name}, more...), nil)
	}
	c, err := load("Bare")
	require.NoError(t, err)
	one := c.Profiles["default"].Components
	require.Len(t, one, 1)
	assert.Equal(t, []int{0, 256}, []int{one[0].Concurrency, one[0].AgentConcurrency}, "256 if it is a class that blocks")
	c, err = load("Bare", "+reward.custom_reward_function.max_concurrency=64")
	require.NoError(t, err)
	assert.Equal(t, 64, c.Profiles["default"].Components[0].Concurrency)

	c, err = load("Agent", "+reward.custom_reward_function.timeout=7s")
	require.NoError(t, err)
	p := c.Profiles["default"]
	require.Len(t, p.Components, 2)
	assert.False(t, p.Single)
	assert.Equal(t, []any{"compute_score", 0.0, false, 256}, []any{p.Components[0].Key, p.Components[0].Weight, p.Components[0].Required, p.Components[0].Concurrency})
	assert.Equal(t, rewards.PolicyZero, p.Components[0].OnFailure.Policy)
	assert.Equal(t, []any{"compute_score", 1.0, true, 7 * time.Second}, []any{p.Components[1].PostProcess, p.Components[1].Weight, p.Components[1].Required, p.Components[1].Timeout})
	assert.Contains(t, notes(c), "Agent.post_process_scores is called with finished groups and returns the reward")
	again, err := config.Parse(filepath.Join(t.TempDir(), "elsewhere.yaml"), []byte(printed(t, c)), nil, nil)
	require.NoError(t, err, printed(t, c))
	assert.Equal(t, printed(t, c), printed(t, again))

	for line, says := range map[string]string{
		"+max_concurrency=64":         "max_concurrency: has moved: write reward.custom_reward_function.max_concurrency",
		"+mini_batch_pipeline=True":   "belongs to the trainer",
		"+update_pipeline=True":       "belongs to the trainer",
		"++queue.pool=p":              "has been removed: each reward has a queue of its own; write queue.rewards",
		"+pool.python.hosts=2":        "has moved: write pool.python.processes",
		"++fabric.nats_listen=:4222":  "has moved: write queue",
		"++loop.term_timeout=60s":     "has moved: write loop.component_timeout",
		"+pool.python.memory_bytes=1": "has moved: write pool.python.memory",
	} {
		_, err := load("Bare", line)
		require.ErrorContains(t, err, says, line)
	}
	_, err = load("Bare", "+reward.custom_reward_function.max_concurrency=64", "+reward.custom_reward_function.concurrency=64")
	require.ErrorContains(t, err, "has no effect with concurrency")
}

func TestTheProcessesOfAPythonFunctionAreOfItsEntry(t *testing.T) {
	t.Parallel()
	c := parse(t, "reward: {reward_functions: {a: {path: pkg://m, concurrency: 8, memory: 512MiB, env: [MY_KEY]}, b: {path: pkg://m, env: []}, c: {path: pkg://m}}}\n")
	components := c.Profiles["default"].Components
	assert.Equal(t, []any{8, int64(512 << 20), []string{"MY_KEY"}}, []any{components[0].Concurrency, components[0].MemoryBytes, components[0].Env})
	assert.Equal(t, []string{}, components[1].Env, "nothing is not everything")
	assert.Nil(t, components[2].Env)
	for entry, says := range map[string]string{
		"{path: pkg://m, concurrency: 0}":        "concurrency",
		"{path: pkg://m, memory: 1MiB}":          "want at least 16MiB",
		"{path: pkg://m, env: [A-B]}":            "cannot name a variable",
		"{path: builtin://length, pixels: auto}": "is for Python functions",
	} {
		_, err := config.Parse("c.yaml", []byte("reward: {reward_functions: {a: "+entry+"}}\n"), nil, nil)
		require.ErrorContains(t, err, says, entry)
	}
	_, err := config.Parse("c.yaml", []byte("reward: {custom_reward_function: {path: builtin://length, memory: 1GiB, max_concurrency: 3}}\n"), nil, nil)
	require.ErrorContains(t, err, "memory: is for Python functions; leave it out")
	require.ErrorContains(t, err, "max_concurrency: is for Python functions; leave it out")
}

// What the configuration reads as a secret is hidden from functions in Python.
func TestVariablesThatHoldTheServersSecretsAreKnown(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(`reward: {reward_functions: {a: {path: "http://u:${oc.env:PW}@h:1/x", protocol: deqa}, b: {path: pkg://m, api_key: "${oc.env:KEY}", n: "${oc.env:N}"}}}
`), nil, env("KEY", "k", "PW", "p", "N", "3"))
	require.NoError(t, err)
	assert.Equal(t, []string{"KEY", "PW"}, c.HiddenEnv)
}
