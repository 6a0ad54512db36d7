package wire_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"

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
		Errors: []rewards.TermError{{Class: rewards.Timeout, Message: "<slow>"}}, Substitute: &wire.Substitute{Policy: "zero"},
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
	for _, r := range results {
		got, err := wire.EncodeControl(r)
		require.NoError(t, err)
		assert.Equal(t, general(t, r), string(got))
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
	require.ErrorContains(t, err, "4097 step_scores, at most 4096")
	_, err = wire.EncodeControl(&wire.Result{ID: "a", Outcome: rewards.OutcomeExpired, StepScores: []float64{1}})
	require.ErrorContains(t, err, `step_scores belong to outcome scored and to no other, not to "expired"`)
}

func TestAnAckIsWrittenAsTheGeneralEncoderWritesIt(t *testing.T) {
	t.Parallel()
	got, err := wire.EncodeControl(&wire.Ack{IDs: awkwardTexts[:len(awkwardTexts)-1]})
	require.NoError(t, err)
	want := general(t, struct {
		Type string   `json:"type"`
		IDs  []string `json:"ids"`
	}{"ack", awkwardTexts[:len(awkwardTexts)-1]})
	assert.Equal(t, want, string(got))
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

func TestATicketKeepsEveryField(t *testing.T) {
	t.Parallel()
	full := wire.Ticket{
		ID: "ü\"", Run: "r", Epoch: 1 << 60, Step: -1, Reward: "ocr", Gateway: "gw", Attempt: 2, Avoid: []string{"w1", "w<2"}, Aside: true, To: "w\"3", Pool: "p-1",
		Claim: "wss://[::1]:8080/v1/claim", Token: "t.0<", Bytes: 1 << 40,
		Deadline: time.Date(2031, 2, 3, 4, 5, 6, 789, time.UTC), Expect: time.Second, Group: true,
	}
	for v, i := reflect.ValueOf(full), 0; i < v.NumField(); i++ {
		require.False(t, v.Field(i).IsZero(), "this test forgets %s", v.Type().Field(i).Name)
	}
	for _, ticket := range []wire.Ticket{full, {Deadline: full.Deadline}} {
		b, err := ticket.Encode()
		require.NoError(t, err)
		assert.Equal(t, general(t, ticket), string(b))
		back, err := wire.DecodeTicket(b)
		require.NoError(t, err)
		assert.Equal(t, ticket, back)
	}
}

func TestATicketOfALaterReleaseIsRead(t *testing.T) {
	t.Parallel()
	got, err := wire.DecodeTicket([]byte(`{"later":{"x":[1]},"id":"a","run":"r","gateway":"g","attempt":1,"bytes":2,"deadline":"2031-02-03T04:05:06Z"}`))
	require.NoError(t, err)
	assert.Equal(t, "a", got.ID)
}

func TestATicketThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `null`, `{}x`, `{"id":1}`, `{"id":"a","id":"b"}`, `{"attempt":"1"}`, `{"deadline":"tomorrow"}`, `{"avoid":[1]}`, `{"bytes":1.5}`} {
		_, err := wire.DecodeTicket([]byte(text))
		require.Error(t, err, text)
	}
	_, err := wire.Ticket{Deadline: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}.Encode()
	require.Error(t, err)
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

func BenchmarkTicket(b *testing.B) {
	t := wire.Ticket{ID: "flowgrpo/120/train/8f6c2f0e_0_17", Run: "flowgrpo", Epoch: 1 << 50, Step: 120, Gateway: "gw-1", Attempt: 1, Bytes: 786432, Deadline: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		text, err := t.Encode()
		if err == nil {
			_, err = wire.DecodeTicket(text)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
