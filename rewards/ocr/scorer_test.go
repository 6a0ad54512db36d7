package ocr_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// readerFunc is a reader that returns what a function says.
type readerFunc func(frame int) ([]ocr.Line, error)

func (f readerFunc) ReadText(_ context.Context, _ *rewards.Pixels, frame int) ([]ocr.Line, error) {
	return f(frame)
}

func fixed(lines []ocr.Line) ocr.TextReader {
	return readerFunc(func(int) ([]ocr.Line, error) { return lines, nil })
}

func says(text string) ocr.TextReader { return fixed([]ocr.Line{{Text: text, Confidence: 0.9}}) }

type blank struct{ frames int }

func (b blank) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	return &rewards.Pixels{Width: 2, Height: 2, Count: b.frames, RGB: make([]byte, 12*b.frames)}, nil
}

// picture is a sample with an image (one frame) or a video (more).
func picture(t *testing.T, frames int) *rewards.Sample {
	t.Helper()
	m := &rewards.Media{Kind: rewards.Image}
	if frames != 1 {
		m.Kind = rewards.Video
	}
	m.SetDecoder(blank{frames})
	return &rewards.Sample{ID: "s1", Media: []*rewards.Media{m}}
}

// only gives every scorer the one reader.
func only(r ocr.TextReader) ocr.Readers {
	return ocr.ReadersFunc(func(ocr.ReaderOptions) (ocr.TextReader, error) { return r, nil })
}

func newScorer(t *testing.T, options string, r ocr.TextReader) rewards.Scorer {
	t.Helper()
	s, err := ocr.Spec(only(r)).Build(json.RawMessage(options))
	require.NoError(t, err)
	return s
}

func quote(s string) json.RawMessage {
	js, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return js
}

