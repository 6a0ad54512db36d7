package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/models"
	"github.com/rewardloop/rewardloop/rewards"
)

// closable counts how many of its kind are open.
type closable struct {
	open *int
	n    float64
}

func (c closable) Score(context.Context, *rewards.Sample) (rewards.Score, error) {
	return rewards.Score{Value: c.n}, nil
}

func (c closable) Close() error { *c.open--; return nil }

// registry has one scorer, "constant", with the option n.
func registry(open *int) *rewards.Registry {
	var reg rewards.Registry
	reg.Register(rewards.Spec{Name: "constant", Build: func(raw json.RawMessage) (rewards.Scorer, error) {
		var o struct {
			N float64 `json:"n"`
		}
		if err := rewards.DecodeOptions(raw, &o); err != nil {
			return nil, err
		}
		*open++
		return closable{open, o.N}, nil
	}})
	return &reg
}

func TestBuildManagersMakesOneManagerForEachProfile(t *testing.T) {
	t.Parallel()
	c := parse(t, `reward:
  reward_functions:
    a: {path: builtin://constant, weight: 2, n: 3}
    b: {path: builtin://constant, n: 0.5}
rewards:
  one: {custom_reward_function: {path: builtin://constant, reward_kwargs: {n: 7}}}
`)
	var open int
	managers, err := config.BuildManagers(c, registry(&open))
	require.NoError(t, err)
	assert.Equal(t, 3, open)
	require.Len(t, managers, 2)
	assert.Equal(t, []string{"a", "b"}, managers[config.DefaultProfile].Components())
	assert.Equal(t, []string{"constant"}, managers["one"].Components())
	for _, m := range managers {
		require.NoError(t, m.Close())
	}
	assert.Zero(t, open)
}

func TestBuildManagersReportsAllFaultsAndClosesWhatItBuilt(t *testing.T) {
	t.Parallel()
	c := parse(t, `reward:
  reward_functions:
    good: {path: builtin://constant}
    typo: {path: builtin://constent}
    option: {path: builtin://constant, m: 3}
rewards:
  fine: {custom_reward_function: {path: builtin://constant}}
  none:
    custom_reward_function: {path: builtin://nothing}
`, "++rewards.fine.custom_reward_function.retries=2")
	var open int
	managers, err := config.BuildManagers(c, registry(&open))
	assert.Nil(t, managers)
	require.Error(t, err)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 3)
	assert.Contains(t, lines[0], `c.yaml:4:5: reward.reward_functions.typo: unknown scorer "constent", want one of constant; did you mean constant?`)
	assert.Contains(t, lines[1], `c.yaml:5:40: reward.reward_functions.option.m: the scorer "constant" has no such option`)
	assert.Contains(t, lines[2], `c.yaml:9:36: rewards.none.custom_reward_function: unknown scorer "nothing"`)
	assert.Zero(t, open)
}

func TestAnOptionThatHasAnotherNameNowIsAnsweredWithIt(t *testing.T) {
	t.Parallel()
	var reg rewards.Registry
	reg.Register(rewards.Spec{Name: "ocr", Build: func(raw json.RawMessage) (rewards.Scorer, error) {
		return nil, rewards.DecodeOptions(raw, &struct{ Reader string }{})
	}})
	c := parse(t, `reward: {custom_reward_function: {path: "builtin://ocr", reward_kwargs: {engine: ppocr}}}`)
	_, err := config.BuildManagers(c, &reg)
	require.ErrorContains(t, err, "reward.custom_reward_function.reward_kwargs.engine: is called reader")
}

func TestSuggestedScorersAreNamedOnce(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"choice", "genrm_ocr", "jpeg_compressibility", "unified_reward"}, config.Suggested())
}

