//go:build cgo

package ort_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// forms are the decoders that have twins in half precision: <form>_kv16, a cache of F16
// around arithmetic in F32, and <form>_fp16, all of F16.
func forms() []string { return []string{"flat", "none", "branch", "keep", "keep1", "last", "three"} }

// inHalf are the decoders with caches of F16: every form with embeddings and logits of F32,
// every form with those of F16, and one with arithmetic of F16 between F32.
func inHalf() (all []infer.Model, three []bool) {
	for _, form := range forms() {
		whole := language(form + "_fp16")
		whole.Embed = language("embed_fp16").Path
		all = append(all, language(form+"_kv16"), whole)
		three = append(three, form == "three", form == "three")
	}
	return append(all, language("mixed")), append(three, false)
}

// halfApart is how far a decoder's logits may be from the reference's. Of one with
// arithmetic in F16 it is a part of the largest logit, which here are up to 9: its weights
// are rounded, too.
func halfApart(m infer.Model, c spoken) float64 {
	if strings.HasSuffix(m.Path, "_kv16.onnx") {
		return nearHalf
	}
	largest := 0.0
	for _, row := range c.Logits {
		for _, v := range row[:poison-1] { // the last are never said, with logits of -50
			largest = max(largest, math.Abs(float64(v)))
		}
	}
	return nearHalf * largest
}

// requireNearlySaid compares what was generated up to the first place where the two likeliest
// tokens are so near each other that half precision may change their order.
func requireNearlySaid(tb testing.TB, m infer.Model, want spoken, got map[string]infer.Tensor) (compared int) {
	tb.Helper()
	near := halfApart(m, want)
	for i, id := range want.Tokens {
		if float64(want.TopLogprobs[i][0]-want.TopLogprobs[i][1]) < 2*near {
			return i
		}
		require.Equal(tb, id, got["tokens"].I64[i], "token %d of %s", i, m.Name)
		require.InDelta(tb, want.Logprobs[i], got["logprobs"].F32[i], near)
	}
	return len(want.Tokens)
}

// requireHalfSpeaks holds the decoders in half precision on a device to the reference.
func requireHalfSpeaks(t *testing.T, d pool.Runner, device string) {
	t.Helper()
	flat, three := golden(t)
	models, axes := inHalf()
	tokens, compared := 0, 0
	for i, m := range models {
		m.Device = device
		cases := flat
		if axes[i] {
			cases = three
		}
		_, err := d.Load(t.Context(), m)
		require.NoError(t, err)
		g := infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3}
		for _, c := range cases {
			pick := []int64{3, 0, 15, 3}
			near := halfApart(m, c)
			requireScoresWithin(t, near, c, len(c.IDs), nil, say(t, d, m, c.request(infer.Generate{ImageToken: imageToken, Keep: len(c.IDs)}))[0])
			requireScoresWithin(t, near, c, 1, pick, say(t, d, m, c.request(infer.Generate{ImageToken: imageToken, Keep: 1, Pick: pick}))[0])
			compared += requireNearlySaid(t, m, c, say(t, d, m, c.request(g))[0])
			tokens += len(c.Tokens)
		}
		if !axes[i] { // three at once: as each by itself
			for k, got := range say(t, d, m, flat[2].request(g), flat[3].request(g), flat[4].request(g)) {
				requireNearlySaid(t, m, flat[2+k], got)
			}
		}
	}
	t.Logf("%d of %d tokens compared", compared, tokens)
	require.Greater(t, compared, tokens/2)
}

func TestGoldenDecodersInHalfPrecisionAnswerAsTheReferenceDoes(t *testing.T) {
	t.Parallel()
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		requireHalfSpeaks(t, d, "cpu")
	})
}

