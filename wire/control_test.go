package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

func controls() map[string]any {
	return map[string]any{
		`{"type":"hello","run":"r"}`: &wire.Hello{Run: "r"},
		`{"type":"hello","run":"r","client":"c","lane":2,"reward":"ocr","epoch":3,"on_sample_failure":"value:-1","resume":{"session":"s","confirmed":7}}`: &wire.Hello{
			Run: "r", Client: "c", Lane: 2, Reward: "ocr", Epoch: 3, OnSampleFailure: "value:-1", Resume: &wire.Resume{Session: "s", Confirmed: 7},
		},
		`{"type":"step","split":"val","step":3,"expected":512,"total":true}`: &wire.Step{Split: rewards.Val, Step: 3, Expected: 512, Total: true},
		`{"type":"step","step":3,"expected":2,"ids":["a","b"],"deadline_ms":1500,"on_deadline":"mask"}`: &wire.Step{
			Step: 3, Expected: 2, IDs: []string{"a", "b"}, DeadlineMS: 1500, OnDeadline: wire.DeadlineMask,
		},
		`{"type":"fetch","req":1,"split":"val","step":3,"chunk":2,"groups":16,"order":"index","wait_ms":500}`: &wire.Fetch{
			Req: 1, Split: rewards.Val, Step: 3, Chunk: 2, Groups: 16, Order: wire.ByIndex, WaitMS: 500,
		},
		`{"type":"rewards","req":1,"split":"train","step":3,"state":"open","chunk":0,"ready":true,"done":false,"groups":1,"expected":4,"arrived":2,"scored":1,"failed":1,` +
			`"pending":0,"missing":2,"ids":["a","b"],"indices":[0,null],"uids":["u","u"],"rm_scores":[0.5,null],"rm_valid":[true,false],"outcomes":["scored","failed"],` +
			`"components":{"reward/ocr":[0.5,null]},"without":[{"id":"c","stage":"not arrived"}]}`: &wire.Rewards{
			Req: 1, Split: rewards.Train, Step: 3, State: wire.StepOpen, Ready: true, Groups: 1, Expected: 4, Arrived: 2, Scored: 1, Failed: 1, Missing: 2,
			IDs: []string{"a", "b"}, Indices: []*int64{new(int64(0)), nil}, UIDs: []string{"u", "u"}, Scores: []*float64{new(0.5), nil}, Valid: []bool{true, false},
			Outcomes:   []rewards.Outcome{rewards.Scored, rewards.Failed},
			Components: map[string][]*float64{"reward/ocr": {new(0.5), nil}}, Without: []wire.Missing{{ID: "c", Stage: "not arrived"}},
		},
		`{"type":"error","code":"expired","message":"m","req":4}`: &wire.Error{Code: rewards.Expired, Message: "m", Req: 4},
		`{"type":"end_of_step","step":3}`:                         &wire.EndOfStep{Step: 3},
		`{"type":"cancel","ids":["a","b <&>"]}`:                   &wire.Cancel{IDs: []string{"a", "b <&>"}},
		`{"type":"confirm","seq":9}`:                              &wire.Confirm{Seq: 9},
		`{"type":"welcome","session":"s","epoch":1,"resumed":false,"protocol":"rewardloop.v1","credit":{"samples":8,"bytes":1024},` +
			`"limits":{"message_bytes":1,"header_bytes":2,"control_bytes":3,"in_flight":4},"rewards":[{"name":"default","extra":[{"name":"acc","kind":"number"}]}]}`: &wire.Welcome{
			Session: "s", Epoch: 1, Protocol: wire.Protocol, Credit: wire.CreditTotals{Samples: 8, Bytes: 1024},
			Limits:  wire.LimitsInfo{MessageBytes: 1, HeaderBytes: 2, ControlBytes: 3, InFlight: 4},
			Rewards: []wire.RewardInfo{{Name: "default", Extra: []wire.ExtraKey{{Name: "acc", Kind: rewards.Number}}}},
		},
		`{"type":"want","samples":9,"bytes":2048}`:   &wire.Want{Samples: 9, Bytes: 2048},
		`{"type":"yield","samples":9,"bytes":2048}`:  &wire.Yield{Samples: 9, Bytes: 2048},
		`{"type":"reclaim"}`:                         &wire.Reclaim{},
		`{"type":"credit","samples":9,"bytes":2048}`: &wire.Credit{Samples: 9, Bytes: 2048},
		`{"type":"ack","ids":["a"]}`:                 &wire.Ack{IDs: []string{"a"}},
		`{"type":"result","id":"a","seq":1,"outcome":"scored","reward_score":0.5,"reward_extra_info":{"acc":0.5,"gone":null,"ok":true,"text":"t"},` +
			`"timing_ms":{"score":1.5},"worker":"w","config":"1a2b3c4d","attempts":1,"group":{"uid":"u","size":2,"scored":2,"failed":0,"mean":0.5,"std":null,"zero_std":true,"missing":0}}`: &wire.Result{
			Type: "result", ID: "a", Seq: 1, Outcome: rewards.Scored, RewardScore: new(0.5), ExtraInfo: map[string]any{"acc": 0.5, "gone": nil, "ok": true, "text": "t"},
			TimingMS: map[string]float64{"score": 1.5}, Worker: "w", Config: "1a2b3c4d", Attempts: 1, Group: &wire.GroupStats{UID: "u", Size: 2, Scored: 2, Mean: new(0.5), ZeroStd: true},
		},
		`{"type":"result","id":"a","seq":2,"outcome":"failed","reward_score":null,"errors":[{"component":"ocr","class":"timeout","message":"m"}],"fallback":{"policy":"zero","value":0},"attempts":2}`: &wire.Result{
			Type: "result", ID: "a", Seq: 2, Outcome: rewards.Failed, Errors: []rewards.ComponentError{{Component: "ocr", Class: rewards.Timeout, Message: "m"}},
			Fallback: &wire.Fallback{Policy: "zero", Value: new(0.0)}, Attempts: 2,
		},
		`{"type":"error","code":"malformed","message":"m","id":"a"}`: &wire.Error{Code: rewards.Malformed, Message: "m", ID: "a"},
		`{"type":"draining"}`: &wire.Draining{},
	}
}

