package config

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rewardloop/rewardloop/config/keys"
)

// tree is the tree of the keys that a file may hold: name → what is below it,
// nil for a value or for names the user chooses. A name that ends in "?" may be
// written but is not there by default, so that an override must add it.
type tree map[string]tree

// schema is the tree of a whole file.
func schema() tree {
	root := tree{"reward": rewardKeys(), "rewards": nil, "engines": nil}
	addSections(root, Default().sections())
	return root
}

func addSections(into tree, sections []*keys.Section) {
	for _, s := range sections {
		below := tree{}
		for _, k := range s.Keys {
			below[k.Name] = nil
		}
		addSections(below, s.Sections)
		into[s.Name] = below
	}
}

// rewardKeys is what stands below reward and below rewards.<name>: verl-omni's
// keys (verl_omni/trainer/config/reward/reward.yaml) and ours.
func rewardKeys() tree {
	return tree{
		"num_workers": nil,
		"concurrency": nil,
		"custom_reward_function": {
			"path": nil, "name": nil, "reward_kwargs?": nil,
			"timeout?": nil, "retries?": nil, "invalid_values?": nil, "extra_keys?": nil, "pixels?": nil,
			"concurrency?": nil, "max_concurrency?": nil, "memory?": nil, "env?": nil, "probe?": nil,
			"when?": nil, "clip?": nil, "scale?": nil, "min_members?": nil, "steps?": nil,
		},
		"reward_fn_key?":        nil,
		"group_by?":             nil,
		"verify?":               nil,
		"reward_functions":      nil,
		"aggregation":           nil,
		"on_sample_failure":     nil,
		"compute_score_kwargs?": nil,
		"reward_manager": {
			"source": nil, "name": nil, "_target_?": nil,
			"module": {"path": nil, "name?": nil, "_target_?": nil},
		},
		"reward_model":   rewardModelKeys(),
		"reward_kwargs?": {"max_resp_len?": nil, "overlong_buffer_cfg?": nil},
		"sandbox_fusion": {"url": nil, "max_concurrent": nil, "memory_limit_mb": nil, "_target_?": nil},
		"_target_?":      nil,
	}
}

// functionKeys are the keys that an entry of reward_functions may have besides its scorer's
// own: those of custom_reward_function, but for the section of the scorer's own, and what
// tells several functions apart.
func functionKeys() []string {
	names := slices.DeleteFunc(rewardKeys()["custom_reward_function"].visible(), func(s string) bool {
		return s == "reward_kwargs" || s == "max_concurrency"
	})
	return append(names, "weight", "required", "on_failure", "post_process")
}

func rewardModelKeys() tree {
	return tree{
		"enable": nil, "enable_resource_pool": nil, "n_gpus_per_node": nil, "nnodes": nil,
		"model_path": nil, "_target_?": nil, "rollout": rolloutKeys(),
	}
}

// rolloutKeys are those of verl's RolloutConfig as its reward.yaml lists them, and
// ours: base_urls, the addresses of engines that run already, and how they are asked.
func rolloutKeys() tree {
	k := tree{"base_urls?": nil, "device?": nil, "fraction?": nil, "_target_?": nil}
	for _, name := range engineKeys() {
		k[name+"?"] = nil
	}
	for name := range strings.FieldsSeq(`
		name dtype gpu_memory_utilization enforce_eager cudagraph_capture_sizes free_cache_engine
		data_parallel_size expert_parallel_size tensor_model_parallel_size pipeline_model_parallel_size
		max_num_batched_tokens max_model_len max_num_seqs load_format layered_summon full_determinism seed
		scheduling_policy multi_stage_wake_up engine_kwargs limit_images enable_chunked_prefill
		enable_prefix_caching disable_log_stats skip_tokenizer_init ignore_eos temperature top_k top_p
		do_sample n prompt_length response_length quantization quantization_config_file mtp
		disaggregation profiler`) {
		k[name] = nil
	}
	return k
}

// names lists the keys of one level in order, for messages and checks.
func (k tree) names() []string {
	out := make([]string, 0, len(k))
	for _, name := range slices.Sorted(maps.Keys(k)) {
		out = append(out, strings.TrimSuffix(name, "?"))
	}
	return out
}

// visible are the names a mistyped key may have meant.
func (k tree) visible() []string {
	return slices.DeleteFunc(k.names(), func(s string) bool { return strings.HasPrefix(s, "_") })
}

// level is the tree that a path leads into, with the tree of a named profile in
// place of the name. open is true where the user chooses the names.
func level(root *yaml.Node, path []string) (below tree, open bool) {
	if len(path) >= 2 && path[0] == "rewards" && find(root, path[:2]) != nil {
		path = append([]string{"reward"}, path[2:]...)
	}
	below = schema()
	for _, name := range path {
		next, ok := below[name]
		if !ok {
			next, ok = below[name+"?"]
		}
		switch {
		case !ok:
			return nil, false
		case next == nil:
			return nil, true
		}
		below = next
	}
	return below, false
}

// isDefault reports whether a key has a value without being written.
func isDefault(root *yaml.Node, path []string) bool {
	below, _ := level(root, path[:len(path)-1])
	_, ok := below[path[len(path)-1]]
	return ok
}

// missingKey is the fault of key=value for a key that is not there.
func missingKey(root *yaml.Node, path []string) string {
	key := strings.Join(path, ".")
	if advice := legacyAdvice(key); advice != "" {
		return advice
	}
	for i, name := range path {
		below, open := level(root, path[:i])
		if open || slices.Contains(below.names(), name) && i == len(path)-1 {
			break
		}
		if below != nil && !slices.Contains(below.names(), name) {
			return "no such key " + strings.Join(path[:i+1], ".") + nearest(name, below.visible())
		}
	}
	return "is not there: write +" + key + "= to add it"
}
