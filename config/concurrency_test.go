package config_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestEveryEntryMayHaveAConcurrency(t *testing.T) {
	t.Parallel()
	c := parse(t, `reward:
  reward_functions:
    go: {path: builtin://length, concurrency: 4}
    service: {path: "http://a:1", concurrency: 32, protocol: deepgen}
    graph: {path: onnx://m, concurrency: 3}
    class: {path: pkg://m, name: C, weight: 0, concurrency: 8}
    group: {post_process: class, concurrency: 2}
    auto: {path: builtin://length, concurrency: auto}
    silent: {path: builtin://length}
`)
	var got []int
	for _, component := range c.Profiles[config.DefaultProfile].Components {
		got = append(got, component.Concurrency)
	}
	assert.Equal(t, []int{4, 32, 3, 8, 2, 0, 0}, got)
	assert.Contains(t, printed(t, c), "    silent:\n      path: \"builtin://length\"\n      weight: 1\n      required: false\n"+
		"      # on_failure: group_mean for a sample that has a prompt group, else fail.\n      timeout: 120s\n      retries: 0\n      concurrency: auto\n")
	single := parse(t, "reward: {custom_reward_function: {path: builtin://length, concurrency: 7}}\n")
	assert.Equal(t, 7, single.Profiles[config.DefaultProfile].Components[0].Concurrency)
}

func TestARewardMayHaveACapacityOfItsOwn(t *testing.T) {
	t.Parallel()
	const text = `reward: {custom_reward_function: {path: builtin://a}}
rewards: {other: {concurrency: 3, custom_reward_function: {path: builtin://a}}, third: {concurrency: auto, custom_reward_function: {path: builtin://a}}}
`
	c := parse(t, text, "reward.concurrency=64")
	assert.Equal(t, 64, c.Profiles[config.DefaultProfile].Concurrency)
	assert.Equal(t, 3, c.Profiles["other"].Concurrency)
	assert.Zero(t, c.Profiles["third"].Concurrency)
	again := parse(t, printed(t, c))
	assert.Equal(t, 64, again.Profiles[config.DefaultProfile].Concurrency)
	assert.Equal(t, printed(t, c), printed(t, again))
}

func TestAConcurrencyIsAPositiveNumberOrAuto(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{
		`c.yaml:1:23: reward.concurrency: want auto, or a whole number of 1…65536, got "0"`,
		`c.yaml:1:81: reward.reward_functions.a.concurrency: want auto, or a whole number of 1…65536, got "many"`,
		`c.yaml:1:124: reward.reward_functions.b.concurrency: want auto, or a whole number of 1…65536, got "65537"`,
	}, faults(t, "reward: {concurrency: 0, reward_functions: {a: {path: builtin://a, concurrency: many}, b: {path: builtin://a, concurrency: 65537}}}\n"))
}

func TestSlotsAreRefusedWithWhatTookTheirPlace(t *testing.T) {
	t.Parallel()
	const text = "reward: {custom_reward_function: {path: builtin://a}}\n"
	for _, all := range [][]string{
		faults(t, text+"loop: {workers: {slots: 3}}\n"), faults(t, text, "loop.workers.slots=3"), faults(t, text, "++loop.workers.slots=3"),
	} {
		require.Len(t, all, 1)
		assert.Contains(t, all[0], "loop.workers.slots: has been removed")
		assert.Contains(t, all[0], "reward.concurrency")
	}
	assert.NotContains(t, printed(t, config.Default()), "loop.workers.slots")
}

// optioned is a scorer with an option named concurrency.
type optioned struct{ rewards.Scorer }

func (optioned) Concurrency() int          { return 1 }
func (optioned) ConcurrencyReason() string { return "the option" }

func TestAScorerWithAnOptionOfThatNameFollowsItAndOthersAreTakenAtTheirEntrysWord(t *testing.T) {
	t.Parallel()
	var reg rewards.Registry
	var seen []string
	score := rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{}, nil })
	spec := rewards.Spec{Name: "takes", Options: []rewards.Option{{Name: "concurrency"}}, Build: func(raw json.RawMessage) (rewards.Scorer, error) {
		seen = append(seen, string(raw))
		return optioned{score}, nil
	}}
	reg.Register(spec)
	spec.Name, spec.Options = "plain", nil
	reg.Register(spec)
	managers, err := config.BuildManagers(parse(t, `reward:
  concurrency: 9
  reward_functions:
    a: {path: builtin://takes, concurrency: 4}
    b: {path: builtin://plain, concurrency: 5}
    c: {path: builtin://takes}
`), &reg)
	require.NoError(t, err)
	m := managers[config.DefaultProfile]
	assert.Equal(t, []string{`{"concurrency":4}`, "", ""}, seen)
	assert.Equal(t, []rewards.ComponentConcurrency{
		{Key: "a", Concurrency: 1, Reason: "the option"},
		{Key: "b", Concurrency: 5, Reason: "the concurrency of its entry"},
		{Key: "c", Concurrency: 1, Reason: "the option"},
	}, m.Concurrencies())
	assert.Equal(t, 9, m.Capacity())
}