func TestControlMessagesKeepTheirForm(t *testing.T) {
	t.Parallel()
	for text, message := range controls() {
		b, err := wire.EncodeControl(message)
		require.NoError(t, err, text)
		assert.Equal(t, text, string(b))
		back, err := wire.DecodeControl([]byte(text))
		require.NoError(t, err, text)
		assert.Equal(t, message, back)
	}
}

func TestEncodeControlLeavesTheResultAlone(t *testing.T) {
	t.Parallel()
	r := wire.Result{ID: "a", Outcome: rewards.Failed}
	b, err := wire.EncodeControl(&r)
	require.NoError(t, err)
	assert.Contains(t, string(b), `{"type":"result"`)
	assert.Empty(t, r.Type, "a result is shared between goroutines and must not be written to")
}

func TestEveryBadControlMessageIsRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want error
	}{
		{``, wire.ErrJSON},
		{`[]`, wire.ErrJSON},
		{`{"type":"confirm","seq":1} x`, wire.ErrJSON},
		{`{"run":"r"}`, wire.ErrMissing},
		{`{"type":7}`, wire.ErrJSON},
		{`{"type":"Hello","run":"r"}`, wire.ErrUnknownType},
		{`{"type":"shutdown"}`, wire.ErrUnknownType},
		{`{"type":"hello","run":"r","type":"hello"}`, wire.ErrDuplicate},
		{`{"type":"hello","run":"r","Run":"q"}`, wire.ErrUnknownName},
		{`{"type":"hello","RUN":"r"}`, wire.ErrUnknownName},
		{`{"type":"hello","run":"r","token":"x"}`, wire.ErrUnknownName},
		{`{"type":"hello"}`, wire.ErrMissing},
		{`{"type":"hello","run":""}`, wire.ErrValue},
		{`{"type":"hello","run":null}`, wire.ErrValue},
		{`{"type":"hello","run":7}`, wire.ErrValue},
		{`{"type":"hello","run":"r","lane":-1}`, wire.ErrValue},
		{`{"type":"hello","run":"r","lane":1.5}`, wire.ErrValue},
		{`{"type":"hello","run":"r","epoch":9223372036854775808}`, wire.ErrNumber},
		{`{"type":"hello","run":"r","on_sample_failure":"mean"}`, wire.ErrValue},
		{`{"type":"hello","run":"r","resume":{"session":"s"}}`, wire.ErrMissing},
		{`{"type":"hello","run":"r","resume":{"session":"s","confirmed":-1}}`, wire.ErrValue},
		{`{"type":"hello","run":"r","resume":{"session":"s","confirmed":1,"x":1}}`, wire.ErrUnknownName},
		{"{\"type\":\"hello\",\"run\":\"\xff\"}", wire.ErrUTF8},
		{`{"type":"hello","run":"\udc00"}`, wire.ErrUTF8},
		{`{"type":"hello","run":"` + strings.Repeat("r", 513) + `"}`, wire.ErrValue},
		{`{"type":"hello","run":"` + strings.Repeat("r", 64<<10) + `"}`, rewards.TooLarge},
		{`{"type":"step","step":1}`, wire.ErrMissing},
		{`{"type":"step","step":1,"expected":-1}`, wire.ErrValue},
		{`{"type":"step","step":1,"expected":1,"split":"test"}`, wire.ErrValue},
		{`{"type":"step","step":1,"expected":1,"deadline_ms":-1}`, wire.ErrValue},
		{`{"type":"step","step":1,"expected":1,"on_deadline":"zero"}`, wire.ErrValue},
		{`{"type":"step","step":1,"expected":1,"ids":[""]}`, wire.ErrValue},
		{`{"type":"fetch","step":1,"chunk":0}`, wire.ErrMissing},
		{`{"type":"fetch","req":0,"step":1,"chunk":0}`, wire.ErrValue},
		{`{"type":"fetch","req":1,"step":1,"chunk":-1}`, wire.ErrValue},
		{`{"type":"fetch","req":1,"step":1,"chunk":0,"order":"random"}`, wire.ErrValue},
		{`{"type":"fetch","req":1,"step":1,"chunk":0,"wait_ms":60001}`, wire.ErrValue},
		{`{"type":"end_of_step"}`, wire.ErrMissing},
		{`{"type":"confirm"}`, wire.ErrMissing},
		{`{"type":"confirm","seq":-1}`, wire.ErrValue},
		{`{"type":"cancel","ids":[]}`, wire.ErrValue},
		{`{"type":"cancel","ids":[""]}`, wire.ErrValue},
		{`{"type":"cancel","ids":[null]}`, wire.ErrValue},
		{`{"type":"cancel","ids":"a"}`, wire.ErrJSON},
		{`{"type":"cancel","ids":` + strings.Repeat("[", 1000) + `}`, wire.ErrNesting},
		{`{"type":"credit","samples":-1,"bytes":0}`, wire.ErrValue},
		{`{"type":"want","samples":0,"bytes":-1}`, wire.ErrValue},
		{`{"type":"yield","samples":-1,"bytes":0}`, wire.ErrValue},
		{`{"type":"yield","samples":1}`, wire.ErrMissing},
		{`{"type":"result","id":"a","seq":1,"outcome":"scored","reward_score":null,"attempts":1}`, wire.ErrValue},
		{`{"type":"result","id":"a","seq":1,"outcome":"failed","reward_score":0,"attempts":1}`, wire.ErrValue},
		{`{"type":"result","id":"a","seq":1,"outcome":"failed","attempts":1}`, wire.ErrMissing},
		{`{"type":"draining","x":1}`, wire.ErrUnknownName},
		{`{"type":"result","id":"` + strings.Repeat("x", wire.MaxServerControlBytes) + `"}`, rewards.TooLarge},
	} {
		_, err := wire.DecodeControl([]byte(c.text))
		require.ErrorIs(t, err, c.want, c.text)
		var refused *wire.FrameError
		require.ErrorAs(t, err, &refused)
		require.Less(t, len(err.Error()), 1000)
	}
}

func TestEncodeControlRefusesWhatDecodeWould(t *testing.T) {
	t.Parallel()
	for _, bad := range []any{nil, "text", wire.Hello{Run: "r"}, &wire.Hello{}, &wire.Cancel{}, &wire.Result{ID: "a", Outcome: rewards.Scored}} {
		_, err := wire.EncodeControl(bad)
		require.Error(t, err, "%#v", bad)
	}
	_, err := wire.EncodeControl(&wire.Cancel{IDs: strings.Split(strings.Repeat("0123456789,", 10_000)+"x", ",")})
	require.ErrorIs(t, err, rewards.TooLarge, "a client splits a long list of ids")
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
