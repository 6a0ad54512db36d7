package ocr_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// failed is the value of a sample that has none.
const failed = -1

// example is a worked example: what was asked for, what was read, and the value.
type example struct {
	options, prompt string
	truth           json.RawMessage
	read            string // lines, separated by |
	want            float64
}

func (e example) check(t *testing.T) {
	t.Helper()
	var lines []ocr.Line
	for text := range strings.SplitSeq(e.read, "|") {
		lines = append(lines, ocr.Line{Text: text, Confidence: 0.9})
	}
	sample := picture(t, 1)
	sample.Prompt, sample.GroundTruth = e.prompt, e.truth
	got, err := newScorer(t, e.options, fixed(lines)).Score(t.Context(), sample)
	if e.want == failed {
		require.ErrorIs(t, err, rewards.BadInput)
		return
	}
	require.NoError(t, err)
	require.InDelta(t, e.want, got.Value, 1e-12)
}

func TestDeepgensExamplesHaveTheirValues(t *testing.T) {
	t.Parallel()
	const deepgen = `{"preset":"deepgen"}`
	for name, e := range map[string]example{
		// "SALE" is a line: 0 of 4. "50% off today" is 50offtoday, 10 long; the run of the
		// lines 2 and 3 is 50offtodoy: 1 of 10. 1 − (0 + 1)/(4 + 10).
		"two spans, weighted by length": {deepgen, `a poster "SALE", below "50% off today"`, nil, "SALE|50% off|todoy", 1 - 1.0/14},
		// HELLO against hello: five substitutions of five.
		"case counts": {deepgen, `"HELLO"`, nil, "hello", 0},
		// Both are Cats.
		"punctuation and spaces do not": {deepgen, `"C a-t's!"`, nil, "C.at’s", 1},
		// good01 and go0dOl differ in o/0, 0/O and 1/l: 3. Folded they are goodol and goodOl
		// (O is upper case and stays): 1. 1 − 1/6.
		"confusions fold the smaller distance": {deepgen, `"good01"`, nil, "go0dOl", 1 - 1.0/6},
		// Vive and Wlwe differ by 3. Folded they are Vlwe and Wlwe: 1.
		"the table has lower case only": {deepgen, `"Vive"`, nil, "Wlwe", 1 - 1.0/4},
		// A line of its own: the other lines are not held against it.
		"a token among others":             {deepgen, `"cat"`, nil, "a very long line|cat|and another", 1},
		"three lines in a row":             {deepgen, `"one two three"`, nil, "zero|one|two|three|four", 1},
		"a line between counts against it": {deepgen, `"onetwo"`, nil, "one|x|two", 1 - 1.0/6}, // onextwo
		// onetwothreefour is 15 long. No run of three holds it; the whole has 4 more in front:
		// 4 of 15. The closest run is twothreefour, 3 short: 3 of 15.
		"four lines in a row":         {deepgen, `"one two three four"`, nil, "zero|one|two|three|four", 1 - 3.0/15},
		"four where four may be run":  {`{"preset":"deepgen","ngram_max":4}`, `"one two three four"`, nil, "zero|one|two|three|four", 1},
		"contained is not met":        {deepgen, `"cat"`, nil, "the cat sat", 0}, // thecatsat: 6, at most 3
		"contained is met by option":  {`{"preset":"deepgen","substring":true}`, `"cat"`, nil, "the cat sat", 1},
		"nothing read":                {deepgen, `"cat"`, nil, "", 0},
		"no quotes":                   {deepgen, `a poster`, nil, "poster", 0},
		"no quotes, by option":        {`{"preset":"deepgen","no_target":"fail"}`, `a poster`, nil, "poster", failed},
		"no prompt":                   {deepgen, ``, nil, "poster", failed},
		"a quote that is not closed":  {deepgen, `a wall, "one`, nil, "one", 0},
		"empty quotes pair up later":  {deepgen, `say "" and "x"`, nil, "and", 1}, // the span is ` and `
		"nothing is left of a target": {deepgen, `"日本語"`, nil, "日本語", 0},
		// 日本 has length 0 and no weight.
		"nothing is left of one of two": {deepgen, `"日本" and "cat"`, nil, "cat", 1},
		"emoji are punctuation":         {deepgen, `"hi 😀"`, nil, "h i", 1},
		"the ground truth comes first":  {deepgen, `"one"`, quote(`"two" "three"`), "two|three", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e.check(t)
		})
	}
}

