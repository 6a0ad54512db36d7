package text_test

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/text"
)

// value scores and wants no error.
func value(t *testing.T, scorer, options string, s *rewards.Sample) float64 {
	t.Helper()
	got, err := newScorer(t, scorer, options).Score(t.Context(), s)
	require.NoError(t, err)
	assert.False(t, got.Value == 0 && math.Signbit(got.Value), "minus zero")
	return got.Value
}

// refused scores and wants an error of class BadInput that says all of the words.
func refused(t *testing.T, scorer, options string, s *rewards.Sample, words ...string) {
	t.Helper()
	got, err := newScorer(t, scorer, options).Score(t.Context(), s)
	require.ErrorIs(t, err, rewards.BadInput)
	assert.Zero(t, got)
	for _, w := range append(words, strconv.Quote(s.ID)) {
		require.ErrorContains(t, err, w)
	}
}

func TestNoScorerGivesANumberToASampleWithoutAResponse(t *testing.T) {
	t.Parallel()
	for _, spec := range text.Specs() {
		o := required(spec.Name)
		refused(t, spec.Name, o, &rewards.Sample{ID: "e"}, "no response")
		picture := sample("", `"7"`, `{"response_length": 7}`)
		picture.Media = []*rewards.Media{{Kind: rewards.Image}}
		refused(t, spec.Name, o, picture, "media")
		refused(t, spec.Name, o, sample(strings.Repeat("x", text.MaxText+1), `"7"`, ""), "at most")
	}
}

func TestARolloutThatEndedAtOnceIsScored(t *testing.T) {
	t.Parallel()
	silent := sample("", `"7"`, "")
	for scorer, want := range map[string]float64{
		"gsm8k": 0, "math_dapo": -1, "math_reward": 0, "search_r1_qa_em": 0, "format": 0, "length": -0.1, "ngram_repetition": 0, "rouge_l": 0,
	} {
		assert.InDelta(t, want, value(t, scorer, "{}", silent), 0, scorer)
	}
}

func TestATruthThatIsMissingOrNoTextIsBadInput(t *testing.T) {
	t.Parallel()
	for _, scorer := range []string{"gsm8k", "math_dapo", "math_reward", "choice", "mmk12"} {
		refused(t, scorer, "{}", sample("7", "", ""), "no ground_truth")
		refused(t, scorer, "{}", sample("7", "7", ""), "not a JSON string", `"42" for 42`)
		refused(t, scorer, "{}", sample("7", `{"a": "`+strings.Repeat("b", 1000)+`"}`, ""), "not a JSON string")
	}
	refused(t, "choice", "{}", sample("7", quoted(t, strings.Repeat("7", text.MaxText+1)), ""), "at most")
	refused(t, "gsm8k", "{}", sample("7", quoted(t, strings.Repeat("7", text.MaxAnswer+1)), ""), "at most")
}

func TestSeveralRightAnswersComeInThreeForms(t *testing.T) {
	t.Parallel()
	for _, truth := range []string{`"Paris"`, `["Rome", "Paris"]`, `{"target": "Paris"}`, `{"target": ["x", "Paris"], "id": 3}`} {
		for _, scorer := range []string{"search_r1_qa_em", "search_r1_qa_subem"} {
			assert.InDelta(t, 1, value(t, scorer, "{}", sample("<answer> paris. </answer>", truth, "")), 0, "%s %s", scorer, truth)
		}
		for _, scorer := range []string{"rouge_l", "f1"} {
			assert.InDelta(t, 1, value(t, scorer, "{}", sample("paris", truth, "")), 0, "%s %s", scorer, truth)
		}
	}
	many := "[" + strings.Repeat(`"x",`, text.MaxTargets) + `"x"]`
	for _, scorer := range []string{"search_r1_qa_em", "search_r1_qa_subem", "rouge_l", "f1"} {
		refused(t, scorer, "{}", sample("<answer>x</answer>", many, ""), "1025 right answers")
		for _, truth := range []string{`{}`, `[]`, `null`, `7`, `[7]`, `["x", null]`, `{"target": null}`, `{"target": [null]}`, `{"target": {"a": 1}}`, `{`} {
			refused(t, scorer, "{}", sample("<answer>x</answer>", truth, ""), "without a right answer")
		}
		refused(t, scorer, "{}", sample("x", "", ""), "no ground_truth")
	}
}

func TestUnknownAndImpossibleOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ scorer, options, says string }{
		{"gsm8k", `{"method": "loose"}`, "method"},
		{"gsm8k", `{"strict": true}`, "strict"},
		{"math_reward", `{"a": 1}`, "a"},
		{"mmk12", `{"format_score": -1, "values": "x"}`, "format_score"},
		{"mmk12", `{"format_score": -1, "values": "x"}`, "values"},
		{"format", `{"form": "xml"}`, "form"},
		{"format", `{"think_token": "a>b"}`, "think_token"},
		{"format", `{"form": "tool_call", "answer_token": "final"}`, "answer_token"},
		{"length", `{"min_length": 5, "max_length": 4}`, "max_length"},
		{"length", `{"penalty_rate": -1}`, "penalty_rate"},
		{"length", `{"floor": 1}`, "floor"},
		{"overlong", `{}`, "required"},
		{"overlong", `{"max_resp_len": 10, "overlong_buffer_len": 11}`, "max_resp_len"},
		{"overlong", `{"max_resp_len": 10, "overlong_buffer_len": 5, "penalty_factor": -1}`, "penalty_factor"},
		{"overlong", `{"max_resp_len": 10, "overlong_buffer_len": 5, "length_key": ""}`, "length_key"},
		{"ngram_repetition", `{"n": 0}`, "n: 0"},
		{"ngram_repetition", `{"n": 33}`, "1 to 32"},
		{"ngram_repetition", `{"penalty_threshold": 2}`, "penalty_threshold"},
		{"ngram_repetition", `{"penalty_rate": -1}`, "penalty_rate"},
		{"ngram_repetition", `{"max_penalty": 1}`, "max_penalty"},
		{"ngram_repetition", `{"min_scaling": 1}`, "min_scaling"},
		{"ngram_repetition", `{"analyze_scope": "half"}`, "analyze_scope"},
		{"ngram_repetition", `{"tokenizer_type": "tiktoken"}`, "tokenizer_type"},
		{"rouge_l", `{"tokenizer_type": "jieba"}`, "tokenizer_type"},
		{"f1", `{"mode": "bag"}`, "mode"},
		{"regex", `{}`, "required"},
		{"regex", `{"pattern": "a)"}`, "pattern"},
		{"regex", `{"pattern": "a)|(b", "full_match": true}`, "pattern"},
		{"regex", `{"pattern": "(?=a)"}`, "pattern"},
		{"regex", `{"pattern": "` + strings.Repeat("a", text.MaxPattern+1) + `"}`, "at most 4096"},
		{"regex", `{"pattern": "a{1000}b{1000}"}`, "instructions"},
		{"regex", `{"pattern": "a", "full_match": true, "equals_ground_truth": true}`, "keep one"},
	} {
		_, err := build(c.scorer, c.options)
		require.ErrorContains(t, err, c.says, "%s %s", c.scorer, c.options)
	}
}

// What verl did up to 0.9.0: without "Answer:" there is no answer.
func TestMathDAPOTakesTheBoxOnlyWhereItMay(t *testing.T) {
	t.Parallel()
	s := sample(`so \boxed{7}`, `"7"`, "")
	assert.InDelta(t, 1, value(t, "math_dapo", `{}`, s), 0)
	assert.InDelta(t, -1, value(t, "math_dapo", `{"boxed_fallback": false}`, s), 0)
	assert.InDelta(t, 1, value(t, "math_dapo", `{"boxed_fallback": false}`, sample("Answer: $7$", `"7"`, "")), 0)
}

func TestChoiceMayTakeABareGroundTruth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		response, truth string
		published, bare float64
	}{
		{"<answer>B</answer>", `"B"`, 0, 1},
		{"I do not know", `"B"`, 1, 0}, // Two missing tags agree, as published.
		{"<answer>B</answer>", `"<answer> B</answer>"`, 1, 1},
		{"<answer></answer>", `""`, 1, 1},
		{"", `""`, 1, 0},
	} {
		s := sample(c.response, c.truth, "")
		assert.InDelta(t, c.published, value(t, "choice", `{}`, s), 0, "%+v", c)
		assert.InDelta(t, c.bare, value(t, "choice", `{"bare_ground_truth": true}`, s), 0, "%+v", c)
	}
}