// What a profile says for all its components reaches those that take it.
func TestComponentsAreBuiltWithTheirProfilesEngineAndSandbox(t *testing.T) {
	t.Parallel()
	var reg rewards.Registry
	got := map[string]string{}
	open := new(int)
	for name, options := range map[string][]string{
		"judge": {"engine", "model"}, "reader": {"engine", "model"}, "sandbox_fusion": {"url", "max_concurrent", "memory_limit_mb"}, "other": nil, config.HTTPScorer: {"url"}, config.PythonScorer: nil,
	} {
		spec := rewards.Spec{Name: name, AsksEngine: name == "judge", Build: func(raw json.RawMessage) (rewards.Scorer, error) {
			got[name] += string(raw)
			*open++
			return closable{open, 1}, nil
		}}
		for _, o := range options {
			spec.Options = append(spec.Options, rewards.Option{Name: o})
		}
		reg.Register(spec)
	}
	c := parse(t, `reward:
  reward_functions:
    a: {path: builtin://judge, temperature: 0}
    b: {path: builtin://reader}
    c: {path: builtin://sandbox_fusion, memory_limit_mb: 9}
    d: {path: builtin://other}
    e: {path: "http://u:pw@h:1/x", protocol: deqa}
    f: {path: pkg://m, model_name: mine}
  reward_model: {enable: true, model_path: m/n, rollout: {name: external, base_urls: "http://h:2/v1"}}
  sandbox_fusion: {url: "http://h:3", max_concurrent: 7, memory_limit_mb: 512}
rewards:
  named: {custom_reward_function: {path: builtin://judge, reward_kwargs: {engine: big}}}
  free: {custom_reward_function: {path: builtin://judge}}
engines: {big: {base_urls: ["https://h:4"], model: huge}}
`)
	c.RouterAddress, c.RouterKey = "127.0.0.1:9", "k"
	managers, err := config.BuildManagers(c, &reg)
	require.NoError(t, err)
	for _, m := range managers {
		require.NoError(t, m.Close())
	}
	assert.Zero(t, *open)
	// That of the profile free, built in between, has no engine of its profile.
	before, after, _ := strings.Cut(got["judge"], "}")
	assert.JSONEq(t, `{"engine":"reward_model","model":"m/n","temperature":0}`, before+"}")
	assert.JSONEq(t, `{"engine":"big"}`, after)
	assert.Empty(t, got["reader"], "its engine is no engine of the configuration")
	assert.JSONEq(t, `{"url":"http://h:3","max_concurrent":7,"memory_limit_mb":9}`, got["sandbox_fusion"])
	assert.Empty(t, got["other"])
	assert.JSONEq(t, `{"url":"http://u:pw@h:1/x","protocol":"deqa"}`, got[config.HTTPScorer])
	assert.JSONEq(t, `{"path": "pkg://m", "name": "compute_score", "pixels": "auto", "kwargs": {"reward_router_address": "127.0.0.1:9", "reward_router_api_key": "k",
		"model_name": "mine", "sandbox_fusion_url": "http://h:3", "memory_limit_mb": 512}}`, got[config.PythonScorer])
	assert.NotContains(t, printed(t, c), "u:pw@")
}

func TestTheDapoManagerAddsItsPenaltyToTheFunction(t *testing.T) {
	t.Parallel()
	c := parse(t, `reward:
  custom_reward_function: {path: builtin://constant, reward_kwargs: {n: 3}}
  reward_manager: {name: dapo}
  reward_kwargs: {max_resp_len: 100, overlong_buffer_cfg: {enable: true, len: 50, penalty_factor: 2, log: true}}
`)
	var open int
	managers, err := config.BuildManagers(c, registry(&open))
	require.NoError(t, err)
	result := managers["default"].Run(t.Context(), &rewards.Sample{ID: "s", Response: "x", ExtraInfo: json.RawMessage(`{"response_length": 75}`)}).Result
	require.Equal(t, rewards.Scored, result.Outcome)
	assert.InDelta(t, 3-1, result.Score, 0)
	assert.Equal(t, map[string]any{"score": 2.0, "acc": 3.0, "overlong_reward": -1.0, "overlong": true, "rewardloop/imputed": false}, result.Extra)
	require.NoError(t, managers["default"].Close())
	assert.Zero(t, open)
}

// A machine beside others may lack what one reward needs; whatever is wrong with the
// configuration itself is refused all the same, together with what lacks.
func TestAProfileForWhichTheMachineLacksSomethingIsNotBuiltAndTheOthersAre(t *testing.T) {
	t.Parallel()
	open := 0
	reg := registry(&open)
	reg.Register(rewards.Spec{Name: "reader", Build: func(json.RawMessage) (rewards.Scorer, error) {
		return nil, fmt.Errorf("the model is not here: %w", models.ErrMissing)
	}})
	const text = `reward: {custom_reward_function: {path: builtin://constant, reward_kwargs: {n: %s}}}
rewards: {read: {custom_reward_function: {path: builtin://reader}}}
`
	managers, lacking, err := config.BuildThere(parse(t, fmt.Sprintf(text, "1")), reg)
	require.NoError(t, err)
	require.Len(t, managers, 1)
	require.Contains(t, lacking["read"].Error(), "the model is not here")
	require.NoError(t, managers["default"].Close())
	require.Zero(t, open)

	_, err = config.BuildManagers(parse(t, fmt.Sprintf(text, "1")), reg)
	require.ErrorContains(t, err, "the model is not here", "a process that is alone needs all")
	require.Zero(t, open)
	_, _, err = config.BuildThere(parse(t, fmt.Sprintf(text, "one")), reg)
	require.ErrorContains(t, err, "c.yaml:1:77")
	require.ErrorContains(t, err, "the model is not here")
}
