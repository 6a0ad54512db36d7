package config_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
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
	assert.Equal(t, []string{"a", "b"}, managers[config.DefaultProfile].Terms())
	assert.Equal(t, []string{"constant"}, managers["one"].Terms())
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
	assert.Contains(t, lines[0], `c.yaml:4:5: reward.reward_functions.typo: unknown scorer "constent"; known are constant; did you mean constant?`)
	assert.Contains(t, lines[1], `c.yaml:5:5: reward.reward_functions.option: scorer "constant": options: json: unknown field "m"`)
	assert.Contains(t, lines[2], `c.yaml:9:36: rewards.none.custom_reward_function: unknown scorer "nothing"`)
	assert.Zero(t, open)
}

func TestSuggestedScorersAreNamedOnce(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"jpeg_compressibility", "ocr"}, config.Suggested())
}