func TestMMK12SaysWhereNumericAnswersAreScored(t *testing.T) {
	t.Parallel()
	options := `{"options": "{\"A\": \"12\", \"B\": 12}"}`
	for _, s := range []*rewards.Sample{
		sample("<answer>12</answer>", `"3.5"`, ""),
		sample("<answer>12</answer>", `"A"`, options),
	} {
		refused(t, "mmk12", `{}`, s, "math_verify", "mmk12_reward.py", "equal_text")
	}
	// A letter, or no option to compare with, needs no value.
	assert.InDelta(t, 10.0/13, value(t, "mmk12", `{}`, sample("A", `"A"`, options)), 1e-15)
	assert.InDelta(t, 0, value(t, "mmk12", `{}`, sample("12", `"C"`, options)), 0)
	refused(t, "mmk12", `{}`, sample("12", `"B"`, options), "not a text")
	refused(t, "mmk12", `{}`, sample("12", `"B"`, `{"options": "[1]"}`), "not a JSON object")
	refused(t, "mmk12", `{}`, sample("12", `"B"`, `[]`), "not a JSON object")
}

func TestRegexMatchesAPartTheWholeOrTheRightAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options, response string
		want              float64
	}{
		{`{"pattern": "b+"}`, "abba", 1},
		{`{"pattern": "b+", "score": 2, "miss_score": -1}`, "aa", -1},
		{`{"pattern": "a|b", "full_match": true}`, "b", 1},
		{`{"pattern": "a|b", "full_match": true}`, "ab", 0},
		{`{"pattern": "a", "full_match": true}`, "a\n", 0},
		{`{"pattern": "(?s)<think>.*</think>.+", "full_match": true}`, "<think>\n</think>7", 1},
		{`{"pattern": "is (\\d+)", "equals_ground_truth": true}`, "it is 8, is 7", 0},
		{`{"pattern": "(?s).*is (\\d+)", "equals_ground_truth": true}`, "it is 8,\nis 7", 1},
		{`{"pattern": "\\s\\d+\\s", "equals_ground_truth": true}`, "it is 7 ", 1},
		{`{"pattern": "x|(7)", "equals_ground_truth": true}`, "x", 0},
		{`{"pattern": "x", "equals_ground_truth": true}`, "7", 0},
	} {
		assert.InDelta(t, c.want, value(t, "regex", c.options, sample(c.response, `"7"`, "")), 0, "%+v", c)
	}
	assert.InDelta(t, 1, value(t, "regex", `{"pattern": "a"}`, sample("a", "", "")), 0, "a ground truth is looked at only where it is compared")
	refused(t, "regex", `{"pattern": "a", "equals_ground_truth": true}`, sample("a", "", ""), "no ground_truth")
}

func TestAPatternTooLargeForALongResponseIsRefusedAndNotRun(t *testing.T) {
	t.Parallel()
	o := `{"pattern": "x{450}y{450}z"}`
	assert.InDelta(t, 0, value(t, "regex", o, sample(strings.Repeat("x", 1000), "", "")), 0)
	refused(t, "regex", o, sample(strings.Repeat("x", 1<<20), "", ""), "shorter pattern")
}

func TestLengthMayHaveAFloor(t *testing.T) {
	t.Parallel()
	s := sample(strings.Repeat("é", 2000), "", "")
	assert.InDelta(t, -10, value(t, "length", `{}`, s), 0)
	assert.InDelta(t, -0.5, value(t, "length", `{"floor": -0.5}`, s), 0)
	assert.InDelta(t, 0, value(t, "length", `{"floor": 0, "max_length": 2000}`, s), 0)
}

// The published formula by hand: of 100 tokens the last 20 cost a twentieth each.
func TestOverlongPenaltyGrowsOverTheBuffer(t *testing.T) {
	t.Parallel()
	const o = `{"max_resp_len": 100, "overlong_buffer_len": 20, "penalty_factor": 2}`
	for tokens, want := range map[string]float64{"0": 0, "80": 0, "81": -0.1, "90.0": -1, "100": -2, "120": -4} {
		got, err := newScorer(t, "overlong", o).Score(t.Context(), sample("x", "", `{"response_length": `+tokens+`}`))
		require.NoError(t, err)
		assert.InDelta(t, want, got.Value, 1e-15, tokens)
		assert.Equal(t, want < 0, got.Extra["overlong"], tokens)
	}
	for _, extra := range []string{"", "{}", `{"response_length": -1}`, `{"response_length": 1.5}`, `{"response_length": "7"}`, `{"response_length": null}`, "[]"} {
		refused(t, "overlong", o, sample("x", "", extra), "extra_info")
	}
}

