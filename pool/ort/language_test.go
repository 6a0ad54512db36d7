//go:build cgo

package ort_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// spoken is a prompt with what the reference makes of it: testdata/make_language.py,
// which knows no cache.
type spoken struct {
	IDs         []int64     `json:"input_ids"`
	Features    [][]float32 `json:"image_features"`
	Positions   [][]int64   `json:"position_ids"`
	Logits      [][]float32 `json:"logits"`
	LogSumExp   []float32   `json:"logsumexp"`
	Tokens      []int64     `json:"tokens"`
	Logprobs    []float32   `json:"logprobs"`
	TopIDs      [][]int64   `json:"top_ids"`
	TopLogprobs [][]float32 `json:"top_logprobs"`
}

const (
	imageToken = 13
	poison     = 14 // a token whose numbers overflow
	vocabulary = 16
	width      = 8
)

// near is how far numbers may be from the reference's, which has twice the digits.
const near = 2e-5

// golden are the reference's cases for positions of one axis and of three.
func golden(tb testing.TB) (flat, three []spoken) {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "language", "language.json"))
	require.NoError(tb, err)
	var all struct{ Flat, Three []spoken }
	require.NoError(tb, json.Unmarshal(data, &all))
	return all.Flat, all.Three
}

// language is one of the decoders of testdata/language.
func language(decoder string) infer.Model {
	at := func(name string) string { return filepath.Join("testdata", "language", name+".onnx") }
	return infer.Model{Name: decoder, Path: at(decoder), Embed: at("embed"), Device: "cpu"}
}

func int64s(name string, data []int64, shape ...int) infer.Tensor {
	return infer.Tensor{Name: name, DType: infer.I64, Shape: shape, I64: data}
}

// request is the item of a case.
func (s spoken) request(g infer.Generate) infer.Request {
	r := infer.Request{Name: "item", Inputs: []infer.Tensor{int64s("input_ids", s.IDs, len(s.IDs))}, Generate: &g}
	if s.Features != nil {
		t := infer.Floats("image_features", nil, len(s.Features), width)
		for _, row := range s.Features {
			t.F32 = append(t.F32, row...)
		}
		r.Inputs = append(r.Inputs, t)
	}
	if s.Positions != nil {
		t := int64s("position_ids", nil, 3, len(s.IDs))
		for _, row := range s.Positions {
			t.I64 = append(t.I64, row...)
		}
		r.Inputs = append(r.Inputs, t)
	}
	return r
}

// batchOf stacks items.
func batchOf(tb testing.TB, reqs ...infer.Request) infer.Batch {
	tb.Helper()
	for i := range reqs {
		reqs[i].Name = string(rune('a' + i))
	}
	b, err := infer.Stack(reqs)
	require.NoError(tb, err)
	return b
}

// say runs items and returns the outputs of each by name.
func say(tb testing.TB, d pool.Runner, m infer.Model, reqs ...infer.Request) []map[string]infer.Tensor {
	tb.Helper()
	out, err := d.Run(tb.Context(), m, batchOf(tb, reqs...))
	require.NoError(tb, err)
	return apart(tb, out, len(reqs))
}

func apart(tb testing.TB, out []infer.Tensor, n int) []map[string]infer.Tensor {
	tb.Helper()
	items := make([]map[string]infer.Tensor, n)
	for i := range items {
		items[i] = make(map[string]infer.Tensor)
		for _, t := range out {
			require.Equal(tb, n, t.Shape[0], t.Name)
			row, err := t.Row(i)
			require.NoError(tb, err)
			items[i][t.Name] = row
		}
	}
	return items
}

// requireScores compares the answer of a prompt's last positions.
func requireScores(tb testing.TB, want spoken, keep int, pick []int64, got map[string]infer.Tensor) {
	tb.Helper()
	requireScoresWithin(tb, near, want, keep, pick, got)
}

