package preference_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/preference"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

func TestAModelThatDoesNotFitIsRefusedByName(t *testing.T) {
	t.Parallel()
	nets := onnx.CPU(t, ort.Process)
	for model, says := range map[string][]string{
		"exotic-clip/extra_input":      {"vision_model.onnx", "has no source"},
		"exotic-clip/named_tokens":     {"text_model.onnx", `input "input_ids" (ids) is missing`, "has no source"},
		"exotic-clip/small_vocabulary": {"text_model.onnx", "wrong vocabulary", "tokens"},
	} {
		s := scorer(t, nets, "pickscore", object(folder(t, model), ""))
		err := s.(rewards.Warmer).Warm(t.Context())
		require.ErrorIs(t, err, infer.ErrModel, model)
		assert.Equal(t, rewards.Internal, rewards.ClassOf(err), model)
		for _, say := range says {
			require.ErrorContains(t, err, say, model)
		}
		_, err = s.Score(t.Context(), sample("a", plain(1)))
		require.ErrorIs(t, err, infer.ErrModel, model)
	}
}

func TestEveryFaultOfAModelIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	vision := []infer.Port{floats("pixel_values", -1, 3, -1, -1)}
	for name, tt := range map[string]struct {
		change []string
		vision []infer.Port
		images []infer.Port
		text   []infer.Port
		texts  []infer.Port
		says   []string
	}{
		"no outputs": {nil, vision, []infer.Port{floats("pooler_output", -1, 2)}, []infer.Port{whole("input_ids")}, nil, []string{
			`vision_model.onnx: output "image_embeds" is missing: the model has "pooler_output"`, `text_model.onnx: output "text_embeds" is missing: the model has none`,
		}},
		"other types": {nil, []infer.Port{{Name: "pixel_values", DType: "U8", Shape: []int{-1, 3, 8, 8}}}, []infer.Port{{Name: "image_embeds", DType: "I64"}}, []infer.Port{{Name: "input_ids", DType: "F32", Shape: []int{-1, -1}}}, []infer.Port{floats("text_embeds", -1, 2)}, []string{
			`"pixel_values" (U8 [-1 3 8 8])`, "want F32 with 4 axes", `output "image_embeds" (I64 []): want F32 or F16`, "want I64 or I32 with 2 axes",
		}},
		"named mask": {[]string{`"kind"`, `"inputs": {"mask": "mask"}, "kind"`}, vision, []infer.Port{floats("image_embeds", -1, 2)}, []infer.Port{whole("input_ids")}, []infer.Port{floats("text_embeds", -1, 2)}, []string{
			`text_model.onnx: input "mask" (mask) is missing`,
		}},
		"nothing to see": {nil, nil, []infer.Port{floats("image_embeds", -1, 2)}, []infer.Port{whole("input_ids"), whole("position_ids")}, []infer.Port{floats("text_embeds", -1, 2)}, []string{
			`input "pixel_values" (pixels) is missing: the model has none`, `input "position_ids" (I64 [-1 -1]) has no source`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := towers()
			n["vision_model.onnx"] = net{declares(tt.vision, tt.images), n["vision_model.onnx"].infer}
			n["text_model.onnx"] = net{declares(tt.text, tt.texts), n["text_model.onnx"].infer}
			_, err := preference.Open(t.Context(), n, clipFolder(t, tt.change...), "cpu")
			require.ErrorIs(t, err, infer.ErrModel)
			for _, says := range tt.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}

func TestTowersOfDifferentWidthsAreRefused(t *testing.T) {
	t.Parallel()
	n := towers()
	g := n["text_model.onnx"]
	g.infer = func(context.Context, infer.Request) ([]infer.Tensor, error) {
		return []infer.Tensor{infer.Floats("text_embeds", make([]float32, 3), 3)}, nil
	}
	n["text_model.onnx"] = g
	_, err := preference.Open(t.Context(), n, clipFolder(t), "cpu")
	require.ErrorIs(t, err, infer.ErrModel)
	require.ErrorContains(t, err, "vision_model.onnx returns embeddings of shape [2] for a picture, text_model.onnx of shape [3]")
}

func TestAFolderWithAnotherTokenizerIsRefused(t *testing.T) {
	t.Parallel()
	dir := clipFolder(t, `"pad_id": `, `"pad_id": 77`)
	_, err := preference.Open(t.Context(), towers(), dir, "cpu")
	require.ErrorContains(t, err, "text.pad_id")
	require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.json")))
	_, err = preference.Open(t.Context(), towers(), dir, "cpu")
	require.ErrorIs(t, err, infer.ErrModel)
	require.ErrorContains(t, err, "tokenizer.json")
}

func TestAModelThatAnswersOtherwiseThanAtItsExportIsRefused(t *testing.T) {
	t.Parallel()
	dir := clipFolder(t)
	write := func(test string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, preference.SelfTestFile), []byte(test), 0o600))
	}
	write(`{"format": 1, "cases": [{"width": 1, "height": 1, "rgb": "CQkJ", "prompt": "a", "text_embeds": [1, 0]},
		{"width": 1, "height": 1, "rgb": "CQkJ", "prompt": "a", "image_embeds": [0.5, 0.5], "tolerance": 0.01}]}`)
	err := scorer(t, towers(), "pickscore", object(dir, "")).(rewards.Warmer).Warm(t.Context())
	require.ErrorIs(t, err, infer.ErrModel)
	for _, says := range []string{"case 1", "image_embeds[", "want 0.5", "want at most 0.01", "selftest: false", "export the model again"} {
		require.ErrorContains(t, err, says)
	}
	heedless := scorer(t, towers(), "pickscore", object(dir, `"selftest": false`))
	require.NoError(t, heedless.(rewards.Warmer).Warm(t.Context()))
	_, err = heedless.Score(t.Context(), sample("a", plain(1)))
	require.NoError(t, err)
	write(`{"format": 1, "cases": [{"width": 1, "height": 1, "rgb": "CQkJ", "prompt": "a", "image_embeds": [1]}]}`)
	err = scorer(t, towers(), "pickscore", object(dir, "")).(rewards.Warmer).Warm(t.Context())
	require.ErrorContains(t, err, "image_embeds has 2 numbers, want 1")
	write(`{"format": 1, "cases": 7}`)
	err = scorer(t, towers(), "pickscore", object(dir, "")).(rewards.Warmer).Warm(t.Context())
	require.ErrorContains(t, err, "cases")
}

