package rewards_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func build(json.RawMessage) (rewards.Scorer, error) { return constant(1), nil }

func TestANameIsRegisteredOnceOrTheProgramDoesNotStart(t *testing.T) {
	t.Parallel()
	var reg rewards.Registry
	reg.Register(rewards.Spec{Name: "a", Build: build})
	assert.PanicsWithValue(t, "rewards: scorer a registered twice", func() { reg.Register(rewards.Spec{Name: "a", Build: build}) })
	assert.Panics(t, func() { reg.Register(rewards.Spec{Build: build}) }, "no name")
	assert.Panics(t, func() { reg.Register(rewards.Spec{Name: "b"}) }, "nothing to build")
	assert.Equal(t, []string{"a"}, reg.Names())
}

func TestAnUnknownScorerIsAnsweredWithTheKnownNamesInOrder(t *testing.T) {
	t.Parallel()
	var reg rewards.Registry
	_, err := reg.Build("c", nil)
	require.ErrorIs(t, err, rewards.ErrUnknownScorer)
	for _, name := range []string{"b", "a"} {
		reg.Register(rewards.Spec{Name: name, Build: build})
	}
	_, err = reg.Build("c", nil)
	require.ErrorIs(t, err, rewards.ErrUnknownScorer)
	require.EqualError(t, err, `unknown scorer "c", want one of a, b`)
	_, ok := reg.Spec("c")
	assert.False(t, ok)
}

func TestWhatIsRegisteredIsBuiltWithItsOptions(t *testing.T) {
	t.Parallel()
	var reg rewards.Registry
	reg.Register(rewards.Spec{Name: "a", Summary: "one line", Build: func(raw json.RawMessage) (rewards.Scorer, error) {
		if string(raw) == "bad" {
			return nil, errBroken
		}
		return constant(float64(len(raw))), nil
	}})
	sc, err := reg.Build("a", json.RawMessage("1234"))
	require.NoError(t, err)
	got, err := sc.Score(t.Context(), &alone)
	require.NoError(t, err)
	assert.InDelta(t, 4, got.Value, 0)

	sc, err = reg.Build("a", json.RawMessage("bad"))
	require.ErrorIs(t, err, errBroken)
	require.ErrorContains(t, err, `scorer "a"`)
	assert.Nil(t, sc)
	spec, ok := reg.Spec("a")
	assert.True(t, ok)
	assert.Equal(t, "one line", spec.Summary)
}

func TestOptionsAreReadStrictly(t *testing.T) {
	t.Parallel()
	type options struct {
		N    int    `json:"n"`
		Word string `json:"word"`
	}
	for _, raw := range []string{"", " \n", "{}", "null"} {
		o := options{N: 5}
		require.NoError(t, rewards.DecodeOptions(json.RawMessage(raw), &o), raw)
		assert.Equal(t, options{N: 5}, o, "the defaults stay")
	}
	o := options{N: 5}
	require.NoError(t, rewards.DecodeOptions(json.RawMessage(`{"word": "x"} `), &o))
	assert.Equal(t, options{5, "x"}, o)

	for raw, says := range map[string]string{
		`{"m": 1}`:         "options.m: unknown option",
		`{"n": 1} {}`:      "more than one JSON value",
		`{"n": 1} x`:       "more than one JSON value",
		`{"n": "1"}`:       "options.n",
		`{"n": 1.5}`:       "options.n",
		`[1]`:              "array",
		`{"n": 1`:          "unexpected EOF",
		`{"word": "x"}, 1`: "more than one JSON value",
	} {
		err := rewards.DecodeOptions(json.RawMessage(raw), new(options))
		require.ErrorContains(t, err, says, raw)
		assert.ErrorContains(t, err, "options", raw)
	}
}
