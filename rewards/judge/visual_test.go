package judge_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// The sums are of what the published code asks about the caption "a cat":
// verl_omni's DEFAULT_GRM_PROMPT and _build_unified_reward_prompt,
// point_score_APS_video_generation.py of UnifiedReward, flow_grpo's
// unifiedreward_score_sglang, Flow-Factory's first EVALUATE_PROMPT.
func TestPublishedPromptsAreAskedToTheLetter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scorer, options, answer string
		frames                  int
		want                    string
	}{
		{"genrm_ocr", `{}`, "HELLO", 1, "d233c642a829efc98a07a680100aca6e9594264d2d9005854220d43aa61f3ada"},
		{"unified_reward", `{}`, "Style Score: 4", 1, "379dc993dcc83ba3aefadffac143035c9c7578e59751212f6d16f9fc021ab5a9"},
		{"unified_reward", `{}`, "Style Score: 4", 20, "3f7cc5c2cfe1f56c26e4c5599ac04a854775abccd338250303c613773f2e1a75"},
		{"unified_reward", `{"version": "1.5"}`, "Final Score: 4", 1, "35d9122a4e2879a5c90000b2ea6ce4ba1d834f17cf1a41483fe951b20c6e5573"},
	} {
		e := saying(tt.answer)
		_, err := score(t, e, tt.scorer, tt.options, video(tt.frames))
		require.NoError(t, err)
		text, _ := e.requests()[0].parts(t)
		assert.Equal(t, tt.want, sum(text), "%s %s", tt.scorer, tt.options)
	}
	for question, want := range map[string]string{
		`{}`:                         "64a0a112b120f4261d13b6860303e51fa9dfce2975ac3ded3e1415a0381e4afe",
		`{"question": "beautiful"}`:  sum("Is it a beautiful image?"),
		`{"question": "{prompt}?!"}`: sum("a cat?!"),
	} {
		e := likely(token{"Yes", -0.1})
		_, err := score(t, e, "vlm_yes_no", question, video(1))
		require.NoError(t, err)
		text, _ := e.requests()[0].parts(t)
		assert.Equal(t, want, sum(text), question)
	}
	for template, want := range map[string]string{
		"t2v_metrics": `Does this figure show "a cat"? Please answer yes or no.`,
		"geneval2":    `Does this image show "a cat"? Answer the question with Yes or No.`,
	} {
		e := likely(token{"Yes", -0.1})
		_, err := score(t, e, "vqascore", `{"template": "`+template+`"}`, video(1))
		require.NoError(t, err)
		text, _ := e.requests()[0].parts(t)
		assert.Equal(t, want, text)
	}
}

func TestTheReaderOfGenRMNeverSeesTheTarget(t *testing.T) {
	t.Parallel()
	e := saying("hel lo\n")
	s := video(1)
	s.Prompt, s.GroundTruth = `a sign that says "HELLO"`, quote("HELLO")
	got, err := score(t, e, "genrm_ocr", `{"model": "vlm"}`, s)
	require.NoError(t, err)
	assert.InDelta(t, 1.0, got.Value, 0)
	assert.Equal(t, map[string]any{"distance": 0.0, "target_len": 5.0}, got.Extra)
	q := e.requests()[0]
	js, err := json.Marshal(q.Body)
	require.NoError(t, err)
	assert.NotContains(t, strings.ToLower(string(js)), "hello")
	assert.NotContains(t, string(js), "a sign")
	assert.Equal(t, "system", q.Messages[0].Role)
	assert.Equal(t, "You are a helpful assistant.", q.Messages[0].Content)
	delete(q.Body, "messages")
	assert.Equal(t, map[string]any{"model": "vlm", "temperature": 0.7, "top_p": 0.8, "max_tokens": 4096.0}, q.Body)
	_, pictures := q.parts(t)
	require.Len(t, pictures, 1)
	assert.Equal(t, 24, pictures[0].Bounds().Dx())
}

func TestGenRMTakesTheGroundTruthAsItIsAndAnEmptyAnswerAsNoText(t *testing.T) {
	t.Parallel()
	// Variant D of the OCR rewards, by hand: 1 − min(lev, len)/len without white space.
	for _, tt := range []struct {
		target, read string
		want         float64
	}{
		{"HELLO", "", 0},
		{"", "", 1},
		{"", "x", 0},
		{"HELLO", "it says: hell o!", 1},
		{"HELLO", "HELLP", 0.8},
		{`say "HI"`, "HI", 2.0 / 7},
		{"HELLO", strings.Repeat("nothing like it ", 100), 0},
	} {
		s := video(1)
		s.GroundTruth = quote(tt.target)
		got, err := score(t, saying(tt.read), "genrm_ocr", `{"answer_retries": 0}`, s)
		require.NoError(t, err)
		assert.InDelta(t, tt.want, got.Value, 1e-12, "%+v", tt)
	}
}