func requireScoresWithin(tb testing.TB, near float64, want spoken, keep int, pick []int64, got map[string]infer.Tensor) {
	tb.Helper()
	n := len(want.IDs)
	columns := vocabulary
	if pick != nil {
		columns = len(pick)
		require.Equal(tb, []int{keep}, got["logsumexp"].Shape)
		require.InDeltaSlice(tb, want.LogSumExp[n-keep:], got["logsumexp"].F32, near)
	} else {
		require.NotContains(tb, got, "logsumexp")
	}
	require.Equal(tb, []int{keep, columns}, got["logits"].Shape)
	for k := range keep {
		row := want.Logits[n-keep+k]
		if pick != nil {
			row = nil
			for _, id := range pick {
				row = append(row, want.Logits[n-keep+k][id])
			}
		}
		require.InDeltaSlice(tb, row, got["logits"].F32[k*columns:(k+1)*columns], near, "position %d", n-keep+k)
	}
}

// requireSaid compares what was generated, with three alternatives.
func requireSaid(tb testing.TB, want spoken, n, room int, stopped int64, got map[string]infer.Tensor) {
	tb.Helper()
	requireSaidWithin(tb, near, want, n, room, stopped, got)
}

func requireSaidWithin(tb testing.TB, near float64, want spoken, n, room int, stopped int64, got map[string]infer.Tensor) {
	tb.Helper()
	require.Equal(tb, []int64{stopped}, got["stopped"].I64)
	for i := range room {
		top, logprobs := got["top_ids"].I64[3*i:3*i+3], got["top_logprobs"].F32[3*i:3*i+3]
		if i >= n {
			require.Equal(tb, int64(-1), got["tokens"].I64[i])
			require.Zero(tb, got["logprobs"].F32[i])
			require.Equal(tb, []int64{-1, -1, -1}, top)
			require.Equal(tb, []float32{0, 0, 0}, logprobs)
			continue
		}
		require.Equal(tb, want.Tokens[i], got["tokens"].I64[i], "token %d", i)
		require.InDelta(tb, want.Logprobs[i], got["logprobs"].F32[i], near)
		require.Equal(tb, want.TopIDs[i], top)
		require.InDeltaSlice(tb, want.TopLogprobs[i], logprobs, near)
	}
}

func TestGoldenLogitsOfAPromptAreTheReferences(t *testing.T) {
	t.Parallel()
	flat, three := golden(t)
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		pick := []int64{3, 0, 15, 3}
		for _, decoder := range []string{"flat", "none", "branch", "keep", "keep1", "last", "three"} {
			cases := flat
			if decoder == "three" {
				cases = three
			}
			for _, c := range cases {
				for _, keep := range []int{1, 2, len(c.IDs)} {
					keep = min(keep, len(c.IDs))
					requireScores(t, c, keep, nil, say(t, d, language(decoder), c.request(infer.Generate{ImageToken: imageToken, Keep: keep}))[0])
					requireScores(t, c, keep, pick, say(t, d, language(decoder), c.request(infer.Generate{ImageToken: imageToken, Keep: keep, Pick: pick}))[0])
				}
			}
		}
		// Three at once: as each by itself.
		for _, decoder := range []string{"flat", "keep", "last"} {
			g := infer.Generate{ImageToken: imageToken, Keep: 3, Pick: pick}
			for i, got := range say(t, d, language(decoder), flat[2].request(g), flat[3].request(g), flat[4].request(g)) {
				requireScores(t, flat[2+i], 3, pick, got)
			}
		}
	})
}

func TestGoldenGreedyTokensAreTheReferences(t *testing.T) {
	t.Parallel()
	flat, three := golden(t)
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		g := infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3}
		for _, decoder := range []string{"flat", "none", "branch", "keep", "keep1", "last", "three"} {
			cases := flat
			if decoder == "three" {
				cases = three
			}
			for _, c := range cases {
				requireSaid(t, c, 12, 12, 0, say(t, d, language(decoder), c.request(g))[0])
			}
		}
		for i, got := range say(t, d, language("flat"), flat[2].request(g), flat[3].request(g), flat[4].request(g)) {
			requireSaid(t, flat[2+i], 12, 12, 0, got)
		}
		plain := say(t, d, language("flat"), flat[0].request(infer.Generate{MaxNew: 2}))[0]
		require.Len(t, plain, 3, "no alternatives were asked for")
		require.Equal(t, flat[0].Tokens[:2], plain["tokens"].I64)
	})
}