func TestADecoderSaysWhatItsCacheIsOf(t *testing.T) {
	t.Parallel()
	d := openCPU(t, ort.Config{})
	whole := language("flat_fp16")
	whole.Embed = language("embed_fp16").Path
	for _, tt := range []struct {
		m                     infer.Model
		embeds, cache, logits string
	}{
		{language("flat"), "F32", "F32", "F32"},
		{language("flat_kv16"), "F32", "F16", "F32"},
		{language("mixed"), "F32", "F16", "F32"},
		{whole, "F16", "F16", "F16"},
	} {
		info, err := d.Load(t.Context(), tt.m)
		require.NoError(t, err)
		for _, p := range info.Inputs {
			switch p.Name {
			case "inputs_embeds":
				require.Equal(t, tt.embeds, p.DType)
			case "attention_mask", "position_ids":
				require.Equal(t, "I64", p.DType)
			default:
				require.Equal(t, tt.cache, p.DType, p.Name)
			}
		}
		require.Equal(t, tt.logits, info.Outputs[0].DType)
		require.Equal(t, tt.cache, info.Outputs[1].DType)
		require.Equal(t, "16", info.Metadata[infer.MetaVocabulary])
	}
}

func TestEitherOfEmbeddingsAndDecoderMayBeInHalfPrecision(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	d := openCPU(t, ort.Config{})
	upper, lower := language("flat_fp16"), language("flat_kv16") // embeddings of F32 into F16, and of F16 into F32
	lower.Embed = language("embed_fp16").Path
	for _, m := range []infer.Model{upper, lower} {
		for _, c := range flat {
			requireScoresWithin(t, halfApart(m, c), c, 1, nil, say(t, d, m, c.request(infer.Generate{ImageToken: imageToken, Keep: 1}))[0])
			requireNearlySaid(t, m, c, say(t, d, m, c.request(infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3}))[0])
		}
	}
}

func TestAnEmbeddingBeyondF16IsTheItemsFaultAndALogitThatIsNoNumberTheModels(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	d := openCPU(t, ort.Config{})
	bad := spoken{IDs: []int64{1, poison, 3}}
	_, err := d.Run(t.Context(), language("flat_fp16"), batchOf(t, bad.request(infer.Generate{Keep: 1}))) // 3e38, by the embeddings of F32
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, "input [inputs_embeds F16[-1 -1 8]]: model input refused: 3e+38 at 8 is beyond F16")
	large := flat[2].request(infer.Generate{ImageToken: imageToken, Keep: 1})
	large.Inputs[1].F32[0] = 7e4
	_, err = d.Run(t.Context(), language("flat_fp16"), batchOf(t, large))
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, "70000 at 8 is beyond F16")
	require.Zero(t, d.opener.Stats()["cpu"].Crashes)

	whole := language("flat_fp16")
	whole.Embed = language("embed_fp16").Path
	for _, m := range []infer.Model{language("flat_kv16"), whole} {
		l, err := ort.OpenLanguage(ort.SessionConfig{Library: onnx.Library(t), Model: m})
		require.NoError(t, err)
		for _, g := range []infer.Generate{{Keep: 1}, {MaxNew: 3}} {
			_, err = l.Run(t.Context(), batchOf(t, bad.request(g)))
			require.ErrorIs(t, err, infer.ErrNumbers, m.Name)
			require.ErrorContains(t, err, "the logit of token 0 is NaN after 3 tokens")
		}
		require.NoError(t, l.Close())
	}
}

// tokensOf is a prompt of so many tokens.
func tokensOf(n int) infer.Request {
	return infer.Request{Inputs: []infer.Tensor{int64s("input_ids", make([]int64, n), n), int64s("position_ids", make([]int64, n), n)}, Generate: &infer.Generate{Keep: 1}}
}

