package engines

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Rollout contains keys of verl's RolloutConfig by their names, with values of a configuration:
// bool, int, float64, string, []any and map[string]any.
type Rollout map[string]any

// VerlDefaults returns the defaults of the keys in a reward_model's rollout that affect the start
// of an engine (verl-omni a1139ba, verl_omni/trainer/config/reward/reward.yaml).
func VerlDefaults() Rollout {
	return Rollout{
		"dtype": "bfloat16", "gpu_memory_utilization": 0.5, "enforce_eager": true, "max_num_batched_tokens": 8192, "max_num_seqs": 1024,
		"load_format": "auto", "scheduling_policy": "fcfs", "enable_chunked_prefill": true, "enable_prefix_caching": true, "disable_log_stats": true,
	}
}

// argument is what a key becomes on the command line of a kind.
type argument struct {
	vllm, sglang, transformers string // the flag; "": the kind has none
	// onlyTrue: a flag without a value, which is there if the value is true. negated: where it is false, --no-<flag> stands.
	onlyTrue, negated bool
}

// arguments are the keys that have an effect, by name. The flags are those that verl gives the same keys
// (verl/workers/rollout/{vllm_rollout/vllm_async_server,sglang_rollout/async_sglang_server}.py, 8a69493).
func arguments() map[string]argument {
	return map[string]argument{
		"dtype":                  {vllm: "dtype", sglang: "dtype", transformers: "dtype"},
		"gpu_memory_utilization": {vllm: "gpu-memory-utilization", sglang: "mem-fraction-static"},
		"enforce_eager":          {vllm: "enforce-eager", sglang: "disable-cuda-graph", onlyTrue: true},
		"max_num_batched_tokens": {vllm: "max-num-batched-tokens"},
		"max_model_len":          {vllm: "max-model-len", sglang: "context-length"},
		"max_num_seqs":           {vllm: "max-num-seqs", sglang: "max-running-requests"},
		"load_format":            {vllm: "load-format", sglang: "load-format"},
		"scheduling_policy":      {vllm: "scheduling-policy"},
		"enable_chunked_prefill": {vllm: "enable-chunked-prefill", onlyTrue: true, negated: true},
		"enable_prefix_caching":  {vllm: "enable-prefix-caching", onlyTrue: true, negated: true},
		"disable_log_stats":      {vllm: "disable-log-stats", onlyTrue: true},
		"quantization":           {vllm: "quantization", sglang: "quantization"},
		"seed":                   {vllm: "seed", sglang: "random-seed"},
	}
}

// idle are the keys that say nothing of how an engine for judges is started, and why.
func idle() map[string]string {
	return map[string]string{
		"temperature": judged, "top_k": judged, "top_p": judged, "do_sample": judged, "n": judged, "ignore_eos": judged, "response_length": judged,
		"prompt_length":       "prompts are as long as judges make them; max_model_len bounds them",
		"layered_summon":      trained,
		"multi_stage_wake_up": trained,
		"full_determinism":    "judges ask with temperature 0, or with seeds where loop.deterministic is true",
	}
}

const (
	judged  = "judges set the value with each question"
	trained = "the key is for engines whose weights a trainer replaces"
)

// Arguments returns the command-line arguments for the keys. notes contains, by key, the reason why
// a key has no effect for the kind. The error contains every key that requests something
// unsupported.
func (r Rollout) Arguments(kind Kind) (args []string, notes map[string]string, err error) {
	notes = map[string]string{}
	known, without := arguments(), idle()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(r)) {
		value := r[key]
		if value == nil {
			continue
		}
		a, has := known[key]
		switch {
		case has && a.flag(kind) == "":
			notes[key] = fmt.Sprintf("has no effect: %s has no such setting", kind)
		case has:
			args = append(args, a.of(kind, value)...)
		case without[key] != "":
			notes[key] = "has no effect: " + without[key]
		default:
			more, note, err := special(kind, key, value)
			args, errs = append(args, more...), append(errs, err)
			if note != "" {
				notes[key] = note
			}
		}
	}
	return args, notes, errors.Join(errs...)
}

