package judge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/cpu"
	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
)

func said(response string) *rewards.Sample {
	return &rewards.Sample{
		ID: "s1", Prompt: "1+1?", Response: response, DataSource: "sums",
		GroundTruth: json.RawMessage(`{"answer": 2}`),
	}
}

func TestAScoreIsTakenOutOfTheAnswer(t *testing.T) {
	t.Parallel()
	const fail = math.MaxFloat64
	for name, tt := range map[string]struct {
		options, answer string
		want            float64
	}{
		"tag":                   {``, "good.\n<score> 4.5 </score>", 4.5},
		"last tag":              {``, "<score>1</score> no, <SCORE>\n3</Score>", 3},
		"first tag":             {`"match": "first"`, "<score>1</score> no, <score>3</score>", 1},
		"another tag":           {`"tag": "rating"`, "<score>1</score><rating>-2e1</rating>", -20},
		"no tag":                {``, "4", fail},
		"a tag without end":     {``, "<score>4", fail},
		"not a number":          {``, "<score>4/5</score>", fail},
		"NaN":                   {``, "<score>NaN</score>", fail},
		"infinite":              {``, "<score>1e999</score>", fail},
		"hexadecimal":           {``, "<score>0x10</score>", fail},
		"thinking aloud":        {``, "<think><score>1</score> hm</think>", fail},
		"after thinking":        {``, "<think><score>1</score></think>ok <score>2</score>", 2},
		"regex":                 {`"regex": "Score: ([0-9.]+)"`, "Score: 7.5 of 10", 7.5},
		"regex without match":   {`"regex": "Score: ([0-9.]+)"`, "seven", fail},
		"regex, empty group":    {`"regex": "Score: ([0-9.]*)"`, "Score: ", fail},
		"json":                  {`"json": "score"`, `{"score": 0.25}`, 0.25},
		"json in a fence":       {`"json": "a.1.b"`, "Here:\n```json\n{\"a\": [0, {\"b\": \"3\"}]}\n```", 3},
		"json after braces":     {`"json": "score"`, `I weigh {this} [and that]: {"x": 1} {"score": 5}`, 5},
		"json without the path": {`"json": "score"`, `{"Score": 5}`, fail},
		"json null":             {`"json": "score"`, `{"score": null}`, fail},
		"json list":             {`"json": "score"`, `{"score": [1]}`, fail},
		"json beyond the list":  {`"json": "0"`, `[]`, fail},
		"no json":               {`"json": "score"`, `score 5 {{{{{{{{{{{{{{{{{{{{{{{{`, fail},
		"a word":                {`"regex": "(?i)\\b(yes|no)\\b", "values": {"YES": 1, "no": 0}`, "Well, Yes.", 1},
		"a truth":               {`"json": "ok", "values": {"true": 1, "false": -1}`, `{"ok": false}`, -1},
		"another word":          {`"values": {"yes": 1}`, `<score>maybe</score>`, fail},
		"too low":               {`"min": 1, "max": 5`, "<score>0.9</score>", fail},
		"too high":              {`"max": 5`, "<score>5.1</score>", fail},
		"clipped":               {`"min": 1, "max": 5, "out_of_range": "clip"`, "<score>7</score>", 5},
		"clipped below":         {`"min": 1, "out_of_range": "clip"`, "<score>-7</score>", 1},
		"scaled":                {`"scale": 0.25, "offset": -0.25`, "<score>5</score>", 1},
		"clipped, then scaled":  {`"max": 5, "out_of_range": "clip", "scale": 0.2`, "<score>50</score>", 1},
		"between two points":    {`"table": [[1, 0], [3, 0.2], [5, 1]]`, "<score>4</score>", 0.6},
		"at a point":            {`"table": [[1, 0], [3, 0.2], [5, 1]]`, "<score>3</score>", 0.2},
		"before the table":      {`"table": [[1, 0], [3, 0.2], [5, 1]]`, "<score>-3</score>", 0},
		"after the table":       {`"table": [[1, 1], [5, 0]]`, "<score>30</score>", 0},
		"a long answer":         {``, strings.Repeat("x", 1<<20) + "<score>1</score>", fail},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := `{"template": "Rate {response}", "answer_retries": 0`
			if tt.options != "" {
				options += ", " + tt.options
			}
			got, err := score(t, saying(tt.answer), "judge", options+"}", said("2"))
			if tt.want == fail {
				require.ErrorIs(t, err, rewards.InvalidScore)
				assert.Contains(t, err.Error(), "the answer begins with")
				return
			}
			require.NoError(t, err)
			assert.InDelta(t, tt.want, got.Value, 1e-12)
			assert.Contains(t, got.Extra, "raw_score")
		})
	}
}

