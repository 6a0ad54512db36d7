package service_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestATextIsCutAtItsPlaceholders(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]service.Piece{
		"":           {{}},
		"plain":      {{Text: "plain"}},
		"{id}":       {{Text: "id", Placeholder: true}},
		"a {{b}} {}": {{Text: "a {b} "}, {Placeholder: true}},
		"{a}{b}c":    {{Text: "a", Placeholder: true}, {Text: "b", Placeholder: true}, {Text: "c"}},
		"{{{a}}}":    {{Text: "{"}, {Text: "a", Placeholder: true}, {Text: "}"}},
	} {
		got, err := service.Cut(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"{a", "a}", "{{a}", "{a}} {"} {
		_, err := service.Cut(text)
		require.ErrorContains(t, err, "an unpaired brace", text)
	}
}

func TestASourceNamesAFieldOrAPathBelowIt(t *testing.T) {
	t.Parallel()
	s := &rewards.Sample{ID: "s1", Prompt: "p", GroundTruth: json.RawMessage(` {"a": 1} `)}
	for name, want := range map[string][2]string{"id": {"s1"}, "prompt": {"p"}, "response": {}, "ground_truth": {"", `{"a": 1}`}, "ground_truth.a.0": {"", `{"a": 1}`}} {
		src, err := service.ParseSource(name)
		require.NoError(t, err)
		assert.Equal(t, name, src.String())
		text, root, err := src.Find(s)
		require.NoError(t, err)
		assert.Equal(t, want, [2]string{text, string(root)}, name)
	}
	src, err := service.ParseSource("extra_info.caption")
	require.NoError(t, err)
	_, _, err = src.Find(s)
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "no extra_info")
	require.ErrorIs(t, src.Missing(), rewards.BadInput)
	require.ErrorContains(t, src.Missing(), "no extra_info.caption")

	for name, want := range map[string]string{
		"caption": "is not a field of a sample", "prompt.0": "has no fields", "extra_info.": "two dots",
		"extra_info.a..b": "two dots", "extra_info" + strings.Repeat(".a", service.MaxSteps+1): "65 steps",
	} {
		_, err := service.ParseSource(name)
		require.ErrorContains(t, err, want)
	}
}
