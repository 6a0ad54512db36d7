package wire_test

import (
	"encoding/json"
	"hash/crc32"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// claimed returns a result with everything a worker may say.
func claimed() *wire.Result {
	score, value := 0.1+0.2, math.Copysign(0, -1)
	key := wire.AttemptKey{Gateway: "gw", Run: "run", Epoch: 1<<64 - 1, ID: "s-1", Attempt: 2}
	extra := map[string]any{"acc": 1.0, "n": int64(math.MaxInt64), "tiny": 5e-324, "big": 1e300, "zero": value, "ok": true, "text": "<é\u2028>", "none": nil}
	details := map[string]any{
		"lines": []any{map[string]any{"box": []any{1.0, int64(2), 2.5}, "text": "STOP"}, nil, []any{}}, "empty": map[string]any{}, "huge": json.Number("123456789012345678901234567890"),
	}
	partial := []rewards.ComponentResult{
		{Key: "ocr", Status: rewards.StatusOK, Value: score, Score: rewards.Score{Value: score, Steps: []float64{0, 1e-9}, Extra: extra, Details: details}, Attempts: 3, Took: 1234567},
		{Key: "vqa", Status: rewards.StatusFailed, Class: rewards.Timeout, Message: "took \"too\" long", Attempts: 1, Took: time.Minute},
		{Key: "skip", Status: rewards.StatusSkipped, Reason: "no target", Score: rewards.Score{Steps: []float64{}, Extra: map[string]any{}}},
		{Key: "place", Status: rewards.StatusWaiting},
	}
	return &wire.Result{
		ID: "s-1", Outcome: rewards.Scored, RewardScore: &score, StepScores: []float64{0.5, value}, ExtraInfo: extra, Details: details,
		Errors:   []rewards.ComponentError{{Component: "vqa", Class: rewards.Timeout, Message: "took too long", Attempts: 1}},
		TimingMS: map[string]float64{"claim": 0.25, "score": 17}, Worker: "host-1", Attempt: key, Partial: partial,
		Members: []*wire.Result{{ID: "s-2", Outcome: rewards.Failed, Attempt: key, ExtraInfo: map[string]any{}, Partial: []rewards.ComponentResult{}}},
		Pending: &rewards.Pending{Aggregation: rewards.WeightedSum, Have: []rewards.WeightedValue{{Key: "ocr", Weight: 1, Value: score}}, Want: []rewards.WeightedValue{{Key: "vqa", Weight: 2}}, Steps: []float64{0.25, -1e-9}, Column: "acc"},
		Values:  map[string]float64{"ocr": score},
	}
}

// returned is a sample that waits for a dependency, with what is finished of it.
func returned() *wire.Result {
	key := wire.AttemptKey{Gateway: "gw", Run: "run", Epoch: 7, ID: "s-1", Attempt: 1}
	return &wire.Result{
		ID: "s-1", Outcome: rewards.OutcomeCancelled, Worker: "host-1", Attempt: key, Partial: claimed().Partial, Waits: "judge", Always: true,
		Errors: []rewards.ComponentError{{Component: "vqa", Class: rewards.Unavailable, Message: "connection refused", Blame: rewards.BlameDependency, Attempts: 1}},
	}
}

func claimMessages() []any {
	mean := 0.125
	key := wire.AttemptKey{Gateway: "gw", Run: "run", Epoch: 7, ID: "\x00group\x00u", Attempt: 1}
	return []any{
		&wire.ClaimHello{Protocol: 1, Version: "1.2", Session: "ABC", Wanted: []uint64{3, 1<<64 - 1}, UpTo: 9},
		&wire.ClaimWelcome{Protocol: 1, Version: "1.3", Gateway: "gw"},
		&wire.ClaimWelcome{Protocol: 1, Gateway: "gw"},
		&wire.ClaimAsk{N: 5, Attempt: key, Token: "v1.1.x", Worker: "host-1", Group: true},
		&wire.ClaimPayload{N: 5, Frames: []wire.ClaimFrame{{Sum: wire.Checksum{Len: 786_990, CRC32C: 1<<32 - 1}}}},
		&wire.ClaimPayload{N: 5, Group: &wire.Group{UID: "u", Size: 4, LastMeanStd: &mean}, Frames: []wire.ClaimFrame{
			{Sum: wire.Checksum{Len: 10, CRC32C: 1}, Partial: claimed().Partial}, {Sum: wire.Checksum{Len: 11, CRC32C: 2}},
		}},
		&wire.ClaimConfirm{N: []uint64{5, 6}},
		&wire.ClaimDrop{N: []uint64{5}},
		&wire.ClaimResult{N: 6, Token: "v1.1.x", Result: claimed()},
		&wire.ClaimResult{N: 7, Token: "v1.1.x", Result: returned()},
		&wire.ClaimPayload{N: 8, Frames: []wire.ClaimFrame{{Sum: wire.Checksum{Len: 786_990, CRC32C: 7}, Partial: returned().Partial}}},
		&wire.ClaimResult{N: 6, Token: "v1.1.x", Result: &wire.Result{ID: "a", Outcome: rewards.Failed, Worker: "w", Attempt: wire.AttemptKey{ID: "a", Attempt: 1}}},
		&wire.ClaimOK{N: 6},
		&wire.ClaimRefused{N: 6, Reason: wire.RefusedToken, Message: "not signed by this gateway"},
		&wire.ClaimBye{},
	}
}

func TestEveryMessageOfAClaimComesOutAsItWentIn(t *testing.T) {
	t.Parallel()
	for _, m := range claimMessages() {
		b, err := wire.EncodeClaim(m)
		require.NoError(t, err)
		assert.True(t, json.Valid(b))
		got, err := wire.DecodeClaim(b)
		require.NoError(t, err, "%s", b)
		require.Equal(t, m, got, "%s", b)
		again, err := wire.EncodeClaim(got)
		require.NoError(t, err)
		require.Equal(t, string(b), string(again))
	}
}

// The messages as they are written: a release that changes one must still read the others'.
func TestGoldenClaimMessages(t *testing.T) {
	t.Parallel()
	const file = "testdata/claim.jsonl"
	var lines []string
	for _, m := range claimMessages() {
		b, err := wire.EncodeClaim(m)
		require.NoError(t, err)
		lines = append(lines, string(b))
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.Split(strings.TrimSpace(string(want)), "\n"), lines)
}

func TestWhatALaterReleaseSaysBesideIsPassedOver(t *testing.T) {
	t.Parallel()
	got, err := wire.DecodeClaim([]byte(`{"type":"welcome","new":{"a":[null,1e999]},"gateway":"g","protocol":1}`))
	require.NoError(t, err)
	require.Equal(t, &wire.ClaimWelcome{Protocol: 1, Gateway: "g"}, got)
	_, err = wire.DecodeClaim([]byte(`{"type":"hurry"}`))
	require.ErrorIs(t, err, wire.ErrUnknownType)
	_, err = wire.EncodeClaim(&wire.Hello{Run: "r"})
	require.ErrorIs(t, err, wire.ErrUnknownType, "a message of the other protocol")
}

func TestMessagesOfAClaimThatBreakTheRulesAreRefused(t *testing.T) {
	t.Parallel()
	result := func(fields string) string {
		return `{"type":"result","n":1,"token":"t","result":{"id":"a","worker":"w","attempt":{"id":"a","attempt":1},` + fields + `}}`
	}
	for what, text := range map[string]string{
		"nothing": "", "no object": "[]", "no type": "{}", "cut off": `{"type":"confirm","n":[1`, "wrong type": `{"type":"confirm","n":"x"}`,
		"negative number": `{"type":"drop","n":[-1]}`, "no frames": `{"type":"payload","n":1,"frames":[]}`, "no number": `{"type":"payload","frames":[{"bytes":20,"crc32c":1}]}`,
		"two frames of a sample": `{"type":"payload","n":1,"frames":[{"bytes":20,"crc32c":1},{"bytes":20,"crc32c":1}]}`,
		"a frame of nothing":     `{"type":"payload","n":1,"frames":[{"bytes":0,"crc32c":1}]}`, "a negative one": `{"type":"payload","n":1,"frames":[{"bytes":-5,"crc32c":1}]}`,
		"a refusal without reason":        `{"type":"refused","n":1}`,
		"a result without outcome scored": result(`"outcome":"failed","reward_score":1`),
		"a scored one without score":      result(`"outcome":"scored"`),
		"members of members":              result(`"outcome":"failed","members":[{"id":"b","outcome":"failed","members":[]}]`),
		"a score that waits":              result(`"outcome":"scored","reward_score":1,"waits":"judge"`),
		"a dependency of 2 KiB":           result(`"outcome":"cancelled","waits":"` + strings.Repeat("j", 2048) + `"`),
		"no member":                       result(`"outcome":"failed","members":[null]`),
		"too long":                        `{"type":"bye","x":"` + strings.Repeat("x", wire.MaxServerControlBytes) + `"}`,
		"no session":                      `{"type":"hello","protocol":1,"session":""}`, "a name of 2 KiB": `{"type":"welcome","protocol":1,"gateway":"` + strings.Repeat("g", 2048) + `"}`,
		"attempt 0": `{"type":"claim","n":1,"token":"t","worker":"w","attempt":{"id":"a","attempt":0}}`, "claim 0": `{"type":"claim","n":0,"token":"t","worker":"w","attempt":{"id":"a","attempt":1}}`,
		"a token of 300 bytes":        `{"type":"claim","n":1,"token":"` + strings.Repeat("t", 300) + `","worker":"w","attempt":{"id":"a","attempt":1}}`,
		"a result without an id":      `{"type":"result","n":1,"token":"t","result":{"worker":"w","outcome":"failed","attempt":{"id":"a","attempt":1}}}`,
		"a result of another attempt": `{"type":"result","n":1,"token":"t","result":{"id":"b","worker":"w","outcome":"failed","attempt":{"id":"a","attempt":1}}}`,
		"no result":                   `{"type":"result","n":1,"token":"t"}`,
		"details that are a list":     result(`"outcome":"failed","details":[1]`),
		"5,000 step scores":           result(`"outcome":"scored","reward_score":1,"step_scores":[1` + strings.Repeat(",1", 4999) + `]`),
		"5,000 pending steps":         result(`"outcome":"scored","pending":{"aggregation":"weighted_sum","have":[],"want":[],"steps":[1` + strings.Repeat(",1", 4999) + `]}`),
		"infinite":                    result(`"outcome":"scored","reward_score":1e999`),
	} {
		_, err := wire.DecodeClaim([]byte(text))
		var refused *wire.FrameError
		require.ErrorAs(t, err, &refused, what)
	}
}

func TestAResultIsHandedOverWhateverItHolds(t *testing.T) {
	t.Parallel()
	decode := func(r *wire.Result) *wire.Result {
		b, err := wire.EncodeClaimResult(9, "token", r)
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), wire.MaxClaimResultBytes)
		m, err := wire.DecodeClaim(b)
		require.NoError(t, err)
		return m.(*wire.ClaimResult).Result
	}
	for what, detail := range map[string]any{"too long": strings.Repeat("x", wire.MaxClaimResultBytes), "not finite": math.NaN(), "no JSON": make(chan int)} {
		r := claimed()
		r.Details = map[string]any{"x": detail}
		r.Members[0].Details = r.Details
		r.Partial[0].Score.Details = r.Details
		got := decode(r)
		require.Contains(t, got.Details["error"], "left out on the way", what)
		require.Equal(t, []any{r.RewardScore, r.ExtraInfo, r.Values, r.Partial[1:]}, []any{got.RewardScore, got.ExtraInfo, got.Values, got.Partial[1:]})
		require.Nil(t, got.Partial[0].Score.Details)
		require.NotNil(t, r.Partial[0].Score.Details, "the worker's own is as it was")
	}
	r := claimed()
	r.ExtraInfo["acc"] = math.Inf(1)
	got := decode(r)
	require.Equal(t, rewards.Failed, got.Outcome)
	require.Nil(t, got.RewardScore)
	require.Equal(t, rewards.Internal, got.Errors[0].Class)
	require.Equal(t, []any{r.ID, r.Worker, r.Attempt}, []any{got.ID, got.Worker, got.Attempt})
}

func FuzzDecodeClaim(f *testing.F) {
	for _, m := range claimMessages() {
		b, err := wire.EncodeClaim(m)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, b, func() {
			m, err := wire.DecodeClaim(b)
			if err != nil {
				var refused *wire.FrameError
				require.ErrorAs(t, err, &refused)
				return
			}
			again, err := wire.EncodeClaim(m)
			require.NoError(t, err)
			got, err := wire.DecodeClaim(again)
			require.NoError(t, err, "%s", again)
			once, err := wire.EncodeClaim(got)
			require.NoError(t, err)
			require.Equal(t, string(again), string(once))
		})
	})
}

func crcOf(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