func TestTheTemplateIsFilledOnce(t *testing.T) {
	t.Parallel()
	e := saying("<score>1</score>")
	s := said("{ground_truth} {\"x\": 1}")
	_, err := score(t, e, "judge", `{"template": "{data_source}|{prompt}|{response}|{ground_truth}|{\"a\":{\"b\":1}}", "system": "strict",
		"json": null, "extra_body": {"chat_template_kwargs": {"enable_thinking": false}}}`, s)
	require.NoError(t, err)
	q := e.requests()[0]
	text, pictures := q.parts(t)
	assert.Equal(t, `sums|1+1?|{ground_truth} {"x": 1}|{"answer": 2}|{"a":{"b":1}}`, text)
	assert.Empty(t, pictures)
	assert.Equal(t, "strict", q.Messages[0].Content)
	assert.Equal(t, map[string]any{"enable_thinking": false}, q.Body["chat_template_kwargs"])
}

func TestAJudgeIsShownThePicturesThereAre(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		options string
		frames  int
		shown   int
	}{
		{`"show": "auto"`, 0, 0}, {`"show": "auto"`, 1, 1}, {`"show": "auto"`, 20, 8}, {`"show": "always", "frames": 3`, 20, 3}, {`"show": "never"`, 20, 0},
	} {
		e := saying("<score>1</score>")
		_, err := score(t, e, "judge", `{"template": "Rate {prompt}", `+tt.options+`}`, video(tt.frames))
		require.NoError(t, err)
		_, pictures := e.requests()[0].parts(t)
		assert.Len(t, pictures, tt.shown, "%+v", tt)
	}
	_, err := score(t, saying(""), "judge", `{"template": "Rate {prompt}", "show": "always"}`, video(0))
	require.ErrorIs(t, err, rewards.BadInput)
}

func TestASchemaHoldsTheEngineToIt(t *testing.T) {
	t.Parallel()
	e := saying(`{"score": 3}`)
	_, err := score(t, e, "judge", `{"template": "?", "json": "score", "schema": {"type": "object"}}`, said(""))
	require.NoError(t, err)
	assert.Equal(t, map[string]any{"type": "json_schema", "json_schema": map[string]any{
		"name": "verdict", "schema": map[string]any{"type": "object"}, "strict": true,
	}}, e.requests()[0].Body["response_format"])
}

func TestAnAnswerThatCannotBeReadIsAskedForAgainPastTheCache(t *testing.T) {
	t.Parallel()
	e := saying("hm", "<score>3</score>", "<score>4</score>")
	d := deps(t, e)
	sc := build(t, d, "judge", `{"template": "?"}`)
	for range 2 {
		got, err := sc.Score(t.Context(), said("2"))
		require.NoError(t, err)
		assert.InDelta(t, 3.0, got.Value, 0)
	}
	assert.Len(t, e.requests(), 2, "what was read at last is remembered")
	assert.Equal(t, e.requests()[0].Body, e.requests()[1].Body)
}

func TestAnAnswerThatCanNeverBeReadFailsTheSampleAndIsNeverZero(t *testing.T) {
	t.Parallel()
	answer := "I would rather not say. " + strings.Repeat("é", 1000)
	for retries, want := range map[int]string{0: "asking once", 1: "asking 2 times", 3: "asking 4 times"} {
		e := saying(answer)
		got, err := score(t, e, "judge", fmt.Sprintf(`{"template": "?", "answer_retries": %d}`, retries), said("2"))
		require.ErrorIs(t, err, rewards.InvalidScore)
		blame, _ := rewards.BlameOf(err)
		assert.Equal(t, rewards.BlameReward, blame)
		assert.Zero(t, got)
		assert.Contains(t, err.Error(), want)
		assert.Contains(t, err.Error(), `sample "s1"`)
		assert.Contains(t, err.Error(), `"I would rather not say. éé`)
		assert.Less(t, len(err.Error()), 800)
		assert.Len(t, e.requests(), retries+1)
	}
}

