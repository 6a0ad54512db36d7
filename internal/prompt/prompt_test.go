package prompt_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

func known() []string {
	return []string{prompt.Prompt, prompt.Response, prompt.GroundTruth, prompt.DataSource}
}

func TestWhatASampleSaysIsPutInAsItIs(t *testing.T) {
	t.Parallel()
	s := &rewards.Sample{ID: "s1", Prompt: "a {response} in braces", Response: "red", GroundTruth: json.RawMessage(` {"n": 3}`), DataSource: "set"}
	tp, err := prompt.Parse("template", `Is {response} right for {prompt}? {"score": 1} {ground_truth}/{data_source}`, known()...)
	require.NoError(t, err)
	text, err := tp.Fill(s)
	require.NoError(t, err)
	assert.Equal(t, `Is red right for a {response} in braces? {"score": 1} {"n": 3}/set`, text)
	assert.True(t, tp.Has(prompt.Prompt))
	assert.False(t, tp.Has("{count}"))
}

func TestASlipOfTheKeyboardIsNoPlaceholder(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{promt} and {respons}": "template: unknown placeholder {promt}, want one of {prompt}, {response}\ntemplate: unknown placeholder {respons}, want one of {prompt}, {response}",
		" \n":                   "template: is empty",
		strings.Repeat("x", prompt.MaxTemplate+1): "template: has 1048577 bytes, want at most 1048576",
	} {
		_, err := prompt.Parse("template", text, prompt.Response, prompt.Prompt)
		assert.EqualError(t, err, want)
	}
}

func TestThePromptIsThatOfExtraInfoFirst(t *testing.T) {
	t.Parallel()
	for extra, want := range map[string]string{
		`{"raw_prompt": "raw", "prompt": "own"}`:              "own",
		`{"raw_prompt": "raw", "prompt": ""}`:                 "raw",
		`{"raw_prompt": [{"role": "user"}], "Prompt": "Own"}`: "the sample's",
		`["prompt"]`: "the sample's",
		``:           "the sample's",
	} {
		text, err := prompt.Of(&rewards.Sample{Prompt: "the sample's", ExtraInfo: json.RawMessage(extra)}, prompt.Prompt)
		require.NoError(t, err)
		assert.Equal(t, want, text, extra)
	}
}

func TestWhatIsMissingOrTooLongIsBadInput(t *testing.T) {
	t.Parallel()
	picture := []*rewards.Media{{Kind: rewards.Image}}
	long := strings.Repeat("x", prompt.MaxText+1)
	for i, tt := range []struct {
		sample      rewards.Sample
		placeholder string
		want        string
	}{
		{rewards.Sample{}, prompt.Prompt, "has no prompt"},
		{rewards.Sample{Prompt: long}, prompt.Prompt, "the prompt of sample"},
		{rewards.Sample{Prompt: "p", Media: picture}, prompt.Response, "has no response"},
		{rewards.Sample{}, prompt.Response, "has no response"},
		{rewards.Sample{Response: long}, prompt.Response, "the response of sample"},
		{rewards.Sample{GroundTruth: json.RawMessage(" null ")}, prompt.GroundTruth, "has no ground_truth"},
		{rewards.Sample{GroundTruth: json.RawMessage(`"` + long + `"`)}, prompt.GroundTruth, "the ground_truth of sample"},
		{rewards.Sample{}, prompt.DataSource, "has no data_source"},
		{rewards.Sample{}, "{count}", "has no count"},
	} {
		tt.sample.ID = "s1"
		_, err := prompt.Of(&tt.sample, tt.placeholder)
		require.ErrorIs(t, err, rewards.BadInput, "%d", i)
		require.ErrorContains(t, err, tt.want, "%d", i)
		require.ErrorContains(t, err, `"s1"`)
	}
	for _, s := range []rewards.Sample{{Prompt: "p"}, {GroundTruth: json.RawMessage(`""`)}} {
		text, err := prompt.Of(&s, prompt.Response)
		require.NoError(t, err, "a rollout that ended at once has an empty response")
		assert.Empty(t, text)
	}
}

func TestWhatCannotBePutInEndsTheFilling(t *testing.T) {
	t.Parallel()
	tp, err := prompt.Parse("template", "{count} of {prompt}", "{count}", prompt.Prompt)
	require.NoError(t, err)
	none := errors.New("nobody counts")
	_, err = tp.FillWith(func(string) (string, error) { return "", none })
	require.ErrorIs(t, err, none)
}