func TestEveryEdgeCaseOfThePublishedFormulasHasItsValue(t *testing.T) {
	t.Parallel()
	const failed = -1
	for name, c := range map[string]struct {
		options, prompt string
		truth           json.RawMessage
		read            string
		want            float64
	}{
		"no quotes":                             {`{}`, "a poster", nil, "x", failed},
		"only the first of several spans":       {`{}`, `"one" and "two"`, nil, "two", 0},
		"curly quotes are no quotes":            {`{}`, `“one”`, nil, "one", failed},
		"single quotes are no quotes":           {`{}`, `'one'`, nil, "one", failed},
		"an open quote takes the rest":          {`{}`, `a wall, "one two`, nil, "one two", 1},
		"an empty target has no score":          {`{}`, `say ""`, nil, "", failed},
		"a target of spaces has no score":       {`{}`, `say "  "`, nil, "", failed},
		"the ground truth comes first":          {`{}`, `"one"`, json.RawMessage(`"sign \"two\""`), "two", 1},
		"a bare ground truth is not flow_grpo":  {`{}`, `a wall`, json.RawMessage(`"two"`), "two", failed},
		"a bare ground truth by option":         {`{"bare_ground_truth":true}`, `a wall`, json.RawMessage(`"two"`), "two", 1},
		"a bare ground truth falls back":        {`{}`, `say "one"`, json.RawMessage(`"two"`), "one", 1},
		"a ground truth that is no text":        {`{}`, `say "one"`, json.RawMessage(`{"a":1}`), "one", 1},
		"only ASCII spaces go":                  {`{}`, `"a b"`, nil, "a\tb", 0.5},
		"the whole text may be longer":          {`{}`, `"cat"`, nil, "the Cat sat", 1},
		"farther than the target is 0":          {`{}`, `"cat"`, nil, "completely different", 0},
		"runes are counted, not bytes":          {`{}`, `"日本語"`, nil, "日本", 1 - 1.0/3},
		"a final sigma is lower-cased right":    {`{}`, `"ΟΔΟΣ"`, nil, "οδος", 1},
		"a dotted capital I has two points":     {`{}`, `"İİ"`, nil, "", 0},
		"case counts where asked":               {`{"case_sensitive":true}`, `"Cat"`, nil, "cat", 1 - 1.0/3},
		"full-width stays apart":                {`{}`, `"A1"`, nil, "Ａ１", 0},
		"full-width folds where asked":          {`{"nfkc":true}`, `"A1"`, nil, "Ａ１", 1},
		"a short target in much text":           {`{}`, `"a"`, nil, "a lot of text", 1},
		"a short target where that is off":      {`{"min_len_for_substring":3}`, `"a"`, nil, "a lot of text", 0},
		"verl_omni takes the bare text":         {`{"preset":"verl_omni"}`, `"other"`, json.RawMessage(`"Hello World"`), "hello\tworld", 1},
		"verl_omni takes a quoted span":         {`{"preset":"verl_omni"}`, ``, json.RawMessage(`"a sign \"two\""`), "two", 1},
		"verl_omni keeps an inch mark":          {`{"preset":"verl_omni"}`, ``, json.RawMessage(`"12\" vinyl"`), `12" vinyl`, 1},
		"verl_omni removes U+001F":              {`{"preset":"verl_omni"}`, ``, json.RawMessage(`"ab"`), "a\x1fb", 1},
		"verl_omni empty and nothing read":      {`{"preset":"verl_omni"}`, ``, json.RawMessage(`""`), " ", 1},
		"verl_omni empty and something read":    {`{"preset":"verl_omni"}`, ``, json.RawMessage(`""`), "x", 0},
		"verl_omni without anything":            {`{"preset":"verl_omni"}`, `a wall`, nil, "x", failed},
		"verl_omni falls back to the prompt":    {`{"preset":"verl_omni"}`, `say "x"`, json.RawMessage(`7`), "x", 1},
		"a target beyond the bound":             {`{}`, `"` + strings.Repeat("é", 4097), nil, "x", failed},
		"an invalid text does not stop a score": {`{}`, `"ab"`, nil, "a\xff", 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sample := picture(t, 1)
			sample.Prompt, sample.GroundTruth = c.prompt, c.truth
			got, err := newScorer(t, c.options, says(c.read)).Score(t.Context(), sample)
			if c.want == failed {
				require.ErrorIs(t, err, rewards.BadInput)
				require.ErrorContains(t, err, `"s1"`)
				return
			}
			require.NoError(t, err)
			require.InDelta(t, c.want, got.Value, 1e-12)
		})
	}
}

func TestTheScoreCarriesItsDeclaredFieldsAndDetails(t *testing.T) {
	t.Parallel()
	lines := []ocr.Line{{Text: "CAT", Confidence: 0.9, Box: [4]int{1, 2, 3, 4}}, {Text: "noise", Confidence: 0}, {Text: "s", Confidence: 0.1}}
	sample := picture(t, 1)
	sample.Prompt = `"cat"`
	s := newScorer(t, `{}`, fixed(lines))
	got, err := s.Score(t.Context(), sample)
	require.NoError(t, err)
	require.InDelta(t, 1.0, got.Value, 0)
	require.Equal(t, map[string]any{"distance": 1.0, "target_len": int64(3)}, got.Extra)
	require.Equal(t, map[string]any{"target": "cat", "text": "CATs", "lines": lines}, got.Details)
	declared, ok := s.(rewards.ExtraFielder)
	require.True(t, ok)
	for _, f := range declared.ExtraFields() {
		require.Contains(t, got.Extra, f.Name)
	}
}

func TestTheFramesOfAVideoAreReadTogetherButNeverMoreThanEight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all atomic.Int64
		reader := readerFunc(func(i int) ([]ocr.Line, error) {
			time.Sleep(time.Second) // the bubble's time
			all.Add(1)
			return []ocr.Line{{Text: strconv.Itoa(i), Confidence: 1}}, nil
		})
		sample := picture(t, 40)
		sample.Prompt = `"3"`
		begun := time.Now()
		got, err := newScorer(t, `{"frame_interval":1}`, reader).Score(t.Context(), sample)
		require.NoError(t, err)
		require.EqualValues(t, 40, all.Load())
		require.Equal(t, 5*time.Second, time.Since(begun), "40 frames, eight a second")
		frames, ok := got.Details["frames"].([]ocr.Reading)
		require.True(t, ok)
		for i, f := range frames {
			require.Equal(t, strconv.Itoa(i), f.Text, "in the video's order, whichever was read first")
		}
	})
}

