package judge_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
)

var update = flag.Bool("update", false, "write testdata anew")

// shade is a picture whose frame number, as numbered makes it, says which it is.
func shade(n int) *rewards.Media {
	m := &rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw}
	m.SetDecoder(shaded(n))
	return m
}

// edited is a sample as verl-omni's rollouts come: the edit (shade 1) first, then its source (shade 0).
func edited() *rewards.Sample {
	return &rewards.Sample{ID: "s1", Prompt: "make the {sky} green", Media: []*rewards.Media{shade(1), shade(0)}}
}

// shown are the shades of the pictures of a question, in their order.
func shown(t *testing.T, q asked) (text string, shades []int) {
	t.Helper()
	text, pictures := q.parts(t)
	for _, p := range pictures {
		shades = append(shades, frame(p))
	}
	return text, shades
}

// twice answers both questions of edit_score: which is which is told by the number of pictures.
func twice(semantic, perceptual string) *engine {
	return &engine{answer: func(_ int, q asked) string {
		if strings.Count(fmt.Sprint(q.Body), "image_url:") > 1 {
			return says(semantic)
		}
		return says(perceptual)
	}}
}

func TestGoldenRequests(t *testing.T) {
	t.Parallel()
	type request struct {
		Pictures []int          `json:"pictures"`
		Text     string         `json:"text"`
		Rest     map[string]any `json:"rest"`
	}
	got := map[string][]request{}
	for _, tt := range []struct {
		name, scorer, options string
		e                     *engine
	}{
		{"edit_score", "edit_score", `{}`, twice(`{"score": [1, 2]}`, `{"score": [3, 4]}`)},
		{"edit_score as EditScore asks", "edit_score", `{"range": 25, "seed": 42, "temperature": 0.7, "sc_template": "rate {prompt}", "pq_template": "rate it"}`, twice(`{"score": [1, 2]}`, `{"score": [3, 4]}`)},
		{"edit_score, the edit last", "edit_score", `{"result": "last"}`, twice(`{"score": [1, 2]}`, `{"score": [3, 4]}`)},
		{"imgedit", "imgedit", `{}`, saying("Reasoning: x\nCompliance: 3\nSeamlessness: 3\nFidelity: 2")},
		{"soft_tifa", "soft_tifa", `{}`, likely(token{"Yes", -0.1}, token{"four", -2})},
	} {
		s := edited()
		s.GroundTruth = json.RawMessage(`{"vqa_list": [["How many cows are there?", "four"], ["Is {it} a cow?", "Yes"]]}`)
		_, err := score(t, tt.e, tt.scorer, tt.options, s)
		require.NoError(t, err, tt.name)
		for _, q := range tt.e.requests() {
			r := request{Rest: q.Body}
			r.Text, r.Pictures = shown(t, q)
			delete(q.Body, "messages")
			got[tt.name] = append(got[tt.name], r)
		}
		// Those of a sample go out together.
		slices.SortFunc(got[tt.name], func(a, b request) int { return strings.Compare(a.Text, b.Text) })
	}
	js, err := json.MarshalIndent(got, "", "  ")
	require.NoError(t, err)
	path := filepath.Join("testdata", "requests.golden.json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, append(js, '\n'), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(js), "go test ./rewards/judge -run Golden -update writes it anew")
}

func TestTheValueOfEditScoreIsTheRootOfTheLowerRatings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		options, semantic, perceptual string
		sc, pq                        float64
	}{
		{`{}`, `{"reasoning": "so so", "score": [9, 4]}`, `{"score": [6, 9.0]}`, 4, 6},
		{`{"range": 25}`, "```json\n{\"score\" : [25, 20]}\n```", `I see. {"reasoning": "a {b}", "score": [5, 5]}`, 8, 2},
		{`{}`, `<think>{"score": [1, 1]}</think>{"score": [10, 10]}`, `{"verdict": 1} {"score": [10, 10]}`, 10, 10},
		{`{}`, `{"score": [0, 10]}`, `{"score": [10, 10]}`, 0, 10},
	} {
		got, err := score(t, twice(tt.semantic, tt.perceptual), "edit_score", tt.options, edited())
		require.NoError(t, err, "%+v", tt)
		assert.InDelta(t, math.Sqrt(tt.sc*tt.pq), got.Value, 1e-12, "%+v", tt)
		assert.InDelta(t, tt.sc, got.Extra["semantic_consistency"], 1e-12)
		assert.InDelta(t, tt.pq, got.Extra["perceptual_quality"], 1e-12)
	}
	got, err := score(t, twice(`{"score": [9, 4]}`, `{"score": [6, 8]}`), "edit_score", `{}`, edited())
	require.NoError(t, err)
	assert.Equal(t, map[string]any{
		"semantic_consistency": 4.0, "perceptual_quality": 6.0, "prompt_following": 9.0, "consistency": 4.0, "naturalness": 6.0, "artifacts": 8.0,
	}, got.Extra)
}

