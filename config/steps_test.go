package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
)

// stepping is a file with a judge that is told where steps end and two functions, of which
// one declares that it gives step scores.
func stepping(t *testing.T, aggregation, more string) string {
	t.Helper()
	return `engines:
  big: {base_urls: ["http://127.0.0.1:1"], model: m}
reward:
  aggregation: ` + aggregation + `
  reward_functions:
    turns: {path: "builtin://judge", engine: big, template: "{response}", steps: ["<|im_end|>"]}
    mine: {path: "` + script(t, t.TempDir(), "mine.py") + `", steps: true}
    kwarg: {path: "` + script(t, t.TempDir(), "kwarg.py") + `", steps: 20}
    other: {path: "builtin://length", steps: false}
` + more
}

func TestAComponentDeclaresThatItGivesStepScores(t *testing.T) {
	t.Parallel()
	c := parse(t, stepping(t, "weighted_mean", ""))
	components := c.Profiles[config.DefaultProfile].Components
	require.Len(t, components, 4)
	assert.False(t, components[0].Steps, "its stop tokens say so")
	assert.JSONEq(t, `{"engine":"big","template":"{response}","steps":["<|im_end|>"]}`, string(components[0].Options))
	assert.True(t, components[1].Steps)
	assert.Nil(t, components[1].Options)
	assert.JSONEq(t, `{"steps":20}`, string(components[2].Options), "what is neither true nor false is the function's own")
	assert.Nil(t, components[3].Options)
	text := printed(t, c)
	assert.Contains(t, text, "steps: true\n")
	assert.Equal(t, text, printed(t, parse(t, text)))

	single := parse(t, `reward: {custom_reward_function: {path: "pkg://mine", steps: true}}`)
	assert.True(t, single.Profiles[config.DefaultProfile].Components[0].Steps)
	assert.Contains(t, printed(t, single), "steps: true\n")
	assert.Contains(t, faults(t, `reward: {custom_reward_function: {path: "pkg://mine", steps: 3}}`)[0], `want true or false, got "3"`)
	overridden := parse(t, stepping(t, "max", ""), "reward.reward_functions.mine.steps=false", "~reward.reward_functions.turns")
	assert.Len(t, overridden.Profiles[config.DefaultProfile].Components, 3)
}

func TestStepScoresBesideAnAggregationWithoutStepsAreRefusedAtTheirLines(t *testing.T) {
	t.Parallel()
	for _, aggregation := range []string{"min", "max", "product"} {
		lines := faults(t, stepping(t, aggregation, ""))
		require.Len(t, lines, 2)
		for i, at := range []string{"6:", "7:"} {
			assert.Contains(t, lines[i], at)
			assert.Contains(t, lines[i], ".steps: the scorer returns step scores: "+aggregation+" cannot split the reward into steps; "+
				"write aggregation weighted_sum or weighted_mean, or leave steps out")
		}
	}
	lines := faults(t, `reward: {aggregation: min, custom_reward_function: {path: "builtin://judge", reward_kwargs: {steps: ["x"]}}}`)
	assert.Contains(t, lines[0], "reward.custom_reward_function.reward_kwargs.steps: the scorer returns step scores: min cannot split the reward")
}

func TestWhatGivesOneScoreCannotDeclareSteps(t *testing.T) {
	t.Parallel()
	lines := faults(t, stepping(t, "weighted_sum", `    far: {path: "http://127.0.0.1:2", protocol: json, steps: true}
    graph: {path: "onnx:///m", steps: true}
    post: {post_process: mine, steps: true}
`))
	require.Len(t, lines, 3)
	for i, name := range []string{"http", "onnx", "post_process"} {
		assert.Contains(t, lines[i], ".steps: "+name+" returns one score for the whole response; leave steps out")
	}
	c := parse(t, `engines: {big: {base_urls: ["http://127.0.0.1:1"], model: m}}
reward: {reward_functions: {turns: {path: "builtin://judge", engine: big, template: "{response}", steps: true}}}`)
	_, err := config.BuildManagers(c, shipped(nil))
	require.ErrorContains(t, err, `write the texts of the stop tokens, such as steps: ["<|im_end|>"]`)
}

func TestTheManagerKnowsWhoGivesStepScores(t *testing.T) {
	t.Parallel()
	c := parse(t, `engines: {big: {base_urls: ["http://127.0.0.1:1"], model: m}}
reward: {reward_functions: {turns: {path: "builtin://judge", engine: big, template: "{response}", steps: ["x"]}}}`)
	c.Profiles[config.DefaultProfile].Aggregation = "max"
	_, err := config.BuildManagers(c, shipped(nil))
	require.ErrorContains(t, err, `component "turns" returns step scores: max cannot split the reward`)
}
