package judge_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
)

func TestASampleThatLacksWhatIsJudgedIsBadInput(t *testing.T) {
	t.Parallel()
	rubric := `{"rubrics": [{"name": "a", "text": "b"}]}`
	noPrompt := func(s *rewards.Sample) { s.Prompt, s.GroundTruth = "", nil }
	noMedia := func(s *rewards.Sample) { s.Media = nil }
	noTruth := func(s *rewards.Sample) { s.GroundTruth = nil }
	for i, tt := range []struct {
		scorer, options string
		lacks           func(*rewards.Sample)
	}{
		{"genrm_ocr", `{}`, noTruth},
		{"genrm_ocr", `{}`, func(s *rewards.Sample) { s.GroundTruth = json.RawMessage(`{"text": "HI"}`) }},
		{"genrm_ocr", `{}`, func(s *rewards.Sample) { s.GroundTruth = quote(strings.Repeat("x", 4097)) }},
		{"genrm_ocr", `{}`, noMedia},
		{"genrm_ocr", `{"frame_interval": 1}`, func(s *rewards.Sample) { s.Media = video(1000).Media }},
		{"unified_reward", `{}`, noPrompt},
		{"unified_reward", `{}`, noMedia},
		{"unified_reward", `{"version": "1.5"}`, noPrompt},
		{"vqascore", `{}`, noPrompt},
		{"vqascore", `{}`, noMedia},
		{"vlm_yes_no", `{}`, noMedia},
		{"digit", `{}`, noPrompt},
		{"wise", `{}`, noPrompt},
		{"wise", `{}`, noTruth},
		{"wise", `{}`, noMedia},
		{"judge", `{"template": "{prompt}"}`, noPrompt},
		{"judge", `{"template": "{prompt}"}`, func(s *rewards.Sample) { s.Prompt = strings.Repeat("x", 300<<10) }},
		{"judge", `{"template": "{response}"}`, func(*rewards.Sample) {}},
		{"judge", `{"template": "{response}"}`, func(s *rewards.Sample) { *s = rewards.Sample{ID: "s1"} }},
		{"judge", `{"template": "{ground_truth}"}`, func(s *rewards.Sample) { s.GroundTruth = json.RawMessage(" null ") }},
		{"judge", `{"template": "{data_source}"}`, func(s *rewards.Sample) { s.DataSource = "" }},
		{"judge", `{"template": "x"}`, func(s *rewards.Sample) { s.Media[0].SetDecoder(numbered{8, 8, 0}) }},
		{"rubric", rubric, noPrompt},
		{"rubric", strings.Replace(rubric, "{", `{"reference": true, `, 1), noTruth},
		{"disrm", `{}`, func(s *rewards.Sample) { s.Prompt = "" }},
		{"disrm", `{}`, func(*rewards.Sample) {}},
	} {
		e := saying("<score>1</score>")
		s := video(1)
		tt.lacks(s)
		_, err := score(t, e, tt.scorer, tt.options, s)
		require.ErrorIs(t, err, rewards.BadInput, "%d: %s %s", i, tt.scorer, tt.options)
		assert.Contains(t, err.Error(), "s1")
		assert.Empty(t, e.requests(), "nobody is asked")
	}
}

func TestOptionsNameTheirFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ scorer, options, want string }{
		{"genrm_ocr", `{"answer_retries": 11}`, "answer_retries"},
		{"genrm_ocr", `{"answer_retries": -1}`, "answer_retries"},
		{"genrm_ocr", `{"temperature": -1, "top_p": 0, "max_tokens": -1}`, "top_p"},
		{"genrm_ocr", `{"frame_interval": 0}`, "frame_interval"},
		{"genrm_ocr", `{"image_format": "gif"}`, "image_format"},
		{"genrm_ocr", `{"jpeg_quality": 0, "resize": -1}`, "jpeg_quality"},
		{"genrm_ocr", `{"image_format": "as_is", "resize": 8}`, "as_is"},
		{"genrm_ocr", `{"heat": 1}`, "heat"},
		{"unified_reward", `{"version": "3"}`, "version"},
		{"unified_reward", `{"version": 2}`, "version"},
		{"unified_reward", `{"parse": "loose"}`, "parse"},
		{"unified_reward", `{"video": "first"}`, "video"},
		{"unified_reward", `{"frames": 0}`, "frames"},
		{"unified_reward", `{"frames": 1000}`, "frames"},
		{"vqascore", `{"template": "geneval"}`, "template"},
		{"vqascore", `{"forms": "some"}`, "forms"},
		{"vlm_yes_no", `{"question": "{promt}?"}`, "{promt}"},
		{"vlm_yes_no", `{"temperature": 1}`, "temperature"},
		{"digit", `{"min": 1, "max": 10}`, "max"},
		{"digit", `{"min": 5, "max": 5}`, "min"},
		{"wise", `{"template": "{explanation}"}`, "{explanation}"},
		{"judge", `{}`, "template"},
		{"judge", `{"template": "{prompt} {answer}"}`, "unknown placeholder {answer}"},
		{"judge", `{"template": "x", "regex": "("}`, "regex"},
		{"judge", `{"template": "x", "regex": "[0-9]+"}`, "group"},
		{"judge", `{"template": "x", "regex": "(x)", "tag": "score"}`, "only one"},
		{"judge", `{"template": "x", "tag": "a>b"}`, "tag"},
		{"judge", `{"template": "x", "schema": {}}`, "schema"},
		{"judge", `{"template": "x", "json": "a", "schema": []}`, "schema"},
		{"judge", `{"template": "x", "min": 5, "max": 1}`, "min"},
		{"judge", `{"template": "x", "out_of_range": "wrap"}`, "out_of_range"},
		{"judge", `{"template": "x", "match": "best"}`, "match"},
		{"judge", `{"template": "x", "scale": 0}`, "scale"},
		{"judge", `{"template": "x", "table": [[1, 1]]}`, "table"},
		{"judge", `{"template": "x", "table": [[1, 1], [1, 2]]}`, "table"},
		{"judge", `{"template": "x", "table": [[1, 1], [2, 2], [3, 1]]}`, "rise and fall"},
		{"judge", `{"template": "x", "table": [[1, 1], [2, 2]], "scale": 2}`, "excludes"},
		{"judge", `{"template": "x", "show": "maybe"}`, "show"},
		{"rubric", `{}`, "rubrics"},
		{"rubric", `{"rubrics": [{"name": "A b", "text": "x"}]}`, "name"},
		{"rubric", `{"rubrics": [{"name": "a", "text": "x"}, {"name": "a", "text": "x"}]}`, "rubrics[1].name"},
		{"rubric", `{"rubrics": [{"name": "a", "text": " "}]}`, "text"},
		{"rubric", `{"rubrics": [{"name": "a", "text": "x", "weight": -1}]}`, "weight"},
		{"rubric", `{"rubrics": [{"name": "a", "text": "x", "weight": 0}]}`, "more than 0"},
		{"rubric", `{"rubrics": [{"name": "a", "text": "x"}], "min": 1, "max": 1}`, "min"},
		{"edit_score", `{"result": "second"}`, "result"},
		{"edit_score", `{"range": 0}`, "range"},
		{"edit_score", `{"range": 2.5}`, "range"},
		{"edit_score", `{"sc_template": "{instruction}"}`, "sc_template: unknown placeholder {instruction}"},
		{"edit_score", `{"pq_template": " "}`, "pq_template: is empty"},
		{"imgedit", `{"template": "{edit}"}`, "unknown placeholder {edit}"},
		{"imgedit", `{"frame_interval": 2}`, "frame_interval"},
		{"soft_tifa", `{"mean": "harmonic"}`, "mean"},
		{"soft_tifa", `{"template": "Answer."}`, "has no {question}"},
		{"soft_tifa", `{"template": "{prompt} {question}"}`, "unknown placeholder {prompt}"},
		{"disrm", `{"api": "tgi"}`, "api"},
		{"disrm", `{"api": "sglang", "use_activation": true}`, "use_activation"},
		{"disrm", `{"api": "score", "template": "chatml"}`, "template"},
		{"disrm", `{"api": "score", "task": "classify"}`, "task"},
		{"disrm", `{"template": "{prompt}"}`, "{response}"},
		{"disrm", `{"template": "{response} {x}"}`, "{x}"},
	} {
		_, err := registry(deps(t, saying(""))).Build(tt.scorer, json.RawMessage(tt.options))
		require.ErrorContains(t, err, tt.want, "%s %s", tt.scorer, tt.options)
	}
}

// needed are the options without which a scorer cannot be built.
var needed = map[string]string{"judge": `"template": "x"`, "rubric": `"rubrics": [{"name": "a", "text": "b"}]`}

func TestEveryScorerIsThereWithoutAnEngineAndSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	reg := registry(judge.Deps{})
	require.NotEmpty(t, reg.Names())
	refusing := registry(judge.Deps{
		Clients: chat.ClientsFunc(func(e chat.Endpoint) (chat.Chatter, error) { return nil, errors.New("no engine " + e.Engine) }),
		Engines: enginesFunc(func(e chat.Endpoint) (outbound.Doer, string, error) {
			return nil, "", errors.New("no engine " + e.Engine)
		}),
	})
	for _, name := range reg.Names() {
		_, err := reg.Build(name, json.RawMessage("{"+needed[name]+"}"))
		require.ErrorContains(t, err, "no engine is configured", name)
		options := `"engine": "nobody"`
		if more := needed[name]; more != "" {
			options += ", " + more
		}
		_, err = refusing.Build(name, json.RawMessage("{"+options+"}"))
		require.ErrorContains(t, err, "no engine nobody", name)
	}
}

func TestEveryOptionIsDocumentedOnceAndTaken(t *testing.T) {
	t.Parallel()
	d := deps(t, saying(""))
	for _, spec := range judge.Specs(d) {
		seen := map[string]bool{}
		for _, o := range spec.Options {
			assert.False(t, seen[o.Name], "%s: %s twice", spec.Name, o.Name)
			seen[o.Name] = true
			assert.NotEmpty(t, o.Default, o.Name)
			options := `{"` + o.Name + `": null`
			if more := needed[spec.Name]; more != "" {
				options += ", " + more
			}
			_, err := spec.Build(json.RawMessage(options + "}"))
			assert.NoError(t, err, "%s: %s is documented and not taken", spec.Name, o.Name)
		}
	}
}