// What the cache gives is what a prompt that holds all that was said before gives.
func TestEveryStepOfTheCacheIsThePromptsOwn(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	d := openCPU(t, ort.Config{})
	c := flat[2]
	got := say(t, d, language("flat"), c.request(infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3}))[0]
	ids := c.IDs
	for i, id := range got["tokens"].I64 {
		whole := c
		whole.IDs = ids
		out := say(t, d, language("flat"), whole.request(infer.Generate{ImageToken: imageToken, Keep: 1}))[0]["logits"].F32
		sum := 0.0
		for _, v := range out {
			sum += math.Exp(float64(v))
		}
		for k := range 3 {
			at := got["top_ids"].I64[3*i+k]
			require.InDelta(t, float64(out[at])-math.Log(sum), got["top_logprobs"].F32[3*i+k], near)
		}
		require.Equal(t, id, got["top_ids"].I64[3*i])
		ids = append(slices.Clip(ids), id)
	}
}

func TestEveryItemEndsAtItsOwnStop(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		g := infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3, Stop: []int64{15, 5}}
		ends := []int{3, 4, 5} // where the reference says one of them
		for i, got := range say(t, d, language("flat"), flat[2].request(g), flat[3].request(g), flat[4].request(g)) {
			requireSaid(t, flat[2+i], ends[i], 12, 1, got)
		}
		// At once, in the last place, and behind it.
		g.Stop = flat[2].Tokens[:1]
		requireSaid(t, flat[2], 0, 12, 1, say(t, d, language("flat"), flat[2].request(g))[0])
		g.Stop = []int64{15}
		g.MaxNew = 4
		requireSaid(t, flat[2], 3, 4, 1, say(t, d, language("flat"), flat[2].request(g))[0])
		g.MaxNew = 3
		requireSaid(t, flat[2], 3, 3, 0, say(t, d, language("flat"), flat[2].request(g))[0])
	})
}

func TestALanguageModelSaysWhatItIs(t *testing.T) {
	t.Parallel()
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		for decoder, axes := range map[string]int{"flat": 1, "three": 3, "none": 0} {
			info, err := d.Load(t.Context(), language(decoder))
			require.NoError(t, err)
			require.Equal(t, "inputs_embeds", info.Inputs[0].Name)
			require.Equal(t, []int{-1, 2, -1, 4}, info.Inputs[len(info.Inputs)-1].Shape)
			require.Equal(t, "logits", info.Outputs[0].Name)
			require.Equal(t, map[string]string{
				infer.MetaVocabulary: "16", infer.MetaLayers: "2", infer.MetaWidth: "8", infer.MetaAxes: strconv.Itoa(axes), infer.MetaLongest: "32768",
			}, info.Metadata, "the vocabulary of %q is not in its file", "none")
		}
	})
}

func TestAnExportThatDoesNotFitIsRefusedByName(t *testing.T) {
	t.Parallel()
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		for decoder, says := range map[string][]string{
			"bad_bf16":    {`"past_key_values.0.key" is a tensor of BF16`, "export the model with F32 or F16"},
			"bad_types":   {"output [present.1.value F32[-1 2 -1 4]] does not fit input [past_key_values.1.value F16[-1 2 -1 4]]"},
			"bad_input":   {"input [encoder_hidden_states F32[-1 4 8]] is unknown and gets no value"},
			"bad_mask":    {`no input "attention_mask"`},
			"bad_embeds":  {`no input "inputs_embeds"`, "input [embeddings F32[-1 -1 8]] is unknown and gets no value"},
			"bad_past":    {`no cache, that is no inputs "past_key_values.*"`},
			"bad_present": {`no output "present.1.value" for its input "past_key_values.1.value"`},
			"bad_logits":  {`no output "logits"`},
			"bad_fixed":   {"input [past_key_values.0.key F32[-1 2 7 4]] must have one free axis besides the batch"},
			"bad_form":    {"a batch of 2 prompts of two tokens"},
		} {
			m := language(decoder)
			_, err := d.Load(t.Context(), m)
			require.ErrorIs(t, err, infer.ErrModel, decoder)
			require.ErrorContains(t, err, m.Path)
			for _, s := range says {
				require.ErrorContains(t, err, s)
			}
		}
		for embed, says := range map[string]string{
			"bad_width": `output [inputs_embeds F32[-1 -1 5]] has 5 numbers, but the decoder's "inputs_embeds" has 8`,
			"bad_ids":   `no input "input_ids"`,
			"missing":   "no such file",
			"flat":      "input [attention_mask I64[-1 -1]] is unknown and gets no value",
		} {
			m := language("flat")
			m.Embed = filepath.Join("testdata", "language", embed+".onnx")
			_, err := d.Load(t.Context(), m)
			require.ErrorIs(t, err, infer.ErrModel, embed)
			require.ErrorContains(t, err, says)
			require.ErrorContains(t, err, m.Embed)
		}
		require.Zero(t, d.opener.Stats()["cpu"].Crashes)
	})
}