func TestTheOtherPresetsExamplesHaveTheirValues(t *testing.T) {
	t.Parallel()
	const (
		cosmos      = `{"preset":"cosmos"}`
		unirl       = `{"preset":"unirl"}`
		flowFactory = `{"preset":"flow_factory"}`
	)
	for name, e := range map[string]example{
		"deepgen_old is flow_grpo": {`{"preset":"deepgen_old"}`, `"New York"`, nil, "new york city", 1},

		// newyork and newyrk differ by 1; "New York" is 8 long with its space: 1 − 1/8, where
		// flow_grpo has 1 − 1/7.
		"cosmos divides by the length with spaces": {cosmos, `"New York"`, nil, "new yrk", 1 - 1.0/8},
		// The distance is at most 7, the length without the space: 1 − 7/8.
		"cosmos has more than 0 for nothing": {cosmos, `"New York"`, nil, "", 1 - 7.0/8},
		"cosmos knows the substring rule":    {cosmos, `"New York"`, nil, "in new york", 1},
		"cosmos counts code points":          {cosmos, `"日本 語"`, nil, "日本", 1 - 1.0/4},
		"an empty target is met for cosmos":  {cosmos, `say ""`, nil, "x", 1},
		"a target of spaces is, too":         {cosmos, `say "  "`, nil, "x", 1},
		"İ is one, and in lower case two":    {cosmos, `"İab"`, nil, "", 1 - 4.0/3},
		"cosmos wants quotes":                {cosmos, `a poster`, nil, "x", failed},

		"unirl takes double quotes first":   {unirl, `it's 'one' and "two"`, nil, "two", 1},
		"unirl takes single quotes next":    {unirl, `a sign 'one two'`, nil, "One Two", 1},
		"unirl falls back to the prompt":    {unirl, `Hello`, nil, "hello there", 1},
		"an open quote is none for unirl":   {unirl, `say "hi`, nil, `SAY "HI`, 1}, // the whole prompt
		"apostrophes are quotes for unirl":  {unirl, `Tom's and Ann's`, nil, "sand ann", 1},
		"an empty target is met for unirl":  {unirl, `say " "`, nil, "x", 1},
		"empty quotes are none for unirl":   {unirl, `say ""`, nil, `say""`, 1}, // the whole prompt
		"no prompt has no value":            {unirl, ``, nil, "x", failed},
		"in a ground truth they are none":   {unirl, `say "x"`, quote(`Tom's and Ann's`), "x", 1},
		"unirl takes quotes of the truth":   {unirl, `say "x"`, quote(`"y"`), "y", 1},
		"a bare truth, where that is asked": {`{"preset":"unirl","bare_ground_truth":true}`, `say "x"`, quote(`Tom's`), "tom's", 1},

		"flow_factory takes the second part":      {flowFactory, `a "b" c "d"`, nil, "B", 1},
		"flow_factory takes an open quote's rest": {flowFactory, `a "b c`, nil, "bc", 1},
		"flow_factory falls back to the prompt":   {flowFactory, `Hello 'x'`, nil, "hello'x'", 1},
		"flow_factory divides by zero":            {flowFactory, `say ""`, nil, "x", failed},
		// helo against hello 😀!: hello😀! is 7 long, 3 are missing: 1 − 3/7.
		"an emoji is one character": {flowFactory, `"Hello 😀!"`, nil, "helo", 1 - 3.0/7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e.check(t)
		})
	}
}

func TestAnOptionOfOnePresetWorksInAnother(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]example{
		// a is 1 of 1, New York City 2 of 13: 1 − (1 + 2)/(1 + 13).
		"several spans, raw lengths":  {`{"target_rule":"every_quoted","denominator":"raw_target"}`, `"a" "New York City"`, nil, "newyorkct", 1 - 3.0/14},
		"folding the whole":           {`{"fold_confusions":true}`, `"view"`, nil, "wlew", 1},
		"folding and the other case":  {`{"fold_confusions":true}`, `"VIEW"`, nil, "wlew", 1}, // lower-cased first
		"punctuation":                 {`{"ignore_punct":true}`, `"it's"`, nil, "I.T-S", 1},
		"runs of lines":               {`{"candidates":"ngrams","substring":false}`, `"two"`, nil, "one|two", 1},
		"the prompt, if need be":      {`{"no_target":"prompt"}`, `poster`, nil, "poster", 1},
		"zero, if need be":            {`{"no_target":"zero"}`, `poster`, nil, "poster", 0},
		"an empty target has nothing": {`{"empty_target":"zero"}`, `""`, nil, "", 0},
		"the longest target rules":    {`{"target_rule":"every_quoted","min_len_for_substring":2}`, `"a" "cat"`, nil, "a cat", 1 - 1.0/4},
		"a composed full width A":     {`{"candidates":"ngrams","nfkc":true}`, `"A1"`, nil, "Ａ|１", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e.check(t)
		})
	}
}