func TestFramesAreAskedAllAtOnceAndTheirMeanTaken(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	all.Add(3)
	e := &engine{}
	e.answer = func(_ int, q asked) string {
		all.Done()
		arrived := make(chan struct{})
		go func() { all.Wait(); close(arrived) }()
		select {
		case <-arrived: // no answer before all have asked
		case <-time.After(10 * time.Second):
			return says("they came one after the other")
		}
		_, pictures := q.parts(t)
		return says([]string{0: "HELLO", 4: "HELLP", 8: "xxxxx"}[frame(pictures[0])])
	}
	got, err := score(t, e, "genrm_ocr", `{}`, video(9))
	require.NoError(t, err)
	assert.InDelta(t, (1+0.8+0)/3, got.Value, 1e-12)
	assert.InDelta(t, (0.0+1+5)/3, got.Extra["distance"], 1e-12)
	var details struct {
		Answers []struct {
			Frames []int
			Value  float64
			Text   string
		}
		Asked int
	}
	js, err := json.Marshal(got.Details)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(js, &details))
	require.Equal(t, 3, details.Asked)
	assert.Equal(t, []int{4}, details.Answers[1].Frames)
	assert.Equal(t, "HELLP", details.Answers[1].Text)
}

func TestAVideoForUnifiedRewardIsSixteenFramesInOneQuestion(t *testing.T) {
	t.Parallel()
	for frames, want := range map[int][]int{
		81: {0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75},
		5:  {0, 1, 2, 3, 4}, // each once
	} {
		e := saying("Alignment Score (1-5): 2.4036\nPhysics Score (1-5): 3.0987\nStyle Score (1-5): 3.3889\n")
		got, err := score(t, e, "unified_reward", `{}`, video(frames))
		require.NoError(t, err)
		assert.InDelta(t, ((2.4036+3.0987+3.3889)/3-1)/4, got.Value, 1e-12)
		assert.InDelta(t, 3.0987, got.Extra["physics"], 0)
		require.Len(t, e.requests(), 1)
		_, pictures := e.requests()[0].parts(t)
		var shown []int
		for _, p := range pictures {
			shown = append(shown, frame(p))
		}
		assert.Equal(t, want, shown)
	}
	e := saying("Alignment Score (1-5): 3")
	_, err := score(t, e, "unified_reward", `{"video": "frames", "frame_interval": 2}`, video(6))
	require.NoError(t, err)
	assert.Len(t, e.requests(), 3, "verl-omni: frame by frame")
}

func TestUnifiedReward15IsFlowGRPOs(t *testing.T) {
	t.Parallel()
	// Values of its _extract_scores, divided by 5; -1 where it finds none and says 0.
	for answer, want := range map[string]float64{
		"Final Score: 4.5": 0.9, "Final Score:\n 3": 0.6, "so Final Score: 5. Final Score: 1": 1, "Final Score: 4.25/5": 0.85,
		"Final Score:\u00a02": 0.4, "Final Score: 6": -1, "Final Score: **4**": -1, "": -1, "4": -1,
	} {
		got, err := score(t, saying(answer), "unified_reward", `{"version": "1.5", "answer_retries": 0, "resize": 0}`, video(1))
		if want < 0 {
			require.ErrorIs(t, err, rewards.InvalidScore, answer)
			continue
		}
		require.NoError(t, err, answer)
		assert.InDelta(t, want, got.Value, 1e-12, answer)
	}
	e := saying("Final Score: 4")
	_, err := score(t, e, "unified_reward", `{"version": "1.5"}`, video(1))
	require.NoError(t, err)
	q := e.requests()[0]
	_, pictures := q.parts(t)
	assert.Equal(t, "512x512", fmt.Sprintf("%dx%d", pictures[0].Bounds().Dx(), pictures[0].Bounds().Dy()))
	delete(q.Body, "messages")
	assert.Equal(t, map[string]any{"model": "default-model", "temperature": 0.0}, q.Body)
}

