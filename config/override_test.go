package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
)

func TestOverridesFollowHydra(t *testing.T) {
	t.Parallel()
	c := parse(t, minimal,
		"reward.num_workers=2",
		"loop.max_attempts=5",
		"+reward.reward_functions.jpeg.path=builtin://jpeg",
		"+reward.reward_functions.jpeg.weight=0.5",
		"++reward.reward_functions.jpeg.weight=0.25",
		"++reward.reward_functions.jpeg.note='a, b: c'",
		"+reward.reward_functions.jpeg.list=[1, two]",
		"+reward.reward_functions.jpeg.map={a:1,b:x}",
		"reward.reward_functions.jpeg.map={b:2}",
		"+reward.reward_functions.jpeg.text=pkg://a.b # c",
		"+reward.reward_functions.jpeg.empty=",
		"+reward.reward_functions.jpeg.none=null",
		"+reward.reward_functions.jpeg.colon=a: b",
		"~reward.reward_functions.ocr",
		"+loop.run_weights.a=3",
		"+rewards.other.custom_reward_function.path=builtin://x",
		"rewards.other.aggregation=weighted_sum",
		"server.listen=localhost:0",
	)
	assert.Equal(t, 2, c.NumWorkers)
	assert.Equal(t, 5, c.Loop.MaxAttempts)
	assert.Equal(t, map[string]float64{"a": 3}, c.Loop.Weights)
	p := c.Profiles["default"]
	require.Len(t, p.Components, 1)
	assert.InDelta(t, 0.25, p.Components[0].Weight, 0)
	assert.JSONEq(t, `{"note":"a, b: c","list":[1,"two"],"map":{"a":1,"b":2},"text":"pkg://a.b # c","empty":"","none":null,"colon":"a: b"}`,
		string(p.Components[0].Options))
	assert.Equal(t, `override "+reward.reward_functions.jpeg.path=builtin://jpeg"`, p.Components[0].Place.String())
	assert.True(t, c.Profiles["other"].Single)
}

func TestAFaultOfAnOverrideNamesTheOverride(t *testing.T) {
	t.Parallel()
	for override, want := range map[string]string{
		"loop.max_atempts=5":                              `override "loop.max_atempts=5": loop.max_atempts: no such key loop.max_atempts; did you mean max_attempts?`,
		"loop.max_attempts=many":                          `override "loop.max_attempts=many": loop.max_attempts: want a whole number, got "many"`,
		"loop.max_attempts=0":                             `override "loop.max_attempts=0": loop.max_attempts: want 1…100, got 0`,
		"+loop.max_attempts=5":                            "loop.max_attempts: exists already: write loop.max_attempts= without the plus, or ++loop.max_attempts=",
		"+reward.reward_functions.ocr.path=x":             "exists already",
		"reward.reward_functions.ocr.preset=a":            "is not in the file: write +reward.reward_functions.ocr.preset= to add it",
		"reward.custom_reward_function.reward_kwargs.a=1": "is not in the file: write +reward.custom_reward_function.reward_kwargs.a=",
		"~loop.max_attempts":                              "is not in the file: there is nothing to delete",
		"~reward.reward_functions.ocr=1":                  "deletes a key: write ~reward.reward_functions.ocr without a value",
		"loop.max_attempts":                               "has no value: write loop.max_attempts=value",
		"loop..x=1":                                       "want key=value",
		"=1":                                              "want key=value",
		"":                                                "want key=value",
		"+loop.deep.er=1":                                 `override "+loop.deep.er=1": loop.deep: no such key`,
		"+reward.reward_functions.ocr.path.x=1":           "is below reward.reward_functions.ocr.path, which is not a mapping",
		"rewards.new.aggregation=min":                     "is not in the file: write +rewards.new.aggregation=",
		"reward_model.reward_manager=naive":               "has moved: write reward.reward_manager.name",
		"reward_model.rollout.n=1":                        "has moved: write reward.reward_model.rollout.n",
		"trainer.nnodes=1":                                "belongs to the trainer",
		"server.listen=0.0.0.0:1":                         `override "server.listen=0.0.0.0:1": server.listen: 0.0.0.0:1 can be reached`,
		"reward.reward_functions.ocr={path:1,b:}":         `want builtin:// before`,
		"++loop.run_weights={a:-1}":                       `override "++loop.run_weights={a:-1}": loop.run_weights.a: a weight must be positive`,
		"++loop={max_bytes: ${oc.env:NOPE}":               `loop: the environment variable NOPE is not set`,
		"++server.token_file=${oc.env:NOPE}":              `override "++server.token_file=${oc.env:NOPE}": server.token_file: the environment variable NOPE is not set`,
	} {
		t.Run(override, func(t *testing.T) {
			t.Parallel()
			lines := faults(t, minimal, override)
			assert.Contains(t, lines[0], want)
			assert.Contains(t, lines[0], "override ")
		})
	}
}

func TestAnOverrideOfASecretIsNotRepeated(t *testing.T) {
	t.Parallel()
	lines := faults(t, minimal, "reward.reward_functions.ocr.api_key=sk-123")
	assert.Equal(t, []string{`override "reward.reward_functions.ocr.api_key=…": reward.reward_functions.ocr.api_key: is not in the file: write +reward.reward_functions.ocr.api_key= to add it`}, lines)
}

func TestOverridesAloneAreAConfiguration(t *testing.T) {
	t.Parallel()
	c, err := config.Load("", []string{"reward.custom_reward_function.path=builtin://ocr"}, nil)
	require.NoError(t, err)
	assert.True(t, c.Profiles["default"].Single)

	_, err = config.Load("", nil, nil)
	require.EqualError(t, err, "reward: no reward is named: write reward.reward_functions.<key>.path (or reward.custom_reward_function.path), such as builtin://ocr")
	_, err = config.Load("testdata/none.yaml", nil, nil)
	require.ErrorContains(t, err, "none.yaml")
}

func TestEnvironmentVariablesAreResolved(t *testing.T) {
	t.Parallel()
	text := `reward:
  num_workers: ${oc.env:N,3}
  custom_reward_function:
    path: builtin://ocr
    reward_kwargs:
      number: ${oc.env:N}
      text: "${oc.env:N}"
      inner: ${oc.env:A,${oc.env:N}}
      quoted: ${oc.env:A,'x y'}
      mixed: a-${oc.env:N}-b
      literal: 'c \${oc.env:N} d'
`
	c, err := config.Parse("c.yaml", []byte(text), []string{"++server.listen=${oc.env:HOST,localhost}:80"}, env("N", "7"))
	require.NoError(t, err)
	assert.Equal(t, 7, c.NumWorkers)
	assert.Equal(t, "localhost:80", c.Server.Listen)
	assert.JSONEq(t, `{"number":7,"text":"7","inner":7,"quoted":"x y","mixed":"a-7-b","literal":"c ${oc.env:N} d"}`,
		string(c.Profiles["default"].Components[0].Options))
}
