package config_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestAPathOfOnnxNamesTheModel(t *testing.T) {
	t.Parallel()
	var reg rewards.Registry
	var got []string
	reg.Register(rewards.Spec{Name: config.ONNXScorer, Build: func(raw json.RawMessage) (rewards.Scorer, error) {
		got = append(got, string(raw))
		return closable{new(int), 1}, nil
	}})
	c := parse(t, `reward:
  reward_functions:
    a: {path: "onnx:///data/models/hpsv3", device: "cuda:1"}
    b: {path: onnx://aesthetic-v2}
`)
	_, err := config.BuildManagers(c, &reg)
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.JSONEq(t, `{"model": "/data/models/hpsv3", "device": "cuda:1"}`, got[0])
	assert.JSONEq(t, `{"model": "aesthetic-v2"}`, got[1])
	assert.Contains(t, printed(t, c), "onnx:///data/models/hpsv3")

	_, err = config.Parse("c.yaml", []byte(`reward: {reward_functions: {a: {path: "onnx://"}, b: {path: builtin://onnx}, c: {path: "onnx://x", name: f}}}`), nil, nil)
	require.ErrorContains(t, err, "names no model: write onnx:// and a name or a folder")
	require.ErrorContains(t, err, "write the model itself, such as onnx:///data/models/hpsv3")
	require.ErrorContains(t, err, "holds no function; leave name out")
}

func TestAnEngineMayBeAModelThatRunsHere(t *testing.T) {
	t.Parallel()
	c := parse(t, `reward:
  custom_reward_function: {path: builtin://unified_reward}
  reward_model: {enable: true, model_path: smolvlm-256m, rollout: {name: onnx, device: "cuda:0"}}
engines:
  small: {onnx: /data/vlm}
`)
	own, small := c.Engines["reward_model"], c.Engines["small"]
	assert.Equal(t, "smolvlm-256m", own.ONNX)
	assert.Equal(t, "cuda:0", own.Device)
	assert.Equal(t, "/data/vlm", small.ONNX)
	assert.Equal(t, "cpu", small.Device)
	assert.Empty(t, append(own.URLs, small.URLs...))

	again := parse(t, printed(t, c))
	assert.Equal(t, own.ONNX, again.Engines["reward_model"].ONNX)
	assert.Equal(t, small.Device, again.Engines["small"].Device)

	for text, want := range map[string]string{
		`engines: {a: {onnx: x, device: gpu}}`:                                                                    "want cpu, cuda (every card of the reward pool) or cuda:<n>",
		`engines: {a: {onnx: x, base_urls: [http://h:1]}}`:                                                        "base_urls",
		`engines: {a: {model: x}}`:                                                                                "or onnx and a model that runs in this process",
		`reward: {reward_model: {enable: true, rollout: {name: onnx}}}`:                                           "has no model_path",
		`reward: {reward_model: {enable: true, model_path: x, rollout: {name: onnx, base_urls: ["http://h:1"]}}}`: "cannot be combined with name: onnx",
	} {
		_, err := config.Parse("c.yaml", []byte(text), nil, nil)
		require.ErrorContains(t, err, want, text)
	}
}