func TestStrictReadingOfUnifiedRewardWantsEveryAxisInItsRange(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]float64{
		"**Alignment Score (1-5):** 2\n**Coherence Score (1-5)**: 3\nStyle Score: **4**": 0.5,
		"Alignment Score: 2, Coherence Score: 3, Style Score: 4":                         0.5,
		"**Coherence Score (1-5):** 2\n0 2 3":                                            -1,
		"1 2 3":                                                                          -1,
		"Alignment Score (1-5): 2":                                                       -1,
		"Alignment Score: 2, Coherence Score: 3, Style Score: 6":                         -1,
	} {
		got, err := score(t, saying(answer), "unified_reward", `{"parse": "strict"}`, video(1))
		if want < 0 {
			require.ErrorIs(t, err, rewards.InvalidScore, answer)
			continue
		}
		require.NoError(t, err, answer)
		assert.InDelta(t, want, got.Value, 1e-12, answer)
	}
}

func TestTheCaptionIsFoundWhereVerlOmniFindsIt(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]*rewards.Sample{
		"[one]":   {ExtraInfo: json.RawMessage(`{"prompt": "one", "raw_prompt": "two"}`), Prompt: "three"},
		"[two]":   {ExtraInfo: json.RawMessage(`{"prompt": "", "Prompt": "no", "raw_prompt": "two"}`), Prompt: "three"},
		"[three]": {ExtraInfo: json.RawMessage(`{"raw_prompt": [{"role": "user"}]}`), Prompt: "three", GroundTruth: quote("four")},
		"[four]":  {GroundTruth: quote("four")},
	} {
		e := saying("Style Score: 4")
		s.Media = video(1).Media
		_, err := score(t, e, "unified_reward", `{}`, s)
		require.NoError(t, err)
		text, _ := e.requests()[0].parts(t)
		assert.Contains(t, text, "Text Caption: "+want)
	}
}

func TestProbabilitiesAreReadFromTheFirstToken(t *testing.T) {
	t.Parallel()
	forms := []token{{"Yes", -0.5}, {" yes", -2}, {"YES", -4}, {"No", -1.5}, {"no ", -3}, {"Maybe", -9}}
	for name, tt := range map[string]struct {
		scorer, options string
		tokens          []token
		want            float64 // below 0: cannot be read
		mass            float64
	}{
		// Flow-Factory's _get_yes_cond_prob, computed by its formula.
		"yes and no":            {"vlm_yes_no", `{}`, []token{{"Yes", -0.2}, {"No", -1.9}}, 0.8455347349164652, 0.9682993723006169},
		"only yes":              {"vlm_yes_no", `{}`, []token{{"Yes", -0.2}}, 1, math.Exp(-0.2)},
		"only no":               {"vlm_yes_no", `{}`, []token{{"No", -0.2}}, 0, math.Exp(-0.2)},
		"exact forms":           {"vlm_yes_no", `{}`, forms, 1 / (1 + math.Exp(-1)), math.Exp(-0.5) + math.Exp(-1.5)},
		"all forms":             {"vlm_yes_no", `{"canonicalize": true}`, forms, 0.7358265968550443, 1},
		"other forms, exact":    {"vlm_yes_no", `{}`, []token{{"yes", -0.1}, {" No", -3}}, -1, 0},
		"neither":               {"vlm_yes_no", `{"canonicalize": true}`, []token{{"The", -0.1}, {"Yesterday", -3}}, -1, 0},
		"vanishing":             {"vlm_yes_no", `{}`, []token{{"Yes", -9999}, {"No", -9998}}, 1 / (1 + math.E), 0},
		"vqascore":              {"vqascore", `{}`, []token{{"Yes", -0.3}, {"yes", -2}, {"No", -3}}, math.Exp(-0.3), math.Exp(-0.3) + math.Exp(-3)},
		"vqascore, all":         {"vqascore", `{"forms": "all"}`, []token{{"Yes", -0.3}, {"yes", -2}, {"No", -3}}, math.Exp(-0.3) + math.Exp(-2), math.Exp(-0.3) + math.Exp(-2) + math.Exp(-3)},
		"geneval2":              {"vqascore", `{"template": "geneval2"}`, []token{{"Yes", -0.3}, {" yes", -2}, {"No", -3}}, math.Exp(-0.3) + math.Exp(-2), math.Exp(-0.3) + math.Exp(-2) + math.Exp(-3)},
		"geneval2, exact":       {"vqascore", `{"template": "geneval2", "forms": "exact"}`, []token{{"Yes", -0.2}, {" yes", -2}}, math.Exp(-0.2), math.Exp(-0.2)},
		"vqascore, a plain no":  {"vqascore", `{}`, []token{{"No", 0}}, 0, 1},
		"vqascore, no answer":   {"vqascore", `{}`, []token{{"A", -0.1}, {"The", -3}}, -1, 0},
		"digits":                {"digit", `{}`, []token{{"4", -0.9}, {" 3", -1.2}, {"5", -2.2}, {"2", -2.5}, {"1", -3}, {"9", -1}, {"10", -1}, {"٣", -1}, {"+3", -1}}, 0.6174501455463589, 0.9504390970068979},
		"one digit":             {"digit", `{"min": 0, "max": 9}`, []token{{"9", -9000}}, 1, 0},
		"a digit in two tokens": {"digit", `{}`, []token{{"1", math.Log(0.25)}, {" 1", math.Log(0.25)}, {"5", math.Log(0.5)}}, 0.5, 1},
		"no digit":              {"digit", `{}`, []token{{"The", -0.1}, {"7", -1}}, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := likely(tt.tokens...)
			got, err := score(t, e, tt.scorer, tt.options, video(1))
			q := e.requests()[0]
			if tt.want < 0 {
				require.ErrorIs(t, err, rewards.InvalidScore)
				assert.Len(t, e.requests(), 2, "asked again once")
				return
			}
			require.NoError(t, err)
			assert.InDelta(t, tt.want, got.Value, 1e-12)
			assert.InDelta(t, tt.mass, got.Extra["mass"], 1e-12)
			delete(q.Body, "messages")
			assert.Equal(t, map[string]any{"model": "default-model", "temperature": 0.0, "max_tokens": 1.0, "logprobs": true, "top_logprobs": 20.0}, q.Body)
		})
	}
}