func TestAReaderThatPanicsFailsItsSample(t *testing.T) {
	t.Parallel()
	reader := readerFunc(func(i int) ([]ocr.Line, error) { panic("frame " + strconv.Itoa(i)) })
	for _, frames := range []int{1, 9} {
		sample := picture(t, frames)
		sample.Prompt = `"cat"`
		_, err := newScorer(t, `{}`, reader).Score(t.Context(), sample)
		require.ErrorIs(t, err, rewards.Panicked)
		require.ErrorContains(t, err, "scorer_test.go", "where it was")
	}
}

func TestAVideoIsTheMeanOfEveryFourthFrame(t *testing.T) {
	t.Parallel()
	var (
		mu     sync.Mutex
		frames []int
	)
	reader := readerFunc(func(i int) ([]ocr.Line, error) {
		mu.Lock()
		frames = append(frames, i)
		mu.Unlock()
		text := map[int]string{0: "cat", 4: "the cat", 8: ""}[i]
		return []ocr.Line{{Text: text, Confidence: 1}}, nil
	})
	sample := picture(t, 10)
	sample.Prompt = `"cat"`
	got, err := newScorer(t, `{}`, reader).Score(t.Context(), sample)
	require.NoError(t, err)
	require.ElementsMatch(t, []int{0, 4, 8}, frames)
	require.InDelta(t, 2.0/3, got.Value, 1e-12)
	require.InDelta(t, (0.0+3+3)/3, got.Extra["distance"], 1e-12)
	require.Len(t, got.Details["frames"], 3)

	got, err = newScorer(t, `{"preset":"flow_grpo_video"}`, reader).Score(t.Context(), sample)
	require.NoError(t, err)
	require.InDelta(t, 1.0, got.Value, 1e-12, "thecat is 3 off without the substring rule and left out like the empty frame")

	sample.Prompt = `"nothing of it"`
	got, err = newScorer(t, `{"video":"positive_mean","frame_interval":8}`, fixed(nil)).Score(t.Context(), sample)
	require.NoError(t, err)
	require.Zero(t, got.Value)
}

func TestAReaderThatFailsFailsTheSampleWithItsClass(t *testing.T) {
	t.Parallel()
	for _, class := range []rewards.Class{rewards.Crashed, rewards.Timeout, rewards.Unavailable} {
		sample := picture(t, 1)
		sample.Prompt = `"cat"`
		_, err := newScorer(t, `{}`, readerFunc(func(int) ([]ocr.Line, error) { return nil, class })).Score(t.Context(), sample)
		require.Equal(t, class, rewards.ClassOf(err))
	}
}

func TestASampleWithoutAPictureIsABadInput(t *testing.T) {
	t.Parallel()
	s := newScorer(t, ``, says("x"))
	_, err := s.Score(t.Context(), &rewards.Sample{ID: "s1", Prompt: `"x"`})
	require.ErrorIs(t, err, rewards.BadInput)
	sample := picture(t, 0)
	sample.Prompt = `"x"`
	_, err = s.Score(t.Context(), sample)
	require.ErrorIs(t, err, rewards.BadInput)
}

