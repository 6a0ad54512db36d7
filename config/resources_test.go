package config_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

const (
	scored   = "reward.custom_reward_function.path=builtin://ocr"
	enabled  = "reward.reward_model.enable=True"
	external = "reward.reward_model.rollout.name=external"
	urls     = "+reward.reward_model.rollout.base_urls=[http://127.0.0.1:8000]"
	path     = "reward.reward_model.model_path=m"
	pooled   = "reward.reward_model.enable_resource_pool=True"
)

// with is a copy of overrides with more of them.
func with(overrides []string, more ...string) []string { return slices.Concat(overrides, more) }

func TestTheWorkersOfARewardModelWithAPoolFollowFromItsCards(t *testing.T) {
	t.Parallel()
	engine := []string{scored, enabled, external, urls, path}
	onPool := with(engine, pooled, "reward.reward_model.nnodes=1")
	for name, c := range map[string]struct {
		overrides []string
		workers   int
	}{
		"no reward model":                           {[]string{scored}, 8},
		"one without a pool":                        {engine, 8},
		"two cards for each engine where none says": {onPool, 4},
		"a card for each":                           {with(onPool, "reward.reward_model.rollout.tensor_model_parallel_size=1"), 8},
		"as many as fit":                            {with(onPool, "reward.reward_model.n_gpus_per_node=7", "reward.reward_model.rollout.tensor_model_parallel_size=3"), 2},
		"at least one":                              {with(onPool, "reward.reward_model.n_gpus_per_node=1"), 1},
		"those of this machine":                     {with(onPool, "reward.reward_model.nnodes=4"), 4},
		"as written":                                {with(onPool, "reward.num_workers=3"), 3},
		"none":                                      {with(onPool, "reward.num_workers=0", "queue.nats_listen=127.0.0.1:0"), 0},
		"a model that runs here":                    {[]string{scored, enabled, path, pooled, "reward.reward_model.nnodes=1", "reward.reward_model.n_gpus_per_node=3", "reward.reward_model.rollout.name=onnx"}, 3},
		"a pool of functions":                       {[]string{scored, pooled, "reward.reward_model.nnodes=1"}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c2 := parse(t, "", c.overrides...)
			assert.Equal(t, c.workers, c2.NumWorkers)
			again := parse(t, printed(t, c2))
			assert.Equal(t, c.workers, again.NumWorkers)
			assert.Equal(t, c2.PoolCards(), again.PoolCards())
			assert.Equal(t, c2.Foreseen(), again.Foreseen())
		})
	}
}

func TestAPoolWithoutCardsOrMachinesIsRefusedAsInVerlOmni(t *testing.T) {
	t.Parallel()
	for override, want := range map[string]string{
		"reward.reward_model.nnodes=1":          "",
		"reward.reward_model.n_gpus_per_node=0": "reward.reward_model.n_gpus_per_node: want 1 or more: the number of cards of each machine",
		"reward.reward_model.nnodes=0":          "reward.reward_model.nnodes: want 1 or more machines; write nnodes: 1",
		"reward.num_workers=2":                  "reward.reward_model.enable_resource_pool: needs nnodes, the number of machines: write nnodes: 1",
		"reward.reward_model.nnodes=-1":         "reward.reward_model.nnodes: ",
	} {
		_, err := config.Load("", []string{scored, pooled, override}, nil)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want, override)
	}
}

func TestWhatThePoolMeansHereIsNoted(t *testing.T) {
	t.Parallel()
	engine := []string{scored, enabled, external, urls, path}
	for name, c := range map[string]struct {
		overrides []string
		want      string
	}{
		"engines on a pool": {
			with(engine, pooled, "reward.reward_model.nnodes=1", "reward.reward_model.n_gpus_per_node=4", "reward.reward_model.rollout.tensor_model_parallel_size=2"),
			"tensor_model_parallel_size: verl-omni starts 2 engines of 2 cards (tensor 2 × pipeline 1 × data 1) on the pool of 4 cards. rewardloop starts no engine here",
		},
		"engines of all sizes": {
			with(engine, pooled, "reward.reward_model.nnodes=2", "reward.reward_model.rollout.pipeline_model_parallel_size=2", "reward.reward_model.rollout.data_parallel_size=2"),
			"starts 2 engines of 8 cards (tensor 2 × pipeline 2 × data 2) on the pool of 16 cards",
		},
		"no engine": {
			with(engine, pooled, "reward.reward_model.nnodes=1", "reward.reward_model.n_gpus_per_node=1"),
			"enable_resource_pool: verl-omni starts no engine: one engine needs 2 cards (tensor 2 × pipeline 1 × data 1), and the pool has 1",
		},
		"the trainer's cards": {
			with(engine, "reward.reward_model.enable_resource_pool=False", "reward.reward_model.rollout.tensor_model_parallel_size=4"),
			"verl-omni starts engines of 4 cards (tensor 4 × pipeline 1 × data 1) on the trainer's cards. rewardloop starts no engine here",
		},
		"colocated": {
			with(engine, "reward.reward_model.enable_resource_pool=False"),
			"enable_resource_pool: verl-omni gives the reward model the trainer's cards, which rewardloop does not manage: models with device: cuda run on every card that the process sees",
		},
		"a size without a pool": {with(engine, "reward.reward_model.n_gpus_per_node=4"), "n_gpus_per_node: has no effect without enable_resource_pool: true"},
		"several machines":      {[]string{scored, pooled, "reward.reward_model.nnodes=3"}, "nnodes: start a process on each of the 3 machines (rewardloop worker), with 8 cards each"},
		"a model that runs here": {
			[]string{scored, enabled, path, "reward.reward_model.rollout.name=onnx", "reward.reward_model.rollout.tensor_model_parallel_size=2"},
			"tensor_model_parallel_size: has no effect: a model that runs in this process has a copy on each card",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Contains(t, notes(parse(t, "", c.overrides...)), c.want)
		})
	}
	c := parse(t, `reward: {custom_reward_function: {path: builtin://ocr}, reward_model: {enable_resource_pool: true, n_gpus_per_node: 2, nnodes: 1}}
rewards:
  b: {custom_reward_function: {path: builtin://ocr}, reward_model: {enable_resource_pool: true, n_gpus_per_node: 4, nnodes: 1}}
`)
	assert.Equal(t, 4, c.PoolCards())
	assert.Contains(t, notes(c), "reward.reward_model.n_gpus_per_node: the cards of a process are one pool, and another reward sets its size to 4")
}