func TestAFurtherAttemptDrawsWithAnotherSeed(t *testing.T) {
	t.Parallel()
	e := saying("hm", "hm", "<score>3</score>")
	_, err := score(t, e, "judge", `{"template": "?", "temperature": 1, "seed": 40, "answer_retries": 2}`, said("2"))
	require.NoError(t, err)
	var seeds []any
	for _, q := range e.requests() {
		seeds = append(seeds, q.Body["seed"])
	}
	assert.Equal(t, []any{40.0, 41.0, 42.0}, seeds)
}

func TestAnAnswerWithoutTextIsAskedForAgain(t *testing.T) {
	t.Parallel()
	e := &engine{answer: func(n int, _ asked) string {
		if n == 1 {
			return `{"choices":[{"message":{"content":null,"reasoning_content":"hm"},"finish_reason":"length"}]}`
		}
		return says("<score>2</score>")
	}}
	got, err := score(t, e, "judge", `{"template": "?"}`, said("2"))
	require.NoError(t, err)
	assert.InDelta(t, 2.0, got.Value, 0)
}

func TestWhatTheEngineFailsAtKeepsItsClass(t *testing.T) {
	t.Parallel()
	e := &engine{answer: func(int, asked) string { return "<html>502" }}
	_, err := score(t, e, "judge", `{"template": "?"}`, said("2"))
	require.ErrorIs(t, err, rewards.Unavailable)
	assert.Len(t, e.requests(), 1, "attempts at a connection are not attempts at an answer")
}

func TestRubricsAreAskedOneByOneAndWeighed(t *testing.T) {
	t.Parallel()
	e := &engine{answer: func(_ int, q asked) string {
		text, _ := q.parts(t)
		if strings.Contains(text, "Is it right?") {
			return says("It is. <score>10</score>")
		}
		return says("Rather long. <score>4</score>")
	}}
	options := `{"rubrics": [{"name": "right", "text": "Is it right?", "weight": 2}, {"name": "short", "text": "Is it short?"}], "reference": true}`
	got, err := score(t, e, "rubric", options, said("It is 2."))
	require.NoError(t, err)
	// On a scale of 1 to 10: (2·(10−1)/9 + 1·(4−1)/9)/3.
	assert.InDelta(t, (2*1+1.0/3)/3, got.Value, 1e-12)
	assert.Equal(t, map[string]any{"rubric_right": 10.0, "rubric_short": 4.0}, got.Extra)
	require.Len(t, e.requests(), 2)
	text, _ := e.requests()[0].parts(t)
	other, _ := e.requests()[1].parts(t)
	shared, _, _ := strings.Cut(text, "<rubric>")
	assert.True(t, strings.HasPrefix(other, shared), "what differs comes last")
	for _, part := range []string{"<request>\n1+1?\n</request>", "<response>\nIt is 2.\n</response>", `{"answer": 2}`, "from 1 (worst) to 10 (best)"} {
		assert.Contains(t, text, part)
	}
}

func TestARubricOfPicturesShowsThem(t *testing.T) {
	t.Parallel()
	e := saying("<score>0.5</score>")
	got, err := score(t, e, "rubric", `{"rubrics": [{"name": "a", "text": "b"}], "min": 0, "max": 1, "frames": 2}`, video(9))
	require.NoError(t, err)
	assert.InDelta(t, 0.5, got.Value, 0)
	text, pictures := e.requests()[0].parts(t)
	assert.Len(t, pictures, 2)
	assert.NotContains(t, text, "<response>")
	_, err = score(t, saying("<score>1.5</score>"), "rubric", `{"rubrics": [{"name": "a", "text": "b"}], "min": 0, "max": 1}`, video(1))
	require.ErrorIs(t, err, rewards.InvalidScore)
	assert.Contains(t, err.Error(), "a: ")
}