func TestAnAnswerAboutAnEditThatIsNotTwoRatingsIsAFailureAndNeverAScore(t *testing.T) {
	t.Parallel()
	for answer, why := range map[string]string{
		"":                          "no JSON found",
		"I can't assist with that.": "no JSON found",
		"score: [8, 8]":             "not an object with a list score",
		"[8, 8]":                    "not an object with a list score",
		`{"score": 8}`:              "no list score",
		`{"score": [8]}`:            "has 1 entries, want 2",
		`{"score": []}`:             "has 0 entries, want 2",
		`{"score": [8, 8, 8]}`:      "has 3 entries, want 2",
		`{"score": [8, "8"]}`:       "entry 1 of the list score is not a number",
		`{"score": [8, null]}`:      "entry 1 of the list score is not a number",
		`{"score": [true, 8]}`:      "entry 0 of the list score is not a number",
		`{"score": [8, 10.5]}`:      "the rating is 10.5, want 0 to 10",
		`{"score": [-1, 8]}`:        "the rating is -1, want 0 to 10",
		`{"score": [1e999, 8]}`:     "the rating is 1e999, want 0 to 10",
		`{"score": [NaN, 8]}`:       "",
		`{"score": [8, 8]`:          "",
		strings.Repeat("[", 5000):   "no JSON found",
		strings.Repeat(`{"a": 1} `, 40) + `{"score": [8, 8]}`: "no list score", // beyond what is looked at
	} {
		for _, e := range []*engine{twice(answer, `{"score": [8, 8]}`), twice(`{"score": [8, 8]}`, answer)} {
			_, err := score(t, e, "edit_score", `{"answer_retries": 0}`, edited())
			require.ErrorIs(t, err, rewards.InvalidScore, answer)
			require.ErrorContains(t, err, why, answer)
		}
	}
	// Both questions are sent at once: "no" is what each gets the first time.
	var mu sync.Mutex
	seen := map[string]bool{}
	e := &engine{answer: func(_ int, q asked) string {
		mu.Lock()
		defer mu.Unlock()
		if question := fmt.Sprint(q.Body); !seen[question] {
			seen[question] = true
			return says("no")
		}
		return says(`{"score": [8, 8]}`)
	}}
	got, err := score(t, e, "edit_score", `{}`, edited())
	require.NoError(t, err, "it is asked again")
	assert.InDelta(t, 8, got.Value, 1e-12)
}

func TestImgEditIsTheMeanOfThreeAxesNoneAboveTheFirst(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]float64{
		"Reasoning: fine\nCompliance: 4\nSeamlessness: 3\nFidelity: 2":                                                     3,
		"Brief reasoning: a: b\n**Prompt Compliance:** 5\r\n- Visual Seamlessness: **4**\n*Physical & Detail Fidelity*: 3": 4,
		"Compliance: 1\nSeamlessness: 5\nFidelity: 5":                                                                      1,
		"<think>Compliance: 1</think>Compliance: 5.0\nSeamlessness: 5\nFidelity: 5":                                        5,
		// Cannot be read.
		"Compliance: 4\nSeamlessness: 3":                          -1,
		"Compliance: 4\nSeamlessness: 3\nFidelity: 2\nOverall: 3": -1,
		"Compliance: 4\nSeamlessness: 3\nFidelity: 6":             -1,
		"Compliance: 0\nSeamlessness: 3\nFidelity: 3":             -1,
		"Compliance: 4.5\nSeamlessness: 3\nFidelity: 3":           -1,
		"Compliance: 4/5\nSeamlessness: 3/5\nFidelity: 3/5":       -1,
		"Compliance: -4\nSeamlessness: 3\nFidelity: 3":            -1,
		"Compliance: 1e999\nSeamlessness: 3\nFidelity: 3":         -1,
		"Compliance: 4, Seamlessness: 3, Fidelity: 2":             -1,
		"I'm sorry, but I can't assist with that request.":        -1,
		strings.Repeat("*", 100_000):                              -1,
		"":                                                        -1,
	} {
		got, err := score(t, saying(answer), "imgedit", `{"answer_retries": 0}`, edited())
		if want < 0 {
			require.ErrorIs(t, err, rewards.InvalidScore, answer)
			continue
		}
		require.NoError(t, err, answer)
		assert.InDelta(t, want, got.Value, 1e-12, answer)
		assert.Len(t, got.Extra, 3)
	}
}

