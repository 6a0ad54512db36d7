package wire_test

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// general is what encoding/json writes of a value.
func general(tb testing.TB, v any) string {
	tb.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	require.NoError(tb, enc.Encode(v))
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// awkward are texts and numbers that JSON has several forms of.
var (
	awkwardTexts   = []string{"plain", "a b", `"q"\`, "<&>", "tab\tnul\x00", "ü€😀", "\u2028", "bad \xff", "\x7f", ""}
	awkwardNumbers = []float64{0, math.Copysign(0, -1), 1, -2.5, 0.1, 1e-6, 9.9e-7, 1e-9, 1e20, 1e21, -1e300, 5e-324, math.MaxFloat64, 1 << 53}
)

func awkwardResult() *wire.Result {
	r := &wire.Result{
		Type: "result", ID: "a", Seq: math.MaxInt64, Outcome: rewards.Failed, ExtraInfo: map[string]any{"whole": int64(-3), "flag": true, "none": nil},
		Details: map[string]any{"list": []any{1, "<"}, "nested": map[string]any{"b": 1.5, "a": nil}}, TimingMS: map[string]float64{}, Worker: "w 1",
		Errors: []rewards.ComponentError{{Class: rewards.Timeout, Message: "<slow>"}}, Fallback: &wire.Fallback{Policy: "zero"},
		Group: &wire.GroupStats{UID: "u"}, Attempts: 2,
	}
	for _, s := range awkwardTexts {
		r.ExtraInfo["key "+s] = s
	}
	for i, v := range awkwardNumbers {
		r.TimingMS[string(rune('a'+i))] = v
		r.ExtraInfo[string(rune('a'+i))] = v
	}
	return r
}

func TestAResultIsWrittenAsTheGeneralEncoderWritesIt(t *testing.T) {
	t.Parallel()
	results := []*wire.Result{awkwardResult(), {Type: "result", ID: "a", Outcome: rewards.Rejected}}
	for _, v := range awkwardNumbers {
		results = append(results, &wire.Result{Type: "result", ID: "a", Outcome: rewards.Scored, RewardScore: &v, StepScores: []float64{v}})
	}
	results = append(results, &wire.Result{Type: "result", ID: "a", Outcome: rewards.Scored, RewardScore: new(1.5), StepScores: awkwardNumbers, Worker: "w"})
	for _, s := range awkwardTexts[:len(awkwardTexts)-1] {
		results = append(results, &wire.Result{Type: "result", ID: s, Outcome: rewards.Failed, Worker: s})
	}
	for _, s := range awkwardTexts {
		results = append(results, &wire.Result{Type: "result", ID: "a", Outcome: rewards.Failed, Errors: []rewards.ComponentError{
			{Component: s, Class: rewards.Class(s), Message: s, Blame: rewards.Blame(s), Permanent: true, Attempts: -1}, {Class: rewards.Internal}, {Attempts: 7},
		}})
	}
	for _, r := range results {
		got, err := wire.EncodeControl(r)
		require.NoError(t, err)
		assert.Equal(t, general(t, r), string(got))
		sameAsGeneral(t, got)
	}
}

func TestAResultWithoutAFiniteNumberIsRefused(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, r := range []*wire.Result{
			{ID: "a", Outcome: rewards.Scored, RewardScore: &v},
			{ID: "a", Outcome: rewards.Scored, RewardScore: new(0.5), StepScores: []float64{0, v}},
			{ID: "a", Outcome: rewards.Failed, ExtraInfo: map[string]any{"x": v}},
			{ID: "a", Outcome: rewards.Failed, Details: map[string]any{"x": []any{v}}},
			{ID: "a", Outcome: rewards.Failed, TimingMS: map[string]float64{"x": v}},
		} {
			_, err := wire.EncodeControl(r)
			require.ErrorContains(t, err, "result: json: unsupported value")
		}
	}
}

func TestStepScoresBelongToAScoreAndAreBounded(t *testing.T) {
	t.Parallel()
	r := &wire.Result{Type: "result", ID: "a", Outcome: rewards.Scored, RewardScore: new(0.5), Attempts: 1}
	for range rewards.MaxSteps {
		r.StepScores = append(r.StepScores, 0.25)
	}
	b, err := wire.EncodeControl(r)
	require.NoError(t, err)
	back, err := wire.DecodeControl(b)
	require.NoError(t, err)
	assert.Equal(t, r, back)
	r.StepScores = append(r.StepScores, 1)
	_, err = wire.EncodeControl(r)
	require.ErrorContains(t, err, "4097 step_scores, want at most 4096")
	_, err = wire.EncodeControl(&wire.Result{ID: "a", Outcome: rewards.OutcomeExpired, StepScores: []float64{1}})
	require.ErrorContains(t, err, `step_scores are for outcome scored only, not for "expired"`)
}

// sameAsGeneral reads a message twice: as it is, and behind a space, which the fast
// reader does not take.
func sameAsGeneral(t *testing.T, b []byte) {
	t.Helper()
	got, err := wire.DecodeControl(b)
	want, wantErr := wire.DecodeControl(append([]byte(" "), b...))
	if wantErr != nil {
		require.Error(t, err, "%s: the general reader says %v", b, wantErr)
		return
	}
	require.NoError(t, err, "%s", b)
	require.Equal(t, want, got, "%s", b)
}

func resultTexts(tb testing.TB) []string {
	tb.Helper()
	awkward, err := wire.EncodeControl(awkwardResult())
	require.NoError(tb, err)
	const head = `{"type":"result","id":"a","seq":1,"outcome":"scored","reward_score":0.5,`
	return []string{
		string(awkward),
		head + `"attempts":1}`,
		head + `"attempts":1} `,
		head + `"attempts":1}x`,
		head + `"attempts":-0,"worker":"\u0041\ud83d\ude00","reward_extra_info":{"a":1,"b":-1.5e3,"c":"x","d":null,"e":true,"f":false},"timing_ms":{"x":1}}`,
		head + `"attempts":1,"reward_extra_info":{}}`,
		head + `"attempts":1,"reward_extra_info":{"a":[1]}}`,
		head + `"attempts":1,"reward_extra_info":{"a":1,"a":2}}`,
		head + `"attempts":1,"reward_extra_info":null}`,
		head + `"attempts":1,"timing_ms":{"a":null}}`,
		head + `"attempts":1,"step_scores":[0.5, -1e3,0 ]}`, head + `"attempts":1,"step_scores":[]}`,
		head + `"attempts":1,"step_scores":[0.5,null]}`, head + `"attempts":1,"step_scores":null}`, head + `"attempts":1,"step_scores":["1"]}`,
		head + `"attempts":1,"step_scores":[1e400]}`, head + `"attempts":1,"step_scores":[1],"step_scores":[1]}`, head + `"attempts":1,"step_scores":[[1]]}`,
		`{"type":"result","id":"a","seq":1,"outcome":"failed","reward_score":null,"step_scores":[0.5],"attempts":1}`,
		head + `"attempts":1.5}`, head + `"attempts":1e400}`, head + `"attempts":1,"attempts":1}`, head + `"attempts":1,"Worker":"w"}`,
		head + `"attempts":1,"worker":null}`, head + `"worker":"w"}`, head + `"attempts":1,"worker":"` + "\xff" + `"}`,
		`{"type":"result","id":"a","seq":-0,"outcome":"failed","reward_score":null,"attempts":1}`,
		`{"type":"result","id":"a","seq":18446744073709551615,"outcome":"failed","reward_score":null,"attempts":1}`,
		`{"type":"result","id":"a","seq":1,"outcome":"failed","reward_score":0.5,"attempts":1}`,
		`{"type":"result","id":"a","seq":1,"outcome":"scored","reward_score":nul,"attempts":1}`,
		`{"type":"result","id":"","seq":1,"outcome":"failed","reward_score":null,"attempts":1}`,
		`{"type":"result","type":"result","id":"a","seq":1,"outcome":"failed","reward_score":null,"attempts":1}`,
		`{"type":"result",`, `{"type":"result"}`,
	}
}

func TestAResultIsReadAsTheGeneralReaderReadsIt(t *testing.T) {
	t.Parallel()
	for _, text := range resultTexts(t) {
		sameAsGeneral(t, []byte(text))
	}
}

func FuzzDecodeResult(f *testing.F) {
	for _, text := range resultTexts(f) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 0 && b[0] == '{' {
			sameAsGeneral(t, b)
		}
	})
}

func BenchmarkEncodeResult(b *testing.B) {
	r := wire.Result{
		ID: "flowgrpo/120/train/8f6c2f0e_0_17", Seq: 9, Outcome: rewards.Scored, RewardScore: new(0.5), Attempts: 1, Worker: "w1",
		ExtraInfo: map[string]any{"reward/ocr": 0.5, "rewardloop/valid": true}, TimingMS: map[string]float64{"queue": 1, "score": 20},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.EncodeControl(&r); err != nil {
			b.Fatal(err)
		}
	}
}
