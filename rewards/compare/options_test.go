package compare_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestAGroupWithoutPromptFailsWhereTheTemplateWantsIt(t *testing.T) {
	t.Parallel()
	g := group(1, 2)
	g.Members[0].Sample.Prompt, g.Members[1].Sample.Prompt = "", ""
	_, err := build(t, &judge{verdict: fair}, "pairwise", `{}`).ScoreGroup(t.Context(), g)
	require.ErrorIs(t, err, rewards.BadInput)

	g.Members[1].Sample.ExtraInfo = json.RawMessage(`{"prompt":"from {response_a} extra"}`)
	j := &judge{verdict: fair}
	scores(t, build(t, j, "pairwise", `{}`), g)
	assert.Contains(t, j.questions()[0].text, "from {response_a} extra", "braces in a prompt are no placeholders")
}

func TestOwnTemplatesAndParametersAreSent(t *testing.T) {
	t.Parallel()
	g := group(1, 2)
	g.Members[0].Sample.GroundTruth, g.Members[0].Sample.DataSource = json.RawMessage(`{"n":3}`), "set"
	j := &judge{verdict: func(q question) (string, error) { return "<result>tie</result>", nil }}
	scores(t, build(t, j, "pairwise", `{"template":"{data_source}|{ground_truth}|{response_a}|{response_b}", "model":"m", "system":"Be brief.",
		"max_tokens":5, "temperature":null, "top_p":0.5, "extra_body":{"x":1}, "debias":false}`), g)
	q := j.questions()[0]
	assert.Contains(t, []string{`set|{"n":3}|answer 1|answer 2`, `set|{"n":3}|answer 2|answer 1`}, q.text)
	assert.Equal(t, "Be brief.", q.request.Messages[0].Parts[0].Text)
	assert.Equal(t, "m", q.request.Model)
	assert.Nil(t, q.request.Temperature)
	assert.Equal(t, 5, q.request.MaxTokens)
	assert.InDelta(t, 0.5, *q.request.TopP, 0)
	assert.Equal(t, map[string]any{"x": 1.0}, q.request.Extra)
}

func TestOptionsThatCannotBeMeantAreAllNamed(t *testing.T) {
	t.Parallel()
	reg := registry(clients(&judge{}))
	for _, tt := range []struct {
		scorer, options string
		says            []string
	}{
		{"pairwise", `{"wins":1}`, []string{"wins"}},
		{"pairwise", `{"method":"vote","pairs":1,"max_unknown":1.5,"reference":"gold","frames":65,"show":"all"}`, []string{"method", "pairs", "max_unknown", "reference", "frames", "show"}},
		{"pairwise", `{"concurrency":0,"answer_retries":-1,"temperature":-1,"top_p":0,"max_tokens":-1}`, []string{"concurrency", "answer_retries", "temperature", "top_p", "max_tokens"}},
		{"pairwise", `{"template":"{prompt} {response_a} {answer}"}`, []string{"unknown placeholder {answer}", "no {response_b}"}},
		{"pairwise", `{"image_format":"as_is","resize":5,"jpeg_quality":0}`, []string{"resize", "jpeg_quality"}},
		{"pairwise", `{"image_format":"gif","resize":-1,"reference":"extra_info"}`, []string{"image_format", "resize", "reference"}},
		{"listwise", `{"template":"{prompt}"}`, []string{"no {responses}"}},
		{"listwise", `{"method":"dgr"}`, []string{"method"}},
		{"rank", `{}`, []string{"of"}},
		{"rank", `{"of":"x","scale":"n"}`, []string{"scale"}},
		{"rank", `{"of":"x","ddof":1}`, []string{"ddof"}},
		{"zscore", `{"ddof":2,"min_spread":-1}`, []string{"of", "ddof", "min_spread"}},
		{"minmax", `{"of":"x","min_spread":-1}`, []string{"min_spread"}},
	} {
		_, err := reg.BuildGroup(tt.scorer, json.RawMessage(tt.options))
		require.Error(t, err, tt.options)
		for _, s := range tt.says {
			assert.Contains(t, err.Error(), s, tt.options)
		}
	}
	_, err := reg.Build("pairwise", nil)
	require.Error(t, err)
}

func TestWhatIsMissingIsSaidWhenItIsMissed(t *testing.T) {
	t.Parallel()
	reg := registry(nil)
	_, err := reg.BuildGroup("pairwise", nil)
	require.ErrorContains(t, err, "no engine")
	_, err = reg.BuildGroup("rank", json.RawMessage(`{"of":"x"}`))
	require.NoError(t, err)

	none := errors.New("no engine taste")
	reg = registry(chat.ClientsFunc(func(e chat.Endpoint) (chat.Chatter, error) {
		assert.Equal(t, chat.Endpoint{Engine: "taste", Model: "m"}, e)
		return nil, none
	}))
	for _, name := range []string{"pairwise", "listwise"} {
		_, err = reg.BuildGroup(name, json.RawMessage(`{"engine":"taste","model":"m"}`))
		require.ErrorIs(t, err, none)
	}
}
