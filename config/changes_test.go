package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
)

const compared = `reward:
  num_workers: 2
  reward_functions:
    a: {path: builtin://length, weight: 1}
    b: {path: builtin://length, weight: 2, retries: 1}
  reward_model: {enable: true, model_path: m, rollout: {name: external, base_urls: ["http://a:1"]}}
rewards:
  other: {custom_reward_function: {path: builtin://length}}
engines:
  e: {model: m, base_urls: ["http://a:1"], concurrency: 8}
loop: {max_attempts: 2}
`

func TestComparedConfigurationsSayWhatAProcessThatRunsCanApply(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		of, to           string
		applied, restart []string
	}{
		"nothing":               {"2", "2", nil, nil},
		"a weight":              {"weight: 1", "weight: 3", []string{"reward.reward_functions.a.weight"}, nil},
		"weight and retries":    {"weight: 2, retries: 1", "weight: 3, retries: 2", []string{"reward.reward_functions.b.weight", "reward.reward_functions.b.retries"}, nil},
		"a timeout":             {"weight: 1", "weight: 1, timeout: 7s", []string{"reward.reward_functions.a.timeout"}, nil},
		"a capacity":            {"other: {custom", "other: {concurrency: 7, custom", []string{"rewards.other.concurrency"}, nil},
		"comments and places":   {"rewards:\n", "# a comment\n\nrewards:\n", nil, nil},
		"an option":             {"path: builtin://length, weight: 1", "path: builtin://length, weight: 3, most: 9", nil, []string{"reward.reward_functions.a"}},
		"a component more":      {"    b:", "    c: {path: builtin://length}\n    b:", nil, []string{"reward.reward_functions.b", "reward.reward_functions.b"}},
		"how they are added":    {"  reward_model", "  aggregation: min\n  reward_model", nil, []string{"reward"}},
		"a reward less":         {"rewards:\n  other: {custom_reward_function: {path: builtin://length}}\n", "", nil, []string{"rewards.other"}},
		"an engine's address":   {"e: {model: m, base_urls: [\"http://a:1\"]", "e: {model: m, base_urls: [\"http://b:1\"]", []string{"engines.e.base_urls"}, nil},
		"an engine's places":    {"concurrency: 8", "concurrency: 9", []string{"engines.e.concurrency"}, nil},
		"an engine's model":     {"e: {model: m", "e: {model: n", nil, []string{"engines.e"}},
		"a reward model's":      {"name: external, base_urls: [\"http://a:1\"]", "name: external, base_urls: [\"http://a:2\"]", []string{"reward.reward_model.rollout.base_urls"}, nil},
		"an engine more":        {"engines:\n", "engines:\n  f: {model: m, base_urls: [\"http://f:1\"]}\n", nil, []string{"engines.f"}},
		"workers":               {"num_workers: 2", "num_workers: 3", nil, []string{"reward.num_workers"}},
		"a setting of the loop": {"max_attempts: 2", "max_attempts: 3, run_weights: {a: 2}", nil, []string{"loop.max_attempts", "loop.run_weights"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, compared, change.of)
			next := strings.Replace(compared, change.of, change.to, 1)
			ch := parse(t, compared).Compare(parse(t, next))
			require.ElementsMatch(t, change.applied, ch.Applied)
			if name == "a component more" { // the file's order counts: which one is meant, nobody can tell
				require.NotEmpty(t, ch.Restart)
				require.Empty(t, ch.Rewards)
				return
			}
			require.ElementsMatch(t, change.restart, ch.Restart)
		})
	}
	require.Empty(t, config.Default().Compare(config.Default()))
}