// flag is that of a kind.
func (a argument) flag(kind Kind) string {
	return map[Kind]string{VLLM: a.vllm, SGLang: a.sglang, Transformers: a.transformers}[kind]
}

// of are the arguments for a value.
func (a argument) of(kind Kind, value any) []string {
	name := a.flag(kind)
	if !a.onlyTrue {
		return []string{"--" + name, written(value)}
	}
	switch {
	case value == true:
		return []string{"--" + name}
	case a.negated:
		return []string{"--no-" + name}
	}
	return nil
}

// special are the keys whose values are structures, or that cannot be had.
func special(kind Kind, key string, value any) (args []string, note string, err error) {
	none := func(format string, more ...any) ([]string, string, error) {
		return nil, "", fmt.Errorf(key+": "+format, more...)
	}
	switch key {
	case "engine_kwargs":
		all, ok := value.(map[string]any)
		if !ok {
			return none("want a mapping of engines, such as {vllm: {…}}, got %v", value)
		}
		own, ok := all[string(kind)].(map[string]any)
		if !ok && all[string(kind)] != nil {
			return none("%s: want a mapping of its arguments, got %v", kind, all[string(kind)])
		}
		return more(own), "", nil
	case "limit_images":
		if kind == VLLM {
			return []string{"--limit-mm-per-prompt", written(map[string]any{"image": value})}, "", nil
		}
		return nil, fmt.Sprintf("has no effect: %s has no such setting", kind), nil
	case "cudagraph_capture_sizes":
		sizes, _ := value.([]any)
		switch kind {
		case VLLM:
			return []string{"--compilation-config", written(map[string]any{"cudagraph_capture_sizes": sizes})}, "", nil
		case SGLang:
			return append([]string{"--cuda-graph-bs"}, each(sizes)...), "", nil
		}
		return nil, fmt.Sprintf("has no effect: %s has no such setting", kind), nil
	case "expert_parallel_size":
		if n, ok := value.(int); !ok || n <= 1 {
			return nil, "", nil
		}
		switch kind {
		case VLLM:
			return []string{"--enable-expert-parallel"}, "", nil
		case SGLang:
			return []string{"--ep-size", written(value)}, "", nil
		}
		return none("%s spreads no experts over cards", kind)
	case "skip_tokenizer_init":
		if value == true {
			return none("true leaves the engine without a tokenizer, but judges send text")
		}
	case "quantization_config_file", "mtp":
		return none("is not passed to engines that rewardloop starts; write the argument under engine_kwargs.%s", kind)
	case "disaggregation":
		if m, _ := value.(map[string]any); m["enabled"] == true {
			return none("rewardloop does not start prefill and decoding on separate servers; start the servers yourself, and write name: external and base_urls")
		}
	default:
		return none("is not a key for the start of an engine")
	}
	return nil, "", nil
}

// more are arguments as verl makes them of engine_kwargs: no value leaves one out, true is the flag alone, a list is its
// members, a mapping is JSON. false is --no-<flag>, where verl leaves the argument out and so has the engine's default.
func more(kwargs map[string]any) (args []string) {
	for _, key := range slices.Sorted(maps.Keys(kwargs)) {
		name := strings.ReplaceAll(key, "_", "-")
		switch value := kwargs[key].(type) {
		case nil:
		case bool:
			if value {
				args = append(args, "--"+name)
			} else {
				args = append(args, "--no-"+name)
			}
		case []any:
			if len(value) > 0 {
				args = append(append(args, "--"+name), each(value)...)
			}
		default:
			args = append(args, "--"+name, written(value))
		}
	}
	return args
}

func each(values []any) (out []string) {
	for _, v := range values {
		out = append(out, written(v))
	}
	return out
}

// written is a value on a command line.
func written(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case map[string]any, []any:
		text, err := json.Marshal(v)
		if err != nil { // of what no configuration file can hold
			return fmt.Sprint(v)
		}
		return string(text)
	}
	return fmt.Sprint(value)
}