func TestANumberThatIsNoneIsNearNothing(t *testing.T) {
	t.Parallel()
	require.NoError(t, preference.Near([]float64{0.5, 2}, []float64{0.5, 2.001}))
	for _, got := range [][]float64{{math.NaN(), 1}, {0, math.NaN()}, {math.NaN(), math.NaN()}, {math.Inf(1), 1}, {0, 1.1}} {
		require.ErrorIs(t, preference.Near(got, []float64{0, 1}), infer.ErrModel, "%v", got)
	}
}

func TestLoadingTriesAgainWhenThatMayHelp(t *testing.T) {
	t.Parallel()
	dir := clipFolder(t)
	synctest.Test(t, func(t *testing.T) {
		n, tries := towers(), 0
		var err error
		g := n["vision_model.onnx"]
		info := g.info
		g.info = func(ctx context.Context) (infer.Info, error) {
			tries++
			if err != nil {
				return infer.Info{}, err
			}
			return info(ctx)
		}
		n["vision_model.onnx"] = g
		s := scorer(t, n, "pickscore", object(dir, "")).(rewards.Warmer)
		err = infer.ErrUnavailable
		require.ErrorIs(t, s.Warm(t.Context()), rewards.Unavailable)
		require.ErrorIs(t, s.Warm(t.Context()), rewards.Unavailable)
		require.Equal(t, 2, tries)
		err = infer.ErrModel
		require.ErrorIs(t, s.Warm(t.Context()), infer.ErrModel)
		require.ErrorIs(t, s.Warm(t.Context()), infer.ErrModel)
		require.Equal(t, 3, tries, "a lasting fault is answered from memory for a while")
		time.Sleep(6 * time.Second) // of the bubble's time
		err = nil
		require.NoError(t, s.Warm(t.Context()))
		require.NoError(t, s.Warm(t.Context()))
		require.Equal(t, 4, tries)
	})
}

func TestConstantsAreFed(t *testing.T) {
	t.Parallel()
	from, dir := folder(t, "tiny-clip"), t.TempDir()
	data, err := os.ReadFile(filepath.Join(from, "tokenizer.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o600))
	write := func(constants string) {
		side := `{"format": 1, "kind": "graph", "name": "g", "text": {"length": 9, "pad_id": 3}, "score": {"index": 1}, "constants": [` + constants + `]}`
		require.NoError(t, os.WriteFile(filepath.Join(dir, preference.SidecarFile), []byte(side), 0o600))
	}
	in := []infer.Port{{Name: "input_ids", DType: "I32", Shape: []int{-1, -1}}, whole("attention_mask"), {Name: "n", DType: "I64", Shape: []int{-1, 2}}, floats("f", 1)}
	var seen infer.Request
	n := nets{"model.onnx": net{declares(in, []infer.Port{floats("score", -1, 2)}), func(_ context.Context, req infer.Request) ([]infer.Tensor, error) {
		seen = req
		return []infer.Tensor{infer.Floats("score", []float32{1, 2}, 2)}, nil
	}}}
	write(`{"name": "n", "dtype": "I64", "shape": [2], "values": [5, 6]}, {"name": "f", "dtype": "F32", "shape": [1], "values": [0.5]}`)
	got, err := scorer(t, n, "onnx", object(dir, "")).Score(t.Context(), sample("a cat"))
	require.NoError(t, err)
	assert.InDelta(t, 2, got.Value, 0)
	byName := map[string]infer.Tensor{}
	for _, in := range seen.Inputs {
		byName[in.Name] = in
	}
	assert.Equal(t, infer.Tensor{Name: "n", DType: infer.I64, Shape: []int{2}, I64: []int64{5, 6}}, byName["n"])
	assert.Equal(t, infer.Tensor{Name: "f", DType: infer.F32, Shape: []int{}, F32: []float32{.5}}, byName["f"])
	assert.Len(t, byName["input_ids"].I32, 9, "16 are more than the length")
	assert.Equal(t, byName["attention_mask"].Len(), byName["input_ids"].Len())

	write(`{"name": "n", "dtype": "F32", "shape": [2], "values": [5, 6]}, {"name": "f", "dtype": "F32", "shape": [2], "values": [1, 2]}, {"name": "g", "dtype": "U8", "shape": [], "values": [1]}`)
	_, err = preference.Open(t.Context(), n, dir, "cpu")
	for _, says := range []string{`constant "n" is F32`, `constant "f" has shape [2]`, `constant "g" is not an input`} {
		require.ErrorContains(t, err, says)
	}
	write(``)
	_, err = preference.Open(t.Context(), n, dir, "cpu")
	require.ErrorContains(t, err, `input "n" (I64 [-1 2]) has no source`)
	require.ErrorContains(t, err, `input "f" (F32 [1]) has no source`)
}
