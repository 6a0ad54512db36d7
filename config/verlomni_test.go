package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
)

// These are the reward lines of three recipes of verl-omni
// (examples/flowgrpo_trainer/qwen_image at a1139ba), their shell variables
// replaced by the recipes' defaults. Each key in missing must be named, with
// what to write instead; nothing else may be reported.
func TestRewardLinesOfVerlOmniRecipesAreUnderstood(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		overrides []string
		missing   map[string]string
	}{
		"run_qwen_image_ocr_lora_async_reward.sh": {
			overrides: []string{
				"reward.num_workers=1",
				"reward.reward_model.enable=True",
				"reward.reward_model.model_path=Qwen/Qwen3-VL-8B-Instruct",
				"reward.reward_model.rollout.name=vllm",
				"reward.reward_model.enable_resource_pool=True",
				"reward.reward_model.nnodes=1",
				"reward.reward_model.n_gpus_per_node=1",
				"reward.reward_model.rollout.gpu_memory_utilization=0.9",
				"reward.reward_model.rollout.free_cache_engine=False",
				"reward.reward_model.rollout.tensor_model_parallel_size=1",
				"reward.reward_model.rollout.enforce_eager=False",
				"reward.custom_reward_function.path=verl_omni/utils/reward_score/genrm_ocr.py",
				"reward.custom_reward_function.name=compute_score_ocr",
			},
			missing: map[string]string{
				"reward.reward_model.enable":                             "write false",
				"reward.reward_model.model_path":                         "leave it out",
				"reward.reward_model.rollout.name":                       "leave it out",
				"reward.reward_model.enable_resource_pool":               "leave it out",
				"reward.reward_model.nnodes":                             "leave it out",
				"reward.reward_model.n_gpus_per_node":                    "leave it out",
				"reward.reward_model.rollout.gpu_memory_utilization":     "leave it out",
				"reward.reward_model.rollout.free_cache_engine":          "leave it out",
				"reward.reward_model.rollout.tensor_model_parallel_size": "leave it out",
				"reward.reward_model.rollout.enforce_eager":              "leave it out",
				"reward.custom_reward_function.path":                     "builtin://ocr does what genrm_ocr does",
			},
		},
		"run_qwen_image_ocr_multi_reward.sh": {
			overrides: []string{
				"reward.num_workers=4",
				"reward.reward_model.enable=True",
				"reward.reward_model.model_path=/root/huggingface/Qwen3-VL-8B-Instruct",
				"reward.reward_model.rollout.name=vllm",
				"reward.reward_model.rollout.tensor_model_parallel_size=1",
				"reward.custom_reward_function.path=pkg://verl_omni.reward_loop.reward_manager.multi",
				"reward.custom_reward_function.name=_multi_reward_placeholder",
				"reward.reward_manager.name=MultiVisualRewardManager",
				"reward.reward_manager.module.path=pkg://verl_omni.reward_loop.reward_manager",
				"+reward.reward_functions.ocr.path=/repo/verl_omni/utils/reward_score/genrm_ocr.py",
				"+reward.reward_functions.ocr.name=compute_score_ocr",
				"+reward.reward_functions.ocr.weight=0.5",
				"+reward.reward_functions.jpeg.path=/repo/verl_omni/utils/reward_score/jpeg_compressibility.py",
				"+reward.reward_functions.jpeg.name=compute_score",
				"+reward.reward_functions.jpeg.weight=0.5",
				"reward.aggregation=weighted_sum",
			},
			missing: map[string]string{
				"reward.reward_model.enable":                             "write false",
				"reward.reward_model.model_path":                         "leave it out",
				"reward.reward_model.rollout.name":                       "leave it out",
				"reward.reward_model.rollout.tensor_model_parallel_size": "leave it out",
				"reward.reward_functions.ocr.path":                       "builtin://ocr does what genrm_ocr does",
				"reward.reward_functions.jpeg.path":                      "builtin://jpeg_compressibility does what",
			},
		},
		"reward model that runs already": {
			overrides: []string{
				"reward.reward_model.enable=true",
				"reward.reward_model.rollout.name=external",
				"+reward.reward_model.rollout.base_urls=[http://127.0.0.1:8000]",
				"reward.custom_reward_function.path=builtin://ocr",
			},
			missing: map[string]string{
				"reward.reward_model.enable":            "write false",
				"reward.reward_model.rollout.name":      "neither vllm, sglang nor external",
				"reward.reward_model.rollout.base_urls": "leave it out",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Load("", c.overrides, nil)
			var all config.FaultsError
			require.ErrorAs(t, err, &all)
			for _, f := range all {
				want, ok := c.missing[f.Key]
				assert.True(t, ok, "%v", f)
				assert.Contains(t, f.Message, want, "%v", f)
				assert.NotContains(t, f.Message, "no such key")
				assert.True(t, strings.HasPrefix(strings.TrimLeft(f.Place.Override, "+"), f.Key+"="), "%v", f)
			}
			assert.Len(t, all, len(c.missing), "%v", err)
		})
	}
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
	term := c.Profiles["default"].Terms[0]
	assert.Equal(t, config.PythonScorer, term.Scorer)
	assert.JSONEq(t, `{"server_url": "http://localhost:19082"}`, string(term.Options))
	assert.Contains(t, notes(c), "reward.reward_functions.ocr.path: runs in Python and asks another server: server_url must not be this one's")
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
	assert.Equal(t, "ocr", p.Terms[0].Scorer)
	assert.Contains(t, notes(c), "reward.reward_functions.ocr.name: has no effect beside builtin://ocr")
	assert.Contains(t, notes(c), "`on_failure: zero` below it restores verl-omni's way")
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