func TestDisRMReadsWhatVerlReads(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		options, answer, path, input string
		want                         float64
		body                         map[string]any
	}{
		{
			`{}`, `{"data": [{"probs": [9]}, {"probs": [0.5, -2.25], "label": "x"}]}`, "/classify",
			"<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n", -2.25,
			map[string]any{"use_activation": false},
		},
		{
			`{"api": "sglang", "template": "llama3", "scale": 2, "offset": 1, "model": "rm"}`, `{"data": [{"embedding": [1, 3]}]}`, "/v1/embeddings",
			"<|start_header_id|>user<|end_header_id|>\n\n1+1?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n2<|eot_id|>", 7,
			map[string]any{"model": "rm"},
		},
		{`{"template": "Q: {prompt} A: {response}", "use_activation": true}`, `{"data": [{"probs": [1]}]}`, "/classify", "Q: 1+1? A: 2", 1, map[string]any{"use_activation": true}},
	} {
		e := &engine{answer: func(int, asked) string { return tt.answer }}
		got, err := score(t, e, "disrm", tt.options, said("2"))
		require.NoError(t, err)
		assert.InDelta(t, tt.want, got.Value, 1e-12)
		q := e.requests()[0]
		assert.Equal(t, tt.path, q.Path)
		want := map[string]any{"model": "default-model", "input": tt.input}
		maps.Copy(want, tt.body)
		assert.Equal(t, want, q.Body)
	}
}

// The forms are those of vLLM 0.27.0's entrypoints/pooling.
func TestDisRMAsksEachOfVLLMsRoutesInItsForm(t *testing.T) {
	t.Parallel()
	const chatML = "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
	for _, tt := range []struct {
		options, answer, path string
		want                  float64
		body                  map[string]any
	}{
		{`{"api": "pooling"}`, `{"data": [{"index": 0, "object": "pooling", "data": [[0.5], [0.75]]}]}`, "/pooling", 0.75, map[string]any{"input": chatML}},
		{
			`{"api": "pooling", "task": "classify", "use_activation": true}`, `{"data": [{"index": 0, "object": "pooling", "data": [3, -1.5]}]}`, "/pooling", -1.5,
			map[string]any{"input": chatML, "task": "classify", "use_activation": true},
		},
		{`{"api": "score"}`, `{"object": "list", "data": [{"index": 0, "object": "score", "score": 0.25}]}`, "/score", 0.25, map[string]any{"text_1": "1+1?", "text_2": "2"}},
		{
			`{"api": "rerank", "use_activation": false, "scale": 4}`, `{"id": "r", "results": [{"index": 0, "document": {"text": "2"}, "relevance_score": 0.5}]}`, "/rerank", 2,
			map[string]any{"query": "1+1?", "documents": []any{"2"}, "use_activation": false},
		},
	} {
		e := &engine{answer: func(int, asked) string { return tt.answer }}
		got, err := score(t, e, "disrm", tt.options, said("2"))
		require.NoError(t, err, tt.options)
		assert.InDelta(t, tt.want, got.Value, 1e-12, tt.options)
		q := e.requests()[0]
		assert.Equal(t, tt.path, q.Path)
		want := map[string]any{"model": "default-model"}
		maps.Copy(want, tt.body)
		assert.Equal(t, want, q.Body)
	}
	for options, answers := range map[string][]string{
		`{"api": "pooling"}`: {`{"data": [{"data": []}]}`, `{"data": [{"data": [[]]}]}`, `{"data": [{"data": [[[1]]]}]}`, `{"data": [{"data": "AAAA"}]}`, `{"data": [{}]}`},
		`{"api": "score"}`:   {`{"data": [{"score": "1"}]}`, `{"data": []}`, `[]`},
		`{"api": "rerank"}`:  {`{"results": []}`, `{"data": [{"score": 1}]}`, `{"results": [{"relevance_score": [1]}]}`, `x`},
	} {
		for _, answer := range answers {
			_, err := score(t, &engine{answer: func(int, asked) string { return answer }}, "disrm", options, said("2"))
			assert.Equal(t, rewards.Unavailable, rewards.ClassOf(err), "%s %s: %v", options, answer, err)
		}
	}
	_, err := score(t, &engine{answer: func(int, asked) string { return `{"data": [{"score": null}]}` }}, "disrm", `{"api": "score"}`, said("2"))
	assert.Equal(t, rewards.InvalidScore, rewards.ClassOf(err))
}