func TestAPromptThatDoesNotFitIsRefusedByName(t *testing.T) {
	t.Parallel()
	flat, three := golden(t)
	for _, isolation := range isolations() {
		d := openCPU(t, ort.Config{Isolation: isolation, Language: ort.LanguageLimits{Positions: 100, Memory: 1 << 20}})
		keep := infer.Generate{ImageToken: imageToken, Keep: 1}
		change := func(f func(r *infer.Request)) infer.Request {
			r := flat[2].request(keep)
			f(&r)
			return r
		}
		for says, r := range map[string]infer.Request{
			`the prompt has 3 image tokens 13 and "image_features" has 2 rows`: change(func(r *infer.Request) { r.Inputs[1] = infer.Floats("image_features", make([]float32, 16), 2, 8) }),
			`but no "image_features"`:                change(func(r *infer.Request) { r.Inputs = r.Inputs[:1] }),
			"has rows of 7, and the model is 8 wide": change(func(r *infer.Request) { r.Inputs[1] = infer.Floats("image_features", make([]float32, 21), 3, 7) }),
			"has NaN at 23":                          change(func(r *infer.Request) { r.Inputs[1].F32[23] = float32(math.NaN()) }),
			"logits of token 16 were requested, but the vocabulary has 16 tokens": change(func(r *infer.Request) { r.Generate.Pick = []int64{16} }),
			"item 1 of 1":                            change(func(r *infer.Request) { r.Generate.Keep = 7 }),
			"longer than the limit of 100 positions": change(func(r *infer.Request) { r.Generate.MaxNew = 95 }),
			"has three axes":                         three[0].request(keep),
			"the limit is 100": change(func(r *infer.Request) {
				r.Inputs = append(r.Inputs, int64s("position_ids", []int64{0, 1, 2, 3, 4, 100}, 6))
			}),
			"generation settings":           change(func(r *infer.Request) { r.Generate = nil }),
			"must have no reduction":        change(func(r *infer.Request) { r.Reduce = infer.ArgMax }),
			`"token_type_ids"`:              change(func(r *infer.Request) { r.Inputs = append(r.Inputs, int64s("token_type_ids", make([]int64, 6), 6)) }),
			`output "hidden" was requested`: change(func(r *infer.Request) { r.Outputs = []string{"hidden"} }),
			"Gather":                        change(func(r *infer.Request) { r.Inputs[0].I64 = []int64{1, 13, 13, 99, 13, 6} }), // no such token
		} {
			_, err := d.Run(t.Context(), language("flat"), batchOf(t, r))
			require.ErrorIs(t, err, infer.ErrInput, says)
			require.ErrorContains(t, err, says)
			require.ErrorContains(t, err, "flat of a")
		}
		counting := flat[0].request(keep)
		counting.Inputs = append(counting.Inputs, int64s("position_ids", []int64{1, 2, 3, 4, 5}, 5))
		_, err := d.Run(t.Context(), language("none"), batchOf(t, counting))
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, "the model counts from 0 by itself")
		counting.Inputs[1].I64 = []int64{0, 1, 2, 3, 4}
		requireScores(t, flat[0], 1, nil, say(t, d, language("none"), counting)[0])
		// A plain model generates nothing.
		echo := rowsOf(1, 1)
		echo.Generate = &keep
		_, err = d.Run(t.Context(), model("echo"), echo)
		require.ErrorIs(t, err, infer.ErrInput)
		require.Zero(t, d.opener.Stats()["cpu"].Crashes)
	}
}