func TestACacheOfHalfPrecisionTakesHalfOfTheMemory(t *testing.T) { //nolint:paralleltest // it looks at the memory that is kept
	full, half := openLanguage(t, "last"), openLanguage(t, "last_kv16")
	const tokens = 1 << 10
	// Two layers with keys and values of two heads of four numbers.
	require.Equal(t, 2*2*2*4*4, ort.CacheBytes(full, 1))
	require.Equal(t, 2*2*2*4*2, ort.CacheBytes(half, 1))
	require.Equal(t, 3*2*2*2*4*2, ort.CacheBytes(half, 3))
	held := func(l *ort.Language) int {
		a, err := l.Run(t.Context(), batchOf(t, tokensOf(tokens)))
		require.NoError(t, err)
		a.Release()
		return ort.HeldBytes(l)
	}
	in32, in16 := held(full), held(half)
	t.Logf("after a prompt of %d tokens F32 keeps %d bytes of memory and F16 %d, of which the caches are %d and %d", tokens, in32, in16, tokens*ort.CacheBytes(full, 1), tokens*ort.CacheBytes(half, 1))
	require.InDelta(t, tokens*ort.CacheBytes(half, 1), in32-in16, 1024, "besides what the trial at the load took")
}

func TestTheBoundOnMemoryCountsTheBytesThatACacheHas(t *testing.T) {
	t.Parallel()
	const bound = 32 << 10
	for decoder, token := range map[string]int{
		"last":      4*2*2*2*4 + 4*width, // the cache and the embedding of a token
		"last_kv16": 2*2*2*2*4 + 4*width,
		"last_fp16": 2*2*2*2*4 + (4+2)*width, // which is there in both
	} {
		l, err := ort.OpenLanguage(ort.SessionConfig{Library: onnx.Library(t), Model: language(decoder), Language: ort.LanguageLimits{Memory: bound}})
		require.NoError(t, err)
		most := (bound - 4*vocabulary) / token // beside one row of logits
		_, err = l.Run(t.Context(), batchOf(t, tokensOf(most)))
		require.NoError(t, err, decoder)
		_, err = l.Run(t.Context(), batchOf(t, tokensOf(most+1)))
		require.ErrorIs(t, err, infer.ErrInput, decoder)
		require.ErrorContains(t, err, "the bound is 32768")
		require.NoError(t, l.Close())
	}
}

func TestACacheOfAnAbsurdShapeIsRefusedByName(t *testing.T) {
	t.Parallel()
	ports := func(dtype string, shape ...int) error {
		in := []infer.Port{{Name: "inputs_embeds", DType: "F16", Shape: []int{-1, -1, 8}}, {Name: "attention_mask", DType: "I64", Shape: []int{-1, -1}}}
		out := []infer.Port{{Name: "logits", DType: "F16", Shape: []int{-1, -1, 16}}}
		for _, what := range []string{"key", "value"} {
			in = append(in, infer.Port{Name: "past_key_values.0." + what, DType: dtype, Shape: shape})
			out = append(out, infer.Port{Name: "present.0." + what, DType: dtype, Shape: shape})
		}
		return ort.BindDecoder(in, out)
	}
	require.NoError(t, ports("F16", -1, 2, -1, 4))
	require.NoError(t, ports("F32", -1, 2, -1, 4))
	for _, bad := range [][]int{{-1, 1 << 40, -1, 4}, {-1, 1 << 20, -1, 1 << 20}, {-1, 0, -1, 4}} {
		err := ports("F16", bad...)
		require.ErrorIs(t, err, infer.ErrModel)
		require.ErrorContains(t, err, fmt.Sprintf("input [past_key_values.0.value F16%v] has no numbers for a token, or more than any model needs", bad))
	}
	for _, dtype := range []string{"BF16", "I64"} {
		err := ports(dtype, -1, 2, -1, 4)
		require.ErrorIs(t, err, infer.ErrModel)
		require.ErrorContains(t, err, "input [past_key_values.0.key "+dtype+"[-1 2 -1 4]] is not F32 or F16 with four axes")
	}
}

func TestABatchOfMoreNumbersThanATensorHasDoesNotFit(t *testing.T) {
	t.Parallel()
	l := openLanguage(t, "last_kv16")
	require.True(t, ort.Fits(l, 1, 1<<20, 1))
	require.False(t, ort.Fits(l, 1, 1<<28, 1), "2^31 numbers in a cache")
	require.False(t, ort.Fits(l, 1<<7, 1, 1<<20), "2^31 numbers in the logits")
}