func TestAnEditWithoutItsSourceIsBadInput(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"edit_score", "imgedit"} {
		for why, spoil := range map[string]func(s *rewards.Sample){
			"has 1 pictures, want an edit and its source": func(s *rewards.Sample) { s.Media = s.Media[:1] },
			"has 0 pictures":          func(s *rewards.Sample) { s.Media = []*rewards.Media{{Kind: rewards.Latent}} },
			"has a video":             func(s *rewards.Sample) { s.Media = append(s.Media, video(3).Media...) },
			"has no prompt":           func(s *rewards.Sample) { s.Prompt = "" },
			"a video without a frame": func(s *rewards.Sample) { s.Media[1].SetDecoder(numbered{8, 8, 0}) },
		} {
			e, s := saying(`{"score": [8, 8]}`), edited()
			spoil(s)
			_, err := score(t, e, name, `{}`, s)
			require.ErrorIs(t, err, rewards.BadInput, why)
			require.ErrorContains(t, err, why)
			assert.Contains(t, err.Error(), "s1")
			assert.Empty(t, e.requests(), "nobody is asked")
		}
	}
}

func TestAnEngineIsTriedWithAsManyPicturesAsItsJudgeShows(t *testing.T) {
	t.Parallel()
	tried := map[string]int{}
	d := judge.Deps{Clients: tryFunc(func(r chat.Request) {
		n := 0
		for _, p := range r.Messages[len(r.Messages)-1].Parts {
			if p.Image != nil {
				n++
			}
		}
		tried[fmt.Sprintf("%d, log probabilities: %t", n, r.Logprobs)]++
	})}
	for _, name := range []string{"edit_score", "imgedit", "soft_tifa", "wise"} {
		build(t, d, name, `{}`)
	}
	assert.Equal(t, map[string]int{"2, log probabilities: false": 2, "1, log probabilities: true": 1, "1, log probabilities: false": 1}, tried)
}

