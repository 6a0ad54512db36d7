package engines_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/engines"
)

func TestVerlsDefaultsAreTheArgumentsThatVerlGives(t *testing.T) {
	t.Parallel()
	for kind, want := range map[engines.Kind]string{
		engines.VLLM: "--disable-log-stats --dtype bfloat16 --enable-chunked-prefill --enable-prefix-caching --enforce-eager --gpu-memory-utilization 0.5 " +
			"--load-format auto --max-num-batched-tokens 8192 --max-num-seqs 1024 --scheduling-policy fcfs",
		engines.SGLang:       "--dtype bfloat16 --disable-cuda-graph --mem-fraction-static 0.5 --load-format auto --max-running-requests 1024",
		engines.Transformers: "--dtype bfloat16",
	} {
		args, _, err := engines.VerlDefaults().Arguments(kind)
		require.NoError(t, err)
		assert.Equal(t, want, strings.Join(args, " "), kind)
	}
}

func TestKeysOfARolloutBecomeArguments(t *testing.T) {
	t.Parallel()
	r := engines.Rollout{
		"enable_prefix_caching": false, "enforce_eager": false, "max_model_len": 4096, "limit_images": 2, "cudagraph_capture_sizes": []any{1, 2, 4},
		"expert_parallel_size": 2, "seed": 7, "quantization": nil, "temperature": 1.0, "skip_tokenizer_init": false, "disaggregation": map[string]any{"enabled": false},
		"engine_kwargs": map[string]any{
			"vllm":   map[string]any{"allowed_local_media_path": "/data", "trust_remote_code": true, "async_scheduling": false, "middleware": []any{"a", "b"}, "hf_overrides": map[string]any{"x": 1}, "none": nil, "empty": []any{}},
			"sglang": map[string]any{"attention_backend": "fa3"},
		},
	}
	args, notes, err := r.Arguments(engines.VLLM)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"--compilation-config", `{"cudagraph_capture_sizes":[1,2,4]}`, "--no-enable-prefix-caching", "--allowed-local-media-path", "/data", "--no-async-scheduling",
		"--hf-overrides", `{"x":1}`, "--middleware", "a", "b", "--trust-remote-code", "--enable-expert-parallel", "--limit-mm-per-prompt", `{"image":2}`, "--max-model-len", "4096",
		"--seed", "7",
	}, args)
	assert.Equal(t, map[string]string{"temperature": "has no effect: judges set the value with each question"}, notes)
	args, notes, err = r.Arguments(engines.SGLang)
	require.NoError(t, err)
	assert.Equal(t, "--cuda-graph-bs 1 2 4 --attention-backend fa3 --ep-size 2 --context-length 4096 --random-seed 7", strings.Join(args, " "))
	assert.Equal(t, "has no effect: sglang has no such setting", notes["enable_prefix_caching"])
	assert.Equal(t, "has no effect: sglang has no such setting", notes["limit_images"])
}

func TestWhatCannotBeHadIsRefusedByItsKey(t *testing.T) {
	t.Parallel()
	_, _, err := engines.Rollout{
		"skip_tokenizer_init": true, "mtp": map[string]any{}, "disaggregation": map[string]any{"enabled": true}, "speed": 1, "engine_kwargs": 3,
	}.Arguments(engines.VLLM)
	for _, want := range []string{"skip_tokenizer_init: true leaves", "mtp: is not passed", "disaggregation: rewardloop does not start prefill", "speed: is not a key", "engine_kwargs: want a mapping of engines"} {
		require.ErrorContains(t, err, want)
	}
	_, _, err = engines.Rollout{"engine_kwargs": map[string]any{"vllm": "x"}}.Arguments(engines.VLLM)
	require.ErrorContains(t, err, "engine_kwargs: vllm: want a mapping of its arguments")
	_, _, err = engines.Rollout{"expert_parallel_size": 4}.Arguments(engines.Transformers)
	require.ErrorContains(t, err, "transformers spreads no experts over cards")
}