func TestDigitsAskForTheConfiguredRange(t *testing.T) {
	t.Parallel()
	e := likely(token{"7", -1})
	got, err := score(t, e, "digit", `{"min": 0, "max": 9}`, video(1))
	require.NoError(t, err)
	assert.InDelta(t, 7.0, got.Extra["expected"], 1e-12)
	text, _ := e.requests()[0].parts(t)
	assert.Contains(t, text, "from 0 (not at all) to 9 (perfectly)")
	assert.Contains(t, text, `"a cat"`)
}

func TestWiScore(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]float64{
		"Consistency: 2\nRealism: 1\nAesthetic Quality: 0":                  0.8, // (0.7·2 + 0.2·1)/2
		"**Consistency**: 1\n**Realism**：2\n**Aesthetic Quality** 2":        0.65,
		"consistency 0, REALISM 0, aesthetic quality 0":                     0,
		"Consistency: 0 … Consistency: 2\nRealism: 2\nAesthetic Quality: 2": 1,
		"Consistency: 2\nRealism: 1":                                        -1,
		"Consistency: 2\nRealism: 3\nAesthetic Quality: 0":                  -1,
		"9.9": -1,
	} {
		e := saying(answer)
		s := video(1)
		s.ExtraInfo = json.RawMessage(`{"Explanation": "it purrs"}`)
		got, err := score(t, e, "wise", `{}`, s)
		if want < 0 {
			require.ErrorIs(t, err, rewards.InvalidScore, answer)
			continue
		}
		require.NoError(t, err, answer)
		assert.InDelta(t, want, got.Value, 1e-12, answer)
		assert.Len(t, got.Extra, 3)
		text, _ := e.requests()[0].parts(t)
		assert.Contains(t, text, "PROMPT: \"a cat\"\nEXPLANATION: \"it purrs\"")
		assert.InDelta(t, 0.2, e.requests()[0].Body["temperature"], 0, "at 0 its scores collapse")
	}
	e := saying("Consistency: 2\nRealism: 1\nAesthetic Quality: 0")
	_, err := score(t, e, "wise", `{"template": "Rate {prompt} by {ground_truth}."}`, video(1))
	require.NoError(t, err)
	text, _ := e.requests()[0].parts(t)
	assert.Equal(t, "Rate a cat by HELLO.", text)
}

func TestAPictureCanBeSentAsItCame(t *testing.T) {
	t.Parallel()
	png := "\x89PNG\r\n\x1a\n and the rest"
	for format, want := range map[string]string{
		"as_is": "data:image/png;base64,iVBORw0KGgogYW5kIHRoZSByZXN0",
		"png":   "data:image/png;base64,iVBORw0KGgoAAAAN",
		"jpeg":  "data:image/jpeg;base64,/9j/",
	} {
		e := saying("HELLO")
		s := video(1)
		s.Media[0].Encoding, s.Media[0].Data = rewards.PNG, []byte(png)
		_, err := score(t, e, "genrm_ocr", `{"image_format": "`+format+`"}`, s)
		require.NoError(t, err)
		js, err := json.Marshal(e.requests()[0].Body)
		require.NoError(t, err)
		assert.Contains(t, string(js), want)
	}
}