func TestNgramsOfCharactersSeeRepetitionInTextsWithoutSpaces(t *testing.T) {
	t.Parallel()
	s := sample(strings.Repeat("東京都", 4), "", "")
	assert.InDelta(t, 0, value(t, "ngram_repetition", `{}`, s), 0, "one word")
	// 12 characters, 10 trigrams, 3 of them different.
	assert.InDelta(t, -(1 - 3.0/10 - 0.3), value(t, "ngram_repetition", `{"tokenizer_type": "chars"}`, s), 1e-15)
}

func TestSQuADCountsEveryOccurrence(t *testing.T) {
	t.Parallel()
	s := sample("The cat, the CAT!", `"a cat sat"`, "")
	// Distinct tokens as written: {the, cat,, cat!} and {a, cat, sat} share none.
	assert.InDelta(t, 0, value(t, "f1", `{}`, s), 0)
	// Two cats against one that sat: one in common, precision and recall a half.
	assert.InDelta(t, 0.5, value(t, "f1", `{"mode": "squad"}`, s), 0)
	assert.InDelta(t, 1, value(t, "f1", `{"mode": "squad"}`, sample("the", `"A."`, "")), 0, "nothing against nothing")
}

func TestRougeTakesReferencesOfABoundedLength(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("w ", text.MaxReference)
	assert.InDelta(t, 1, value(t, "rouge_l", `{}`, sample(words, quoted(t, words), "")), 0)
	refused(t, "rouge_l", `{}`, sample("w", quoted(t, words+"w"), ""), "4096")
	refused(t, "rouge_l", `{}`, sample("w", `["x", `+quoted(t, words)+`]`, ""), "4096")
}

// One reference at a time, this response would be read a thousand times: minutes.
func TestRougeReadsTheResponseOnceHoweverManyReferencesThereAre(t *testing.T) {
	t.Parallel()
	references := make([]string, text.MaxTargets)
	for i := range references {
		references[i] = "a b" + strconv.Itoa(i)
	}
	references[700] = "a c a"
	response := "c " + strings.Repeat("a ", 1<<19)
	truth, err := json.Marshal(references)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := newScorer(t, "rouge_l", `{}`).Score(ctx, sample(response, string(truth), ""))
	require.NoError(t, err)
	n := float64(1 + 1<<19)
	precision, recall := 2/n, 2.0/3
	assert.InDelta(t, 2*precision*recall/(precision+recall), got.Value, 0, "the closest of them counts")
}

func TestAnEndedContextEndsAScoreBeforeAndWithin(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, spec := range text.Specs() {
		_, err := newScorer(t, spec.Name, required(spec.Name)).Score(ended, sample("x", `"x"`, `{"response_length": 7}`))
		assert.Equal(t, rewards.Cancelled, rewards.ClassOf(err), spec.Name)
	}
	_, err := text.CommonLengths(ended, [][]string{{"a"}}, strings.Split(strings.Repeat("a", 2000), ""))
	require.ErrorIs(t, err, context.Canceled)
}

func TestAScorerIsSafeForManyGoroutines(t *testing.T) {
	t.Parallel()
	for _, spec := range text.Specs() {
		scorer := newScorer(t, spec.Name, required(spec.Name))
		s := sample("<think>x</think><answer>\\boxed{A} ΟΔΟΣ 1 1 1 1</answer> #### 7", `"A"`, `{"response_length": 90}`)
		want, err := scorer.Score(t.Context(), s)
		require.NoError(t, err)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 20 {
					got, _ := scorer.Score(t.Context(), s)
					assert.Equal(t, want, got)
				}
			})
		}
		group.Wait()
	}
}

func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 100_000)
	for scorer, response := range map[string]string{
		"math_reward": `\boxed{` + long + "}", "search_r1_qa_em": "<answer>" + long + "</answer>", "choice": "<answer>" + long + "</answer>",
	} {
		got, err := newScorer(t, scorer, "{}").Score(t.Context(), sample(response, `"x"`, ""))
		require.NoError(t, err)
		assert.Len(t, []rune(got.Details["answer"].(string)), 1001, scorer)
	}
}
