package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
)

// withEngines are the recipes of the table that start an engine.
func withEngines(t *testing.T) (out []example) {
	t.Helper()
	for _, x := range exampleRecipes(t) {
		if slices.Contains(x.Reward, rewardEngine+"=vllm") {
			out = append(out, x)
		}
	}
	require.NotEmpty(t, out)
	return out
}

func TestRewardLinesOfVerlOmniRecipesPassWithAnEngineThatRunsAlready(t *testing.T) {
	t.Parallel()
	for _, x := range withEngines(t) {
		overrides := x.inCheckout(t)
		overrides[slices.Index(overrides, rewardEngine+"=vllm")] = rewardEngine + "=external"
		c := parse(t, "", append(overrides, "+reward.reward_model.rollout.base_urls=[http://127.0.0.1:8000/v1,http://127.0.0.1:8001]")...)
		p := c.Profiles["default"]
		assert.Equal(t, config.PythonScorer, p.Components[0].Scorer)
		assert.Equal(t, "compute_score_ocr", p.Components[0].Function)
		e := c.Engines[p.Engine]
		require.NotNil(t, e)
		assert.Equal(t, []string{"http://127.0.0.1:8000", "http://127.0.0.1:8001"}, e.URLs)
		assert.Contains(t, overrides, "reward.reward_model.model_path="+e.Model)
	}
}

// What is said of the engine's start becomes arguments of vllm; what is not said, verl-omni's defaults.
func TestRewardLinesOfVerlOmniRecipesAsTheyAreStartTheirEngine(t *testing.T) {
	t.Parallel()
	for _, x := range withEngines(t) {
		overrides := x.inCheckout(t)
		c := parse(t, "", overrides...)
		e := c.Engines[c.Profiles["default"].Engine]
		require.NotNil(t, e.Managed)
		assert.Empty(t, e.URLs)
		assert.Contains(t, overrides, "reward.reward_model.model_path="+e.Model)
		args := strings.Join(e.Managed.Args, " ")
		if !slices.ContainsFunc(overrides, func(line string) bool { return strings.Contains(line, "gpu_memory_utilization=") }) {
			assert.Contains(t, args, "--gpu-memory-utilization 0.5")
		}
		assert.Contains(t, args, "--dtype bfloat16")
		for _, line := range overrides {
			if v, ok := strings.CutPrefix(line, "reward.reward_model.rollout.enforce_eager="); ok {
				assert.Equal(t, strings.EqualFold(v, "true"), strings.Contains(args, "--enforce-eager"), x.File)
			}
		}
		again := parse(t, printed(t, c))
		assert.Equal(t, e.Managed.Args, again.Engines[e.Name].Managed.Args, "what is printed is read as the same")
		assert.Equal(t, e.Managed.Servers, again.Engines[e.Name].Managed.Servers)
	}
}

func TestAFunctionOfVerlOmniThatIsNotThereIsNamedWithWhatDoesTheSame(t *testing.T) {
	t.Parallel()
	_, err := config.Load("", []string{"reward.custom_reward_function.path=/nowhere/verl_omni/utils/reward_score/genrm_ocr.py"}, nil)
	require.ErrorContains(t, err, "builtin://genrm_ocr does what genrm_ocr does, without Python")
}

// run_qwen_image_ocr_reward_server.sh asks an OCR server through a Python function.
func TestARecipeThatAsksAnotherServerIsAConfiguration(t *testing.T) {
	t.Parallel()
	c := parse(t, "",
		"reward.reward_model.enable=False",
		"reward.custom_reward_function.path=pkg://verl_omni.reward_loop.reward_manager.multi",
		"reward.custom_reward_function.name=_multi_reward_placeholder",
		"reward.reward_manager.name=MultiVisualRewardManager",
		"reward.reward_manager.module.path=pkg://verl_omni.reward_loop.reward_manager",
		"+reward.reward_functions.ocr.path=pkg://verl_omni.utils.reward_score.http_scorer_client",
		"+reward.reward_functions.ocr.name=compute_score",
		"+reward.reward_functions.ocr.weight=1.0",
		"+reward.reward_functions.ocr.server_url=http://localhost:19082",
	)
	component := c.Profiles["default"].Components[0]
	assert.Equal(t, config.PythonScorer, component.Scorer)
	assert.JSONEq(t, `{"server_url": "http://localhost:19082"}`, string(component.Options))
	assert.Contains(t, notes(c), "reward.reward_functions.ocr.path: runs in Python and sends samples to another server: server_url must not be the address of this server")
}

// With the lines that are named followed, the same recipe loads.
func TestTheAdviceForARecipeLeadsToAConfiguration(t *testing.T) {
	t.Parallel()
	c := parse(t, "",
		"reward.reward_model.enable=False",
		"reward.custom_reward_function.path=pkg://verl_omni.reward_loop.reward_manager.multi",
		"reward.custom_reward_function.name=_multi_reward_placeholder",
		"reward.reward_manager.name=MultiVisualRewardManager",
		"reward.reward_manager.module.path=pkg://verl_omni.reward_loop.reward_manager",
		"+reward.reward_functions.ocr.path=builtin://ocr",
		"+reward.reward_functions.ocr.name=compute_score",
		"+reward.reward_functions.ocr.weight=1.0",
	)
	p := c.Profiles["default"]
	assert.False(t, p.Single)
	assert.Equal(t, "ocr", p.Components[0].Scorer)
	assert.Contains(t, notes(c), "reward.reward_functions.ocr.name: has no effect with builtin://ocr")
	assert.Contains(t, notes(c), "Write `on_failure: zero` in the entry for 0 as in verl-omni")
}

// verl-omni's own reward.yaml, with a scorer named, is a configuration.
func TestTheDefaultsOfVerlOmniCanBePasted(t *testing.T) {
	t.Parallel()
	c := parse(t, `reward:
  num_workers: 8
  custom_reward_function: {path: builtin://ocr, name: compute_score}
  reward_functions: {}
  aggregation: weighted_sum
  reward_manager:
    _target_: verl.workers.config.reward_model.RewardManagerConfig
    source: importlib
    name: VisualRewardManager
    module: {_target_: verl.trainer.config.config.ModuleConfig, path: pkg://verl_omni.reward_loop.reward_manager}
  reward_model:
    enable: False
    enable_resource_pool: False
    n_gpus_per_node: 8
    nnodes: 0
    model_path: null
    rollout:
      _target_: verl.workers.config.RolloutConfig
      name: ???
      tensor_model_parallel_size: 2
      engine_kwargs: {}
      disaggregation: {enabled: false, prefill_replicas: 1}
  sandbox_fusion: {url: null, max_concurrent: 64, memory_limit_mb: 1024}
`)
	assert.True(t, c.Profiles["default"].Single)
	got := notes(c)
	for _, key := range []string{"reward.reward_model.n_gpus_per_node", "reward.reward_model.rollout.tensor_model_parallel_size", "reward.sandbox_fusion.max_concurrent"} {
		assert.Contains(t, got, key+": has no effect")
	}
}