func TestSoftTIFAIsTheMeanOfTheProbabilitiesOfTheRightAnswers(t *testing.T) {
	t.Parallel()
	atoms := `[["How many cows are in the image?", "four"], ["Are the cows plastic?", "Yes"], ["Is there a dog?", "No"], ["How many dogs?", "0"]]`
	answers := map[string][]token{
		"How many cows": {{"four", -0.5}, {" 4", -2}, {"Four ", -3}, {"three", -1.5}, {"14", -4}},
		"Are the cows":  {{"No", -0.2}, {" yes", -2}, {"Yesterday", -3}},
		"Is there":      {{"no", -0.1}, {"Yes", -3}},
		"How many dogs": {{"none", -0.1}, {"one", -2.5}}, // the right one is not among them
	}
	e := &engine{}
	e.answer = func(_ int, q asked) string {
		text, _ := q.parts(t)
		for begin, tokens := range answers {
			if strings.HasPrefix(text, begin) && strings.HasSuffix(text, " Answer in one word.") {
				return likely(tokens...).answer(0, q)
			}
		}
		return says("what?")
	}
	cows := math.Exp(-0.5) + math.Exp(-2) + math.Exp(-3)
	p := []float64{cows, math.Exp(-2), math.Exp(-0.1), 0}
	all := &rewards.Sample{ID: "s1", Media: video(1).Media, GroundTruth: json.RawMessage(atoms)}
	got, err := score(t, e, "soft_tifa", `{"mean": "arithmetic"}`, all)
	require.NoError(t, err)
	assert.InDelta(t, (p[0]+p[1]+p[2]+p[3])/4, got.Value, 1e-12)
	assert.InDelta(t, 0, got.Extra["gm"], 0)
	assert.InDelta(t, 0, got.Extra["lowest"], 0)
	assert.InDelta(t, got.Value, got.Extra["am"], 0)

	three := &rewards.Sample{ID: "s1", Media: video(1).Media, GroundTruth: quote("four cows"), ExtraInfo: json.RawMessage(`{"vqa_list": ` + strings.Replace(atoms, `, ["How many dogs?", "0"]`, "", 1) + `}`)}
	got, err = score(t, e, "soft_tifa", `{}`, three)
	require.NoError(t, err)
	assert.InDelta(t, math.Cbrt(p[0]*p[1]*p[2]), got.Value, 1e-12)
	assert.InDelta(t, p[1], got.Extra["lowest"], 1e-12)

	movie := &rewards.Sample{ID: "s1", Media: video(9).Media, GroundTruth: three.ExtraInfo}
	asked := len(e.requests())
	got, err = score(t, e, "soft_tifa", `{}`, movie)
	require.NoError(t, err)
	assert.InDelta(t, math.Cbrt(p[0]*p[1]*p[2]), got.Value, 1e-12, "the mean over the frames")
	assert.Len(t, e.requests(), asked+9, "three questions about each of three frames")
}

func TestWhatSoftTIFACannotReadIsAFailure(t *testing.T) {
	t.Parallel()
	ask := func(e *engine, truth string) error {
		_, err := score(t, e, "soft_tifa", `{"answer_retries": 0}`, &rewards.Sample{ID: "s1", Media: video(1).Media, GroundTruth: json.RawMessage(truth)})
		return err
	}
	yes := func() *engine { return likely(token{"Yes", -0.1}) }
	for truth, why := range map[string]string{
		``:                          "no questions",
		`null`:                      "no questions",
		`"four cows"`:               "no questions",
		`{"include": []}`:           "no questions",
		`[]`:                        "has 0 questions",
		`{"vqa_list": {}}`:          "is not a list of [question, answer] pairs",
		`[["Is it?", 1]]`:           "is not a list of [question, answer] pairs",
		`[["Is it?"]]`:              "ground_truth[0] is not a pair",
		`[["Is it?", "Yes", "No"]]`: "ground_truth[0] is not a pair",
		`[[" ", "Yes"]]`:            "ground_truth[0] is not a pair",
		`[["Is it?", "Yes"], ["What?", "a plastic cow"]]`: `the answer "a plastic cow" of ground_truth[1] is not Yes, No`,
		`[["How many?", "11"]]`:                           "not Yes, No or a number from 0 to 10",
		`[["How many?", "04"]]`:                           "not Yes, No or a number from 0 to 10",
		`[["How many?", ""]]`:                             "not Yes, No or a number from 0 to 10",
		"[" + strings.Repeat(`["Is it?", "Yes"],`, 64) + `["Is it?", "Yes"]]`: "has 65 questions, want 1 to 64",
		`[["` + strings.Repeat("x", 300<<10) + `", "Yes"]]`:                   "the question of sample",
	} {
		e := yes()
		err := ask(e, truth)
		require.ErrorIs(t, err, rewards.BadInput, truth[:min(len(truth), 80)])
		require.ErrorContains(t, err, why)
		assert.Empty(t, e.requests(), "nobody is asked")
	}
	err := ask(likely(token{"The", -0.1}, token{"Yesterday", -2}), `[["Is it?", "Yes"]]`)
	require.ErrorIs(t, err, rewards.InvalidScore)
	require.ErrorContains(t, err, "question 0: ")
	require.ErrorContains(t, err, "none of the 2 likeliest first tokens is an answer such as yes or no")
	require.ErrorIs(t, ask(yes(), `[["How many?", "four"]]`), rewards.InvalidScore, "it said yes")
	require.Error(t, ask(saying("Yes"), `[["Is it?", "Yes"]]`), "an engine without log probabilities")
}
