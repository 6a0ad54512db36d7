package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/pool/engines"
)

// hosted are the lines of RL-Factory's main_grpo.sh that are about its judge, with the judge switched on
// (github.com/Simple-Efficient/RL-Factory).
func hosted(more ...string) []string {
	return append([]string{
		"reward_rollout.if_use_reward_rollout=True", "reward_rollout.rollout.tensor_model_parallel_size=4", "reward_rollout.rollout.gpu_memory_utilization=0.65",
		"reward_rollout.rollout.model_name=/models/QwQ-32B", "reward_rollout.rollout.free_cache_engine=True", "reward_rollout.rollout.response_length=2048",
	}, more...)
}

func TestTheJudgeThatRLFactoryHostsIsAnEngineAndRatesEveryStep(t *testing.T) {
	t.Parallel()
	c := parse(t, "", hosted()...)
	p := c.Profiles[config.DefaultProfile]
	e := c.Engines[p.Engine]
	require.NotNil(t, e.Managed)
	assert.Equal(t, engines.VLLM, e.Managed.Kind)
	assert.Equal(t, "/models/QwQ-32B", e.Model)
	assert.Equal(t, 4, e.Parallel.Tensor)
	assert.Contains(t, e.Managed.Args, "0.65")
	require.Len(t, p.Components, 1)
	assert.Equal(t, "judge", p.Components[0].Scorer)
	assert.Contains(t, string(p.Components[0].Options), `"steps":["\u003c|im_end|\u003e"]`)
	assert.Contains(t, notes(c), "reward_rollout: builtin://judge rates every step of a response from 0 to 1")
	again := parse(t, printed(t, c))
	assert.Equal(t, e.Managed.Args, again.Engines[p.Engine].Managed.Args)
	assert.Equal(t, p.Components[0].Options, again.Profiles[config.DefaultProfile].Components[0].Options)
}

func TestTheJudgeThatRLFactoryHostsServesTheRewardOfTheFile(t *testing.T) {
	t.Parallel()
	c := parse(t, "", hosted("reward.custom_reward_function.path=builtin://genrm_ocr")...)
	p := c.Profiles[config.DefaultProfile]
	assert.Equal(t, "genrm_ocr", p.Components[0].Scorer)
	assert.Equal(t, "/models/QwQ-32B", c.Engines[p.Engine].Model)
	off := parse(t, "", "reward_rollout.if_use_reward_rollout=False", "reward_rollout.rollout.model_name=m", "reward.custom_reward_function.path=builtin://ocr")
	assert.Empty(t, off.Engines)
	assert.Contains(t, notes(off), "reward_rollout: has no effect: if_use_reward_rollout is not True")
	for _, c := range []struct {
		want      string
		overrides []string
	}{
		{"reward_rollout: and reward.reward_model are both given", hosted("reward.reward_model.enable=True", "reward.custom_reward_function.path=builtin://ocr")},
		{"reward_rollout.rolout: no such key", append(hosted(), "+reward_rollout.rolout.n=1")},
		{"no such key", append(hosted(), "+reward_rollout.rollout.tensor_parallel=4")},
	} {
		_, err := config.Load("", c.overrides, nil)
		require.ErrorContains(t, err, c.want)
	}
}

func TestTheProfilerOfAnEngineIsReadInVerlsWords(t *testing.T) {
	t.Parallel()
	base := []string{
		"reward.custom_reward_function.path=builtin://ocr", "reward.reward_model.enable=True", "reward.reward_model.model_path=m", "reward.reward_model.rollout.name=vllm",
		"reward.reward_model.rollout.profiler.enable=True",
	}
	c := parse(t, "", append(base, "reward.reward_model.rollout.profiler.tool=nsys", "reward.reward_model.rollout.profiler.all_ranks=True", "+reward.reward_model.rollout.profiler.steps=[3,5]",
		"reward.reward_model.rollout.profiler.tool_config={nsys: {discrete: false}}")...)
	p := c.Engines["reward_model"].Managed.Profiler
	require.NotNil(t, p)
	assert.Equal(t, engines.Nsys, p.Tool)
	assert.Equal(t, []int{0, 1, 2}, p.Of(3))
	assert.Equal(t, []int{3, 5}, p.Steps)
	assert.Equal(t, "outputs/profile/reward_model", p.SavePath)
	assert.Contains(t, notes(c), "tool_config: has no effect")
	assert.Equal(t, p, parse(t, printed(t, c)).Engines["reward_model"].Managed.Profiler)
	assert.Contains(t, notes(parse(t, "", append(base, "reward.reward_model.rollout.profiler.tool=torch")...)), "profiler: profiles nothing: write the numbers of servers")
	for want, more := range map[string][]string{
		"profiler: is enabled and has no tool":                      nil,
		"profiler.tool: want one of torch, nsys":                    {"reward.reward_model.rollout.profiler.tool=npu"},
		"profiler.tool: sglang cannot be profiled with nsys":        {"reward.reward_model.rollout.profiler.tool=nsys", "reward.reward_model.rollout.name=sglang"},
		"profiler.ranks[0]: want a whole number":                    {"reward.reward_model.rollout.profiler.tool=torch", "reward.reward_model.rollout.profiler.ranks=[all]"},
		"profiler.tool: transformers cannot be profiled with torch": {"reward.reward_model.rollout.profiler.tool=torch", "reward.reward_model.rollout.name=transformers"},
		"profiler.discrete: no such key":                            {"reward.reward_model.rollout.profiler.tool=torch", "+reward.reward_model.rollout.profiler.discrete=true"},
	} {
		_, err := config.Load("", append(base, more...), nil)
		require.ErrorContains(t, err, want)
	}
	off := parse(t, "", append(base[:4:4], "reward.reward_model.rollout.profiler.enable=False", "reward.reward_model.rollout.profiler.tool=torch")...)
	assert.Nil(t, off.Engines["reward_model"].Managed.Profiler)
	assert.Empty(t, off.Profilers())
	for _, more := range [][]string{{"reward.reward_model.enable=False"}, {"reward.reward_model.rollout.name=external", "+reward.reward_model.rollout.base_urls=[http://127.0.0.1:1]"}} {
		c := parse(t, "", append(append(base[:5:5], "reward.reward_model.rollout.profiler.tool=torch", "reward.reward_model.rollout.profiler.all_ranks=True"), more...)...)
		require.Len(t, c.Profilers(), 1, "it is that of Python rewards")
		assert.Equal(t, c.Profilers(), parse(t, printed(t, c)).Profilers())
	}
}