// runners is a registry with a scorer that runs a model and one that does not.
func runners(got *json.RawMessage) *rewards.Registry {
	var reg rewards.Registry
	build := func(raw json.RawMessage) (rewards.Scorer, error) {
		*got = raw
		return nil, errors.New("this test builds none")
	}
	options := []rewards.Option{{Name: "device", Default: infer.CPU}, {Name: "model", Default: "default-model"}, {Name: "engine"}}
	reg.Register(rewards.Spec{Name: "model", Options: options, Build: build})
	reg.Register(rewards.Spec{Name: config.ONNXScorer, Options: options, Build: build})
	reg.Register(rewards.Spec{Name: "plain", Build: build})
	return &reg
}

func TestComponentsAndEnginesHaveTheCardsThatTheirDevicesName(t *testing.T) {
	t.Parallel()
	c := parse(t, `reward:
  reward_functions:
    a: {path: builtin://model, device: cuda, fraction: 0.5}
    b: {path: builtin://model, model: other, device: "cuda:1", fraction: 0.25}
    c: {path: "onnx:///data/third"}
    same: {path: builtin://model, device: cuda}
    read: {path: builtin://model, reader: tesseract, device: "cuda:7"}
    plain: {path: builtin://plain, device: "cuda:7"}
  reward_model: {enable_resource_pool: true, n_gpus_per_node: 2, nnodes: 1}
rewards:
  d: {custom_reward_function: {path: builtin://model, reward_kwargs: {model: fourth, device: "cuda:2", fraction: 1}}}
engines:
  e: {onnx: fifth, device: "cuda:0", fraction: 0.25}
`)
	reg := runners(new(json.RawMessage))
	require.True(t, c.AsksForCards(reg))
	plan, err := c.PlanCards(reg, machine(3))
	require.NoError(t, err)
	got := map[string][]string{}
	for _, h := range plan.Owners {
		got[h.Owner+" "+h.What] = h.Devices
	}
	assert.Equal(t, map[string][]string{
		"reward.reward_functions.a, reward.reward_functions.same default-model": {"cuda:0", "cuda:1"},
		"reward.reward_functions.b other":                                       {"cuda:1"},
		"reward.reward_functions.c /data/third":                                 {"cpu"},
		"rewards.d.custom_reward_function fourth":                               {"cuda:2"},
		"engine e fifth": {"cuda:0"},
	}, got)

	_, err = c.PlanCards(reg, machine(2))
	var faults config.FaultsError
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 1)
	assert.Equal(t, "rewards.d.custom_reward_function.reward_kwargs.device", faults[0].Key)
	assert.Equal(t, 11, faults[0].Place.Line)
	assert.True(t, faults[0].Lacking, "another machine may have it")
	assert.Contains(t, c.UnknownCards(reg, errors.New("nvidia-smi hangs")).Error(), "engines.e.device: nvidia-smi hangs")

	again := parse(t, printed(t, c))
	assert.InDelta(t, 0.25, again.Engines["e"].Fraction, 0)
	assert.InDelta(t, 0.5, again.Profiles["default"].Components[0].Fraction, 0)
	assert.False(t, parse(t, "", scored).AsksForCards(reg))
}

func TestTheFractionIsTheConfigurationsAndNoOptionOfTheScorer(t *testing.T) {
	t.Parallel()
	var got json.RawMessage
	reg := runners(&got)
	c := parse(t, `reward: {reward_functions: {a: {path: builtin://model, device: cuda, fraction: 0.5}}}`)
	_, err := config.BuildManagers(c, reg)
	require.Error(t, err)
	assert.JSONEq(t, `{"device": "cuda"}`, string(got))

	c = parse(t, `reward: {reward_functions: {a: {path: builtin://plain, fraction: 0.5}}}`)
	_, err = config.BuildManagers(c, reg)
	require.ErrorContains(t, err, `fraction: the scorer "plain" runs no model in this process that could share a card; leave fraction out`)

	c = parse(t, `reward: {reward_functions: {a: {path: pkg://mine, fraction: 7}}}`)
	assert.JSONEq(t, `{"fraction": 7}`, string(c.Profiles["default"].Components[0].Options), "of a function in Python it is its own")

	for _, wrong := range []string{"0", "-0.5", "1.5", "half"} {
		_, err := config.Load("", []string{"+reward.reward_functions.a.path=builtin://model", "+reward.reward_functions.a.fraction=" + wrong}, nil)
		require.ErrorContains(t, err, "reward.reward_functions.a.fraction: want ", wrong)
		_, err = config.Load("", []string{scored, "+engines.e.onnx=m", "+engines.e.fraction=" + wrong}, nil)
		require.ErrorContains(t, err, "engines.e.fraction: want ", wrong)
	}
}