func TestAMegabyteOfTextIsScoredAtOnceAndCutInTheDetails(t *testing.T) {
	t.Parallel()
	sample := picture(t, 1)
	sample.GroundTruth = quote(`"` + strings.Repeat("ab", 2048) + `"`)
	// Quadratic work would be 2 MB × 4 KB and more; the bound is for a machine that is
	// busy with everything else.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := newScorer(t, ``, says(strings.Repeat("ba ", 700_000))).Score(ctx, sample)
	require.NoError(t, err)
	require.InDelta(t, 1.0, got.Value, 0, "contained")
	got, err = newScorer(t, `{"case_sensitive":true}`, says(strings.Repeat("BA ", 700_000))).Score(ctx, sample)
	require.NoError(t, err)
	require.Zero(t, got.Value)
	require.NoError(t, ctx.Err())
	require.Less(t, len(got.Details["text"].(string)), 5000)
}

func TestWrongOptionsAreNamed(t *testing.T) {
	t.Parallel()
	for options, want := range map[string]string{
		`{"preset":"easyocr"}`: "preset",
		`{"whitespace":"some","frame_interval":0,"video":"x","empty_target":"y","min_len_for_substring":0}`: "frame_interval: 0",
		`{"device":"cuda:01"}`: `device: "cuda:01"`, // another reader for the card of cuda:1
		`{"reader":"easyocr","profile":"p","mode":"m","device":"cuda:x"}`: `device: "cuda:x"`,
		`{"model":""}`:                   "model: is empty",
		`{"presets":"flow_grpo"}`:        "presets",
		`{"frame_interval":"four"}`:      "frame_interval",
		`[]`:                             "options",
		`{"preset":"verl_omni"} {"a":1}`: "more than one",
	} {
		_, err := ocr.Spec(only(says(""))).Build(json.RawMessage(options))
		require.ErrorContains(t, err, want, options)
	}
	_, err := ocr.New(nil, ocr.Options{})
	require.Error(t, err)
}

func TestAScorerAsksForTheReaderItsOptionsName(t *testing.T) {
	t.Parallel()
	var asked []ocr.ReaderOptions
	missing := errors.New("no such card")
	readers := ocr.ReadersFunc(func(o ocr.ReaderOptions) (ocr.TextReader, error) {
		asked = append(asked, o)
		if o.Device != "cpu" {
			return nil, missing
		}
		return says("x"), nil
	})
	_, err := ocr.Spec(readers).Build(nil)
	require.NoError(t, err)
	_, err = ocr.Spec(readers).Build(json.RawMessage(`{"reader":"ppocr","model":"ppocr-v6-small","mode":"parity","detect":false,"device":"cuda:1"}`))
	require.ErrorIs(t, err, missing)
	require.Equal(t, []ocr.ReaderOptions{
		{Reader: "auto", Model: "ppocr-v4-mobile", Profile: "rapidocr", Mode: "fast", Detect: true, Device: "cpu"},
		{Reader: "ppocr", Model: "ppocr-v6-small", Profile: "rapidocr", Mode: "parity", Device: "cuda:1"},
	}, asked)
	_, err = ocr.Spec(nil).Build(nil)
	require.ErrorContains(t, err, "no text reader")
}

func TestEveryOptionIsDocumentedUnderItsName(t *testing.T) {
	t.Parallel()
	o, err := ocr.Preset("")
	require.NoError(t, err)
	js, err := json.Marshal(o)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(js, &fields))
	spec := ocr.Spec(only(says("")))
	require.Len(t, spec.Options, len(fields))
	for _, d := range spec.Options {
		require.Contains(t, fields, d.Name)
	}
}

type warmReader struct {
	ocr.TextReader
	err error
}

func (w warmReader) Warm(context.Context) error { return w.err }

func TestWarmingTheScorerWarmsItsReader(t *testing.T) {
	t.Parallel()
	cold := errors.New("cold")
	o, err := ocr.Preset(ocr.FlowGRPO)
	require.NoError(t, err)
	s, err := ocr.New(warmReader{says(""), cold}, o)
	require.NoError(t, err)
	require.ErrorIs(t, s.Warm(t.Context()), cold)
	s, err = ocr.New(says(""), o)
	require.NoError(t, err)
	require.NoError(t, s.Warm(t.Context()))
}