// presets.jsonl holds prompts, lines and what the originals make of them, run on
// CPython 3.11 with these commits: deepgen_rl c4d5dc27, cosmos-rl 89f2e5b5, UniRL
// 1a7b501e, Flow-Factory a0b2bc5a. Null is an exception.
func TestPresetsGiveTheValuesOfTheirOriginals(t *testing.T) {
	t.Parallel()
	file, err := os.Open(filepath.Join("testdata", "presets.jsonl"))
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	rows := 0
	for sc := bufio.NewScanner(file); sc.Scan(); rows++ {
		var row struct {
			Prompt string
			Lines  []ocr.Line
			Values map[string]*float64
		}
		require.NoError(t, json.Unmarshal(sc.Bytes(), &row))
		require.Len(t, row.Values, 5)
		for preset, want := range row.Values {
			sample := picture(t, 1)
			sample.Prompt = row.Prompt
			got, err := newScorer(t, `{"preset":"`+preset+`"}`, fixed(row.Lines)).Score(t.Context(), sample)
			if want == nil {
				require.ErrorIs(t, err, rewards.BadInput, "%s: %s", preset, sc.Text())
				continue
			}
			require.NoError(t, err, "%s: %s", preset, sc.Text())
			require.InDelta(t, *want, got.Value, 1e-12, "%s: %s", preset, sc.Text())
		}
	}
	require.Equal(t, 150, rows)
}

func TestEveryPresetIsKnownByItsName(t *testing.T) {
	t.Parallel()
	for _, name := range ocr.Presets() {
		o, err := ocr.Preset(name)
		require.NoError(t, err)
		require.NoError(t, o.Validate())
		require.Equal(t, name, o.Preset)
	}
	old, err := ocr.Preset(ocr.DeepGenOld)
	require.NoError(t, err)
	plain, err := ocr.Preset("")
	require.NoError(t, err)
	old.Preset = ocr.FlowGRPO
	require.Equal(t, plain, old)
}

func TestLinesBelowTheConfidenceAreLeftOut(t *testing.T) {
	t.Parallel()
	lines := []ocr.Line{{Text: "New", Confidence: 0.5}, {Text: "junk", Confidence: 0.49}, {Text: "York", Confidence: 0.9}, {Text: "zero", Confidence: 0}}
	sample := picture(t, 1)
	sample.Prompt = `"NewYork"`
	for options, want := range map[string]string{`{"min_conf":0.5}`: "NewYork", `{"preset":"deepgen","min_conf":0.6}`: "York", `{}`: "NewjunkYork"} {
		got, err := newScorer(t, options, fixed(lines)).Score(t.Context(), sample)
		require.NoError(t, err)
		require.Equal(t, want, got.Details["text"])
		require.Equal(t, lines, got.Details["lines"], "what was left out can be seen")
	}
}

func TestDetailsSayWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	sample := picture(t, 1)
	sample.Prompt = `"SALE" and "today"`
	s := newScorer(t, `{"preset":"deepgen"}`, says("SALE"))
	got, err := s.Score(t.Context(), sample)
	require.NoError(t, err)
	require.Equal(t, []string{"SALE", "today"}, got.Details["targets"])
	require.Equal(t, map[string]any{"distance": 5.0, "target_len": int64(9)}, got.Extra)

	sample.Prompt = "a wall"
	got, err = s.Score(t.Context(), sample)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"targets": []string{}, "no_target": true}, got.Details, "a 0 for want of a target is told from one for a bad picture")
	require.Equal(t, map[string]any{"distance": 0.0, "target_len": int64(0)}, got.Extra)

	_, err = s.Score(t.Context(), &rewards.Sample{ID: "s1", Prompt: "a wall"})
	require.ErrorIs(t, err, rewards.BadInput, "a picture is wanted all the same")
}

func TestFlowFactoryReadsEveryFrame(t *testing.T) {
	t.Parallel()
	reader := readerFunc(func(i int) ([]ocr.Line, error) {
		return []ocr.Line{{Text: map[bool]string{true: "cat", false: ""}[i == 1], Confidence: 1}}, nil
	})
	sample := picture(t, 3)
	sample.Prompt = `"cat"`
	got, err := newScorer(t, `{"preset":"flow_factory"}`, reader).Score(t.Context(), sample)
	require.NoError(t, err)
	require.InDelta(t, 1.0/3, got.Value, 1e-12, "(0 + 1 + 0)/3")
}

