package config

import (
	"maps"
	"slices"
	"strings"
)

// This file knows what verl and verl-omni write that rewardloop writes
// differently, or does not have yet, and what to write instead.

// renamed are the keys that have another name now, and those of verl's and of a trainer's recipe
// that stand elsewhere. A row holds for the key and for all below it, so that a section has one
// row: "old": "new" answers old.key with new.key.
func renamed() map[string]string {
	return map[string]string{
		"custom_reward_function":                "reward.custom_reward_function",
		"reward_functions":                      "reward.reward_functions",
		"reward_manager":                        "reward.reward_manager",
		"aggregation":                           "reward.aggregation",
		"num_workers":                           "reward.num_workers",
		"sandbox_fusion":                        "reward.sandbox_fusion",
		"reward_model":                          "reward.reward_model",
		"reward_model.num_workers":              "reward.num_workers",
		"reward_model.reward_manager":           "reward.reward_manager.name",
		"reward_model.reward_loop_source":       "reward.reward_manager.source",
		"reward_model.reward_loop_module_path":  "reward.reward_manager.module.path",
		"reward_model.reward_loop_class_name":   "reward.reward_manager.name",
		"reward_model.reward_kwargs":            "reward.custom_reward_function.reward_kwargs",
		"reward_model.sandbox_fusion":           "reward.sandbox_fusion",
		"reward_model.model.path":               "reward.reward_model.model_path",
		"max_concurrency":                       "reward.custom_reward_function.max_concurrency",
		"fabric":                                "queue",
		"loop.term_timeout":                     "loop.component_timeout",
		"pool.python.hosts":                     "pool.python.processes",
		"pool.python.memory_bytes":              "pool.python.memory",
		"reward.reward_kwargs":                  "reward.custom_reward_function.reward_kwargs",
		"reward.sandbox_fusion_url":             "reward.sandbox_fusion.url",
		"reward.path":                           "reward.custom_reward_function.path",
		"reward.name":                           "reward.custom_reward_function.name",
		"reward.reward_model.num_workers":       "reward.num_workers",
		"reward.reward_model.reward_manager":    "reward.reward_manager.name",
		"reward.reward_model.model.path":        "reward.reward_model.model_path",
		"reward.reward_model.model":             "reward.reward_model.model_path",
		"reward.reward_manager.path":            "reward.reward_manager.module.path",
		"reward.custom_reward_function.weight":  "reward.reward_functions.<key>.weight",
		"reward.custom_reward_function.kwargs":  "reward.custom_reward_function.reward_kwargs",
		"reward.custom_reward_function.options": "reward.custom_reward_function.reward_kwargs",
	}
}

// renamedOptions are options of scorers that have another name now.
func renamedOptions() map[string]string { return map[string]string{"ocr.engine": "reader"} }

// legacyAdvice answers a key that stands where older versions of verl, or the
// trainer's part of a recipe, have it. It returns "" for any other key.
func legacyAdvice(key string) string {
	if strings.HasPrefix(key, "reward.reward_kwargs.overlong_buffer_cfg.") {
		return ""
	}
	for at, below, moved := key, "", renamed(); ; {
		if now, ok := moved[at]; ok {
			return "has moved: write " + now + below
		}
		i := strings.LastIndexByte(at, '.')
		if i < 0 {
			break
		}
		at, below = at[:i], at[i:]+below
	}
	switch first, rest, _ := strings.Cut(key, "."); first {
	case "queue":
		if rest == "pool" {
			return "has been removed: each reward has a queue of its own; write queue.rewards for what this process's workers serve"
		}
	case "loop":
		if rest == "workers.slots" {
			return "has been removed: the scorers of a reward determine how many samples are scored at a time (rewardloop config print shows the number); " +
				"to set the number write concurrency at an entry of reward_functions, or reward.concurrency for the reward as a whole, for all workers of the process together"
		}
	case "reward":
		if rest == "defaults" || strings.HasPrefix(rest, "defaults.") {
			return "rewardloop does not compose files as Hydra does: paste the output of `--cfg job --resolve` instead of a defaults list"
		}
		if slices.Contains([]string{"launch_reward_fn_async", "reward_model.launch_reward_fn_async", "reward_model.use_reward_loop"}, rest) {
			return "leave the key out: every sample is scored as soon as it arrives"
		}
	case "actor_rollout_ref", "algorithm", "critic", "data", "global_profiler", "hydra", "mini_batch_pipeline", "ray_kwargs", "trainer", "transfer_queue", "update_pipeline":
		return "belongs to the trainer: rewardloop reads only the reward part of a recipe; leave the key out"
	}
	return ""
}

// replacements are the built-in scorers that do what a reward function of
// verl-omni does, by the function's module in verl_omni.utils.reward_score.
func replacements() map[string]string {
	return map[string]string{
		"genrm_ocr":            "genrm_ocr",
		"jpeg_compressibility": "jpeg_compressibility",
		"unified_reward":       "unified_reward",
		"choice_reward":        "choice",
	}
}

// placeholder is the function verl-omni's recipes name where a single reward is
// expected and several are configured.
const placeholder = "_multi_reward_placeholder"

// Suggested returns the built-in scorers that messages recommend, so that a test can compare the
// list with the registry.
func Suggested() []string {
	names := slices.Sorted(maps.Values(replacements()))
	return slices.Compact(names)
}

// wrongPath says why a path that is none of the others cannot be used; "" for builtin://.
func wrongPath(p string) string {
	const listed = "; write builtin:// and the name of a built-in scorer (`rewardloop scorers` lists them), or a Python file"
	scheme, _, hasScheme := strings.Cut(p, "://")
	switch {
	case !hasScheme && strings.ContainsAny(p, `/\`):
		return "want a Python file, whose name ends in .py"
	case !hasScheme:
		return "want builtin:// before the name of a built-in scorer: builtin://" + p
	}
	if scheme == "builtin" {
		return ""
	}
	return "no such kind of path" + listed
}