func TestDisRMRatesTheWholeChatWhereThereIsOne(t *testing.T) {
	t.Parallel()
	e := &engine{answer: func(int, asked) string { return `{"data": [{"probs": [1]}]}` }}
	s := said("3")
	s.ExtraInfo = json.RawMessage(`{"raw_prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]}`)
	_, err := score(t, e, "disrm", `{}`, s)
	require.NoError(t, err)
	assert.Equal(t, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n3<|im_end|>\n", e.requests()[0].Body["input"])
}

func TestDisRMInventsNoScore(t *testing.T) {
	t.Parallel()
	for answer, class := range map[string]rewards.Class{
		`<html>`: rewards.Unavailable, `{}`: rewards.Unavailable, `{"data": []}`: rewards.Unavailable, `{"data": [{}]}`: rewards.Unavailable,
		`{"data": [{"probs": []}]}`: rewards.Unavailable, `{"data": [{"probs": [NaN]}]}`: rewards.Unavailable, `{"data": [{"probs": ["1"]}]}`: rewards.Unavailable,
		`{"data": [{"embedding": [1]}]}`: rewards.Unavailable, `{"data": [{"probs": [1e999]}]}`: rewards.Unavailable,
		`{"data": [{"probs": [null]}]}`: rewards.InvalidScore,
	} {
		_, err := score(t, &engine{answer: func(int, asked) string { return answer }}, "disrm", `{}`, said("2"))
		assert.Equal(t, class, rewards.ClassOf(err), "%s: %v", answer, err)
	}
}

// chatterFunc is a function that is a chat.Chatter.
type chatterFunc func(ctx context.Context, r *chat.Request) (*chat.Reply, error)

func (f chatterFunc) Chat(ctx context.Context, r *chat.Request) (*chat.Reply, error) {
	return f(ctx, r)
}

func by(f chatterFunc) judge.Deps {
	return judge.Deps{Clients: chat.ClientsFunc(func(chat.Endpoint) (chat.Chatter, error) { return f, nil })}
}

func TestAPanicInAQuestionFailsTheSample(t *testing.T) {
	t.Parallel()
	sc := build(t, by(func(context.Context, *chat.Request) (*chat.Reply, error) { panic("a fault") }), "genrm_ocr", `{}`)
	_, err := sc.Score(t.Context(), video(9))
	require.ErrorIs(t, err, rewards.Panicked)
}

func TestAFailedQuestionEndsTheOthersAndSoDoesTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := make(chan struct{}, 1)
		first <- struct{}{}
		sc := build(t, by(func(ctx context.Context, _ *chat.Request) (*chat.Reply, error) {
			select {
			case <-first:
				return nil, fmt.Errorf("%w: gone", rewards.Unavailable)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}), "genrm_ocr", `{}`)
		ctx := cpu.With(t.Context(), fair.NewGate(2))
		_, err := sc.Score(ctx, video(40))
		require.ErrorIs(t, err, rewards.Unavailable)

		ctx, cancel := context.WithCancel(ctx)
		go func() { synctest.Wait(); cancel() }()
		_, err = sc.Score(ctx, video(40))
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	sc := build(t, by(func(_ context.Context, r *chat.Request) (*chat.Reply, error) {
		reply := chat.Reply{Text: strings.Repeat("é", 5_000), Reasoning: strings.Repeat("é", 5_000)}
		return &reply, r.Accept(reply)
	}), "genrm_ocr", `{}`)
	got, err := sc.Score(t.Context(), video(1000))
	require.NoError(t, err)
	js, err := json.Marshal(got.Details)
	require.NoError(t, err)
	assert.Less(t, len(js), 64*2*4200+1000)
	assert.Equal(t, 250, got.Details["asked"])
}

func TestExtraFieldsAreDeclared(t *testing.T) {
	t.Parallel()
	d := deps(t, saying(""))
	for name, want := range map[string][]string{
		"genrm_ocr": {"distance", "target_len"}, "unified_reward": {"raw_score", "alignment", "coherence", "physics", "style"},
		"vqascore": {"mass"}, "vlm_yes_no": {"mass"}, "digit": {"expected", "mass"},
		"wise": {"consistency", "realism", "aesthetic_quality"}, "judge": {"raw_score"}, "rubric": {"rubric_a"}, "disrm": {"raw_score"},
	} {
		sc := build(t, d, name, "{"+needed[name]+"}")
		var got []string
		for _, f := range sc.(rewards.ExtraFielder).ExtraFields() {
			assert.Equal(t, rewards.Number, f.Kind)
			got = append(got, f.Name)
		}
		assert.Equal(t, want, got, name)
	}
}

func FuzzAnswersAreReadOrRefused(f *testing.F) {
	for _, s := range []string{
		"<score>4</score>", `{"score": 3}`, "Final Score: 4.5", "Alignment Score (1-5): 3\nCoherence Score (1-5): 1e309", "**Style Score (1-5):** 2\n1 2 3",
		"Consistency: 2\nRealism: 1\nAesthetic Quality: 0", "<think></think>[[{", "1 2 3",
	} {
		f.Add(s)
	}
	d := by(nil)
	var answer string
	d.Clients = chat.ClientsFunc(func(chat.Endpoint) (chat.Chatter, error) {
		return chatterFunc(func(_ context.Context, r *chat.Request) (*chat.Reply, error) {
			reply := chat.Reply{Text: answer}
			if err := r.Accept(reply); err != nil {
				return nil, err
			}
			return &reply, nil
		}), nil
	})
	reg := registry(d)
	low, high := map[string]float64{}, map[string]float64{}
	var scorers []rewards.Scorer
	var names []string
	for _, o := range []struct {
		name, options string
		low, high     float64
	}{
		{"judge", `{"template": "x", "min": 0, "max": 10}`, 0, 10},
		{"judge", `{"template": "x", "json": "score", "min": -1, "out_of_range": "clip", "max": 1}`, -1, 1},
		{"unified_reward", `{}`, 0, 1},
		{"unified_reward", `{"parse": "strict"}`, 0, 1},
		{"unified_reward", `{"version": "1.5", "resize": 0}`, 0.2, 1.2},
		{"wise", `{}`, 0, 1},
		{"genrm_ocr", `{}`, 0, 1},
		{"rubric", `{"rubrics": [{"name": "a", "text": "b"}]}`, 0, 1},
	} {
		sc, err := reg.Build(o.name, json.RawMessage(o.options))
		require.NoError(f, err)
		name := o.name + o.options
		scorers, names = append(scorers, sc), append(names, name)
		low[name], high[name] = o.low, o.high
	}
	f.Fuzz(func(t *testing.T, s string) {
		answer = s
		for i, sc := range scorers {
			got, err := sc.Score(t.Context(), video(1))
			if err != nil {
				require.ErrorIs(t, err, rewards.InvalidScore)
				continue
			}
			require.False(t, math.IsNaN(got.Value))
			require.GreaterOrEqual(t, got.Value, low[names[i]], "%s: %q", names[i], s)
			require.LessOrEqual(t, got.Value, high[names[i]], "%s: %q", names[i], s)
		}
	})
}

// A process reward: the judge sees each step of the response by itself.
func TestEveryStepIsJudgedByItself(t *testing.T) {
	t.Parallel()
	e := &engine{answer: func(_ int, a asked) string {
		text, _ := a.parts(t)
		switch text {
		case "1+1?|think":
			return says("<score>0.5</score>")
		case "1+1?|tool result, again":
			return says("<score>2</score>")
		}
		return says("what?")
	}}
	sc := build(t, deps(t, e), "judge", `{"template": "{prompt}|{response}", "steps": ["<|im_end|>"], "answer_retries": 0}`)
	s := said("think<|im_end|>tool result<|im_end|>, again<|im_end|>")
	got, err := sc.Score(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, []float64{0.5, 2}, got.Steps)
	assert.InDelta(t, 2.5, got.Value, 1e-12, "their sum, which is what a trainer makes of the row")
	assert.Equal(t, []string{"think", "tool result, again"}, rewards.Segments(s.Response, []string{"<|im_end|>"}))
	_, err = sc.Score(t.Context(), said("only this"))
	require.ErrorContains(t, err, "step 0")
}