func TestTooManyOrTooLongTargetsAreRefused(t *testing.T) {
	t.Parallel()
	for prompt, want := range map[string]string{
		strings.Repeat(`"a" `, 65):                              "at most 64",
		strings.Repeat(`"`+strings.Repeat("é", 70)+`" `, 60):    "has a wanted text of 4200 characters",
		"a wall without quotes " + strings.Repeat("long ", 900): "characters, want at most 4096",
	} {
		options := `{"preset":"deepgen"}`
		if !strings.Contains(prompt, `"`) {
			options = `{"preset":"unirl"}`
		}
		sample := picture(t, 1)
		sample.Prompt = prompt
		_, err := newScorer(t, options, says("x")).Score(t.Context(), sample)
		require.ErrorIs(t, err, rewards.BadInput)
		require.ErrorContains(t, err, want)
	}
}

// A text of 10,000 code points against the longest target, in lines of every
// length, so that candidates are many, or long.
func TestALongTextDoesNotTakeSeconds(t *testing.T) {
	t.Parallel()
	letters := []rune("abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	text := make([]rune, 10_000)
	for i := range text {
		text[i] = letters[(i*i+i/62)%len(letters)]
	}
	shorter := []ocr.Line{{Text: string(text[:3000]), Confidence: 1}} // near enough to be compared as a whole
	target := make([]rune, 4096)
	for i := range target {
		target[i] = letters[(i*7+i/13)%len(letters)]
	}
	for _, preset := range []string{ocr.FlowGRPO, ocr.DeepGen} {
		o, err := ocr.Preset(preset)
		require.NoError(t, err)
		compare := func(name string, targets []string, lines []ocr.Line) {
			began := time.Now()
			_, err = o.CompareLines(targets, lines)
			require.NoError(t, err)
			took := time.Since(began)
			t.Log(preset, name, len(targets), "targets", took)
			// 0.2 s at most by itself; the bound is for the race detector on a busy machine.
			require.Less(t, took, time.Minute, "%s, %s", preset, name)
		}
		compare("3,000 in a line", []string{string(target[:2048])}, shorter)
		for _, size := range []int{1, 40, 10_000} {
			var lines []ocr.Line
			for from := 0; from < len(text); from += size {
				lines = append(lines, ocr.Line{Text: string(text[from:min(from+size, len(text))]), Confidence: 1})
			}
			for _, targets := range [][]string{{string(target)}, strings.SplitAfterN(string(target), "a", 64)} {
				compare("lines of "+strconv.Itoa(size), targets, lines)
			}
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	lines := []ocr.Line{{Text: "GRAND", Confidence: 1}, {Text: "OPENlNG", Confidence: 1}, {Text: "50% 0ff", Confidence: 1}, {Text: "today", Confidence: 1}}
	for _, preset := range ocr.Presets() {
		o, err := ocr.Preset(preset)
		require.NoError(b, err)
		b.Run(preset, func(b *testing.B) {
			for b.Loop() {
				_, _ = o.CompareLines([]string{"GRAND OPENING"}, lines)
			}
		})
	}
}

func FuzzPresets(f *testing.F) {
	f.Add(`a "b c" and 'd'`, "b|c d", uint8(3))
	f.Add(`"日本" "İΣ`, "\xff|0", uint8(200))
	f.Add(`"İ"`, "", uint8(200))
	f.Fuzz(func(t *testing.T, prompt, read string, confidence uint8) {
		if len(prompt)+len(read) > 2000 {
			return
		}
		var lines []ocr.Line
		for text := range strings.SplitSeq(read, "|") {
			lines = append(lines, ocr.Line{Text: text, Confidence: float64(confidence) / 255})
		}
		for _, preset := range ocr.Presets() {
			sample := picture(t, 1)
			sample.Prompt = prompt
			got, err := newScorer(t, `{"preset":"`+preset+`"}`, fixed(lines)).Score(t.Context(), sample)
			if err != nil {
				require.ErrorIs(t, err, rewards.BadInput)
				continue
			}
			require.LessOrEqual(t, got.Value, 1.0, preset)
			require.True(t, got.Value >= 0 || preset == ocr.Cosmos, "%s: %v", preset, got.Value)
			distance, _ := got.Extra["distance"].(float64)
			length, _ := got.Extra["target_len"].(int64)
			require.True(t, distance >= 0 && distance <= float64(length), "%s: %v of %d", preset, distance, length)
		}
	})
}
