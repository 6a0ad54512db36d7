package vlm_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/vlm"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// TestExportsInOtherFormsWorkOrAreRefusedByName puts each of testdata/models/exotic in
// the place of the file it is a variant of.
func TestExportsInOtherFormsWorkOrAreRefusedByName(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	folder := tiny(t, "tiny-idefics3")
	exotic := filepath.Join(models(), "exotic")
	data, err := os.ReadFile(filepath.Join(exotic, "index.json"))
	if err != nil {
		t.Skipf("SKIPPED: testdata/models/exotic is not there: models/export/tiny_vlm.py makes it")
	}
	var index struct {
		Files []struct {
			File  string `json:"file"`
			Works bool   `json:"works"`
			Names string `json:"names"`
			Half  bool   `json:"half"`
		} `json:"files"`
	}
	require.NoError(t, json.Unmarshal(data, &index))
	require.NotEmpty(t, index.Files)
	g := readGolden(t, folder)
	registry := judges(t, onnx.CPU(t, ort.Inline))
	for _, f := range index.Files {
		model, err := os.ReadFile(filepath.Join(exotic, f.File))
		require.NoError(t, err)
		session := "onnx/decoder_model_merged.onnx"
		if f.File == "vision_pixel_mask.onnx" {
			session = "onnx/vision_encoder.onnx"
		}
		j, err := registry.Judge(vlm.Options{Model: variant(t, folder, map[string][]byte{session: model})})
		require.NoError(t, err)
		err = j.Warm(t.Context())
		if !f.Works {
			require.Error(t, err, f.File)
			require.ErrorContains(t, err, f.Names, f.File)
			require.Equal(t, rewards.Internal, rewards.ClassOf(err), f.File)
			t.Logf("%s: %v", f.File, err)
			continue
		}
		require.NoError(t, err, f.File)
		for _, name := range []string{"whole-64x64-a", "text-only"} {
			c := g.find(t, name)
			got, err := j.Inspect(t.Context(), c.turns(), c.pixels(t), c.candidates(), 16)
			require.NoError(t, err, f.File)
			if f.Half {
				c.checkHalf(t, folder, got)
				continue
			}
			c.check(t, folder, got)
		}
	}
}

func TestAJudgeInHalfPrecisionAnswersAsInFloats(t *testing.T) {
	t.Parallel()
	folder := tiny(t, "tiny-idefics3")
	g := readGolden(t, folder)
	registry := judges(t, onnx.CPU(t, ort.Inline))
	mixed := []byte(`{"format": 1, "longest_edge": 64, "dtype": {"vision": "fp16", "decoder": "fp16"}}`)
	for name, o := range map[string]vlm.Options{
		"all files": {Model: folder, DType: "fp16"},
		"two files": {Model: variant(t, folder, map[string][]byte{"judge.json": mixed})},
	} {
		j, err := registry.Judge(o)
		require.NoError(t, err, name)
		require.NoError(t, j.Warm(t.Context()), name)
		for _, of := range []string{"whole-64x64-a", "whole-97x131", "text-only"} {
			c := g.find(t, of)
			got, err := j.Inspect(t.Context(), c.turns(), c.pixels(t), c.candidates(), 16)
			require.NoError(t, err, name)
			c.checkHalf(t, folder, got)
		}
	}
}

// Metrics tell models by their names, and models of equal names and files are one.
func TestOnlyAJudgeOfOtherFilesThanItsFoldersHasAnotherName(t *testing.T) {
	t.Parallel()
	folder := tiny(t, "tiny-idefics3")
	for dtype, want := range map[string]string{"": "tiny-idefics3", "fp32": "tiny-idefics3", "fp16": "tiny-idefics3 fp16"} {
		nets := &scripted{vocabulary: 746, tokens: 16}
		seen := ""
		nets.before = func(_ context.Context, m infer.Model, r infer.Request) error {
			if r.Name == "vocabulary" {
				seen = m.Name
			}
			return nil
		}
		j, err := judges(t, nets).Judge(vlm.Options{Model: folder, DType: dtype})
		require.NoError(t, err)
		require.NoError(t, j.Warm(t.Context()))
		require.Equal(t, want, seen)
	}
}

func TestATokenizerOfAnotherVocabularyIsRefused(t *testing.T) {
	t.Parallel()
	folder := tiny(t, "tiny-idefics3")
	data, err := os.ReadFile(filepath.Join(folder, "tokenizer.json"))
	require.NoError(t, err)
	var file map[string]any
	require.NoError(t, json.Unmarshal(data, &file))
	added, ok := file["added_tokens"].([]any)
	require.True(t, ok)
	file["added_tokens"] = append(added, map[string]any{
		"id": 746, "content": "<one_too_many>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true,
	})
	larger, err := json.Marshal(file)
	require.NoError(t, err)

	nets := onnx.CPU(t, ort.Inline)
	for _, tt := range []struct {
		what  string
		files map[string][]byte
		want  string
	}{
		{"larger than config.json says", map[string][]byte{"tokenizer.json": larger}, "wrong vocabulary: tokenizer.json has ids up to 746, but config.json has a vocab_size of 746"},
		{"larger than the decoder", map[string][]byte{
			"tokenizer.json": larger, "config.json": edited(t, folder, map[string]any{"text_config.vocab_size": 1000}),
		}, "wrong vocabulary: tokenizer.json has ids up to 746, but onnx/decoder_model_merged.onnx has 746 logits"},
		{"another token for pictures", map[string][]byte{
			"config.json": edited(t, folder, map[string]any{"image_token_id": 5}),
		}, "config.json: image_token_id is 5, but <image> is 738"},
	} {
		err := judgeOf(t, nets, variant(t, folder, tt.files)).Warm(t.Context())
		require.ErrorContains(t, err, tt.want, tt.what)
		require.Equal(t, rewards.Internal, rewards.ClassOf(err), tt.what)
	}
}

// TestAVocabularyThatNoFileTellsOfIsTried has a model that knows fewer tokens than it
// lets on.
func TestAVocabularyThatNoFileTellsOfIsTried(t *testing.T) {
	t.Parallel()
	folder := variant(t, tiny(t, "tiny-idefics3"), map[string][]byte{
		"config.json": edited(t, tiny(t, "tiny-idefics3"), map[string]any{"text_config.vocab_size": nil}),
	})
	nets := &scripted{vocabulary: 746, tokens: 16}
	nets.before = func(_ context.Context, _ infer.Model, r infer.Request) error {
		ids, ok := r.Input(infer.InputIDs)
		if ok && ids.I64[0] >= 700 {
			return infer.ErrFault
		}
		return nil
	}
	err := judgeOf(t, nets, folder).Warm(t.Context())
	require.ErrorContains(t, err, "the model fails on token 745, the last of tokenizer.json")
}

func TestAFolderThatLacksSomethingIsRefusedByName(t *testing.T) {
	t.Parallel()
	smol := tiny(t, "tiny-idefics3")
	nets := &scripted{vocabulary: 746, tokens: 16}
	for _, tt := range []struct {
		files map[string][]byte
		o     vlm.Options
		want  string
	}{
		{map[string][]byte{"config.json": nil, "tokenizer.json": nil}, vlm.Options{}, "lacks config.json, tokenizer.json"},
		{map[string][]byte{"onnx/embed_tokens.onnx": nil, "onnx/embed_tokens_fp16.onnx": nil}, vlm.Options{}, "lacks onnx/embed_tokens.onnx; no file of another dtype exists"},
		{nil, vlm.Options{DType: "q4"}, "lacks onnx/vision_encoder_q4.onnx; there is vision_encoder.onnx, vision_encoder_fp16.onnx; choose with dtype"},
		{map[string][]byte{"onnx/decoder_model_merged_fp16.onnx": nil}, vlm.Options{DType: "fp16"}, "lacks onnx/decoder_model_merged_fp16.onnx; there is decoder_model_merged.onnx; choose with dtype"},
		{nil, vlm.Options{DType: "q5"}, `dtype: "q5" is unknown, want one of bnb4, fp16, fp32`},
		{nil, vlm.Options{Device: "tpu"}, `device: "tpu" is unknown`},
		{map[string][]byte{"config.json": []byte(`{"model_type": "florence2"}`)}, vlm.Options{}, `config.json: model_type is "florence2", want one of idefics3, qwen2_5_vl, qwen2_vl, smolvlm`},
		{map[string][]byte{"config.json": []byte(`[]`)}, vlm.Options{}, "config.json: "},
		{map[string][]byte{"judge.json": []byte(`{"format": 1, "splt": true}`)}, vlm.Options{}, `judge.json: json: unknown field "splt"`},
		{map[string][]byte{"judge.json": []byte(`{"format": 2, "dtype": {"embed": "x"}}`)}, vlm.Options{}, "format: 2, want 1"},
		{map[string][]byte{"judge.json": []byte(`{"format": 1, "dtype": {"decoder": "q4"}}`)}, vlm.Options{}, "lacks onnx/decoder_model_merged_q4.onnx"},
		{map[string][]byte{"preprocessor_config.json": []byte(`{"image_processor_type": "CLIPImageProcessor"}`)}, vlm.Options{}, `image_processor_type "CLIPImageProcessor"`},
		{map[string][]byte{"processor_config.json": []byte(`{"image_seq_len": 17}`)}, vlm.Options{}, "processor_config.json: image_seq_len is 17, but a tile has 16 tokens by config.json"},
		{map[string][]byte{"chat_template.jinja": nil, "chat_template.json": []byte(`{`)}, vlm.Options{}, "chat_template.json: "},
	} {
		tt.o.Model = variant(t, smol, tt.files)
		_, err := judges(t, nets).Judge(tt.o)
		require.ErrorContains(t, err, tt.want)
	}
	_, err := judges(t, nets).Judge(vlm.Options{Model: filepath.Join(t.TempDir(), "none")})
	require.ErrorContains(t, err, "no model folder")
	_, err = judges(t, nets).Judge(vlm.Options{Model: filepath.Join(smol, "config.json")})
	require.ErrorContains(t, err, "is a file")
	_, err = vlm.NewJudges(vlm.Deps{}).Judge(vlm.Options{Model: smol})
	require.ErrorContains(t, err, "this process has no runner for models")
	_, err = vlm.NewJudges(vlm.Deps{Nets: nets, Folder: func(string) (string, error) { return "", errors.New("not in the catalogue") }}).Judge(vlm.Options{Model: "x"})
	require.ErrorContains(t, err, "not in the catalogue")
}

// What `rewardloop models pull` writes beside the files of others; those that are not of
// judges are read by package preference.
func TestEveryJudgeOfTheCatalogueHasASidecarThatIsRead(t *testing.T) {
	t.Parallel()
	all, err := filepath.Glob(filepath.Join("..", "..", "models", "sidecars", "judge-*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, path := range all {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = vlm.ParseSidecar(data)
		require.NoError(t, err, path)
	}
}

func TestWhatDoesNotFitTogetherEndsTheLoadingByName(t *testing.T) {
	t.Parallel()
	smol := tiny(t, "tiny-idefics3")
	for _, tt := range []struct {
		files map[string][]byte
		want  string
	}{
		{map[string][]byte{"tokenizer.json": []byte(`{"model": {"type": "Telepathy"}}`)}, "tokenizer.json: "},
		{map[string][]byte{"chat_template.jinja": []byte(`{% for %}`)}, "the chat template in chat_template.jinja cannot be read"},
		{map[string][]byte{"chat_template.jinja": []byte(`{{ raise_exception("no pictures") }}`)}, "no pictures"},
		{map[string][]byte{"chat_template.jinja": []byte(`{{ messages[0].role }}:`)}, "0 times <image> for 1 pictures"},
	} {
		j := judgeOf(t, &scripted{vocabulary: 746, tokens: 16}, variant(t, smol, tt.files))
		err := j.Warm(t.Context())
		require.ErrorContains(t, err, tt.want)
		require.Equal(t, rewards.Internal, rewards.ClassOf(err))
	}
}

// encoder is a vision encoder of other ports.
type encoder struct {
	*scripted

	info infer.Info
}

func (e encoder) Net(m infer.Model) (infer.Net, error) {
	if m.Embed == "" {
		return e, nil
	}
	return e.scripted.Net(m)
}

func (e encoder) Info(context.Context) (infer.Info, error) { return e.info, nil }

func (e encoder) Infer(context.Context, infer.Request) ([]infer.Tensor, error) { return nil, nil }

func TestAVisionEncoderOfOtherPortsIsRefusedByName(t *testing.T) {
	t.Parallel()
	features := []infer.Port{{Name: "image_features", DType: "F32", Shape: []int{-1, 16, 32}}}
	pixels := infer.Port{Name: "pixel_values", DType: "F32", Shape: []int{-1, -1, 3, -1, -1}}
	patches := infer.Port{Name: "pixel_values", DType: "F32", Shape: []int{-1, 1176}}
	for _, tt := range []struct {
		model string
		in    []infer.Port
		out   []infer.Port
		want  string
	}{
		{"tiny-idefics3", []infer.Port{pixels, {Name: "cross_mask", DType: "F32", Shape: []int{-1}}}, features, `an unknown input "cross_mask"`},
		{"tiny-idefics3", nil, features, `lacks the input "pixel_values"`},
		{"tiny-idefics3", []infer.Port{{Name: "pixel_values", DType: "U8", Shape: pixels.Shape}}, features, `"pixel_values" is U8`},
		{"tiny-idefics3", []infer.Port{{Name: "pixel_values", DType: "F32", Shape: []int{-1, 17, 3, 64, 64}}}, features, `is F32 [-1 17 3 64 64], want F32 [-1 1 3 64 64]`},
		{"tiny-idefics3", []infer.Port{{Name: "pixel_values", DType: "F32", Shape: []int{-1, 1, 3, 384, 384}}}, features, "[-1 1 3 64 64]"},
		{"tiny-idefics3", []infer.Port{pixels, {Name: "pixel_attention_mask", DType: "I64", Shape: []int{-1, -1, -1, -1}}}, features, `"pixel_attention_mask" is I64`},
		{"tiny-idefics3", []infer.Port{pixels}, []infer.Port{{Name: "last_hidden_state", DType: "F32"}}, `no output "image_features", only last_hidden_state`},
		{"tiny-qwen2_5_vl", []infer.Port{patches}, features, `lacks the input "image_grid_thw"`},
		{"tiny-qwen2_5_vl", []infer.Port{{Name: "pixel_values", DType: "F32", Shape: []int{-1, 588}}}, features, "want F32 [-1 1176]"},
		{"tiny-qwen2_5_vl", []infer.Port{patches, {Name: "image_grid_thw", DType: "I32", Shape: []int{-1, 3}}}, features, `"image_grid_thw" is I32`},
		{"tiny-qwen2_5_vl", []infer.Port{patches, {Name: "grid_thw", DType: "I64", Shape: []int{-1, 3}}}, nil, `no output "image_features"`},
	} {
		folder := tiny(t, tt.model)
		nets := encoder{&scripted{vocabulary: 746, tokens: 16}, infer.Info{Inputs: tt.in, Outputs: tt.out}}
		err := judgeOf(t, nets, folder).Warm(t.Context())
		require.ErrorContains(t, err, tt.want)
		require.ErrorContains(t, err, "onnx/vision_encoder.onnx")
	}
}

// TestEqualOptionsAreOneJudgeThatIsLoadedOnce asks it from many sides at once.
func TestEqualOptionsAreOneJudgeThatIsLoadedOnce(t *testing.T) {
	t.Parallel()
	folder := tiny(t, "tiny-idefics3")
	nets := &scripted{vocabulary: 746, tokens: 16}
	loads := 0
	nets.before = func(_ context.Context, _ infer.Model, r infer.Request) error {
		if r.Name == "vocabulary" {
			loads++ // one at a time: the race detector would see two
		}
		return nil
	}
	registry := judges(t, nets)
	whole, split := false, true
	a, err := registry.Judge(vlm.Options{Model: folder})
	require.NoError(t, err)
	b, err := registry.Judge(vlm.Options{Model: folder, Device: "cpu", Split: &whole})
	require.NoError(t, err)
	c, err := registry.Judge(vlm.Options{Model: folder, Split: &split})
	require.NoError(t, err)
	d, err := registry.Judge(vlm.Options{Model: folder, Device: "cuda:0"})
	require.NoError(t, err)
	assert.Same(t, a, b)
	assert.NotSame(t, a, c)
	assert.NotSame(t, a, d)
	var all errgroup.Group
	for range 8 {
		all.Go(func() error { return errors.Join(a.Warm(t.Context()), c.Warm(t.Context())) })
	}
	require.NoError(t, all.Wait())
	assert.Equal(t, 1, loads, "whether tiles are shown is a matter of the question")
}

// TestAFailureToLoadIsToldToOthersForAWhileAndThenTriedAgain counts what is read.
func TestAFailureToLoadIsToldToOthersForAWhileAndThenTriedAgain(t *testing.T) {
	t.Parallel()
	folder := tiny(t, "tiny-idefics3")
	synctest.Test(t, func(t *testing.T) {
		nets := &scripted{vocabulary: 746, tokens: 16}
		tries := 0
		broken := errors.New("a cable is loose")
		nets.before = func(_ context.Context, _ infer.Model, r infer.Request) error {
			if r.Name == "vocabulary" {
				tries++
			}
			if broken != nil {
				return errors.Join(infer.ErrUnavailable, broken)
			}
			return nil
		}
		j := judgeOf(t, nets, folder)
		for range 5 {
			err := j.Warm(t.Context())
			require.ErrorContains(t, err, "a cable is loose")
			require.Equal(t, rewards.Unavailable, rewards.ClassOf(err))
		}
		require.Equal(t, 1, tries)
		broken = nil
		require.ErrorContains(t, j.Warm(t.Context()), "a cable is loose")
		time.Sleep(time.Minute) // of the bubble's time
		require.NoError(t, j.Warm(t.Context()))
		require.Equal(t, 2, tries)
	})
}

func TestTheImpatienceOfOneCallerIsNotToldToOthers(t *testing.T) {
	t.Parallel()
	nets := &scripted{vocabulary: 746, tokens: 16}
	ctx, cancel := context.WithCancel(t.Context())
	nets.before = func(within context.Context, _ infer.Model, _ infer.Request) error {
		if ctx.Err() == nil {
			cancel()
			<-within.Done()
			return within.Err()
		}
		return nil
	}
	j := judgeOf(t, nets, tiny(t, "tiny-idefics3"))
	err := j.Warm(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, rewards.Cancelled, rewards.ClassOf(err))
	require.NoError(t, j.Warm(t.Context()))
}

// TestALoadingGoesOnForThoseWhoStillWait has the one who began it leave.
func TestALoadingGoesOnForThoseWhoStillWait(t *testing.T) {
	t.Parallel()
	folder := tiny(t, "tiny-idefics3")
	synctest.Test(t, func(t *testing.T) {
		nets := &scripted{vocabulary: 746, tokens: 16}
		loads, goOn := 0, make(chan struct{})
		nets.before = func(within context.Context, _ infer.Model, r infer.Request) error {
			if r.Name != "vocabulary" {
				return nil
			}
			loads++
			select {
			case <-goOn:
				return nil
			case <-within.Done():
				return within.Err()
			}
		}
		j := judgeOf(t, nets, folder)
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { assert.ErrorIs(t, j.Warm(first), context.Canceled) })
		synctest.Wait()
		all.Go(func() { assert.NoError(t, j.Warm(t.Context())) })
		synctest.Wait()
		leave()
		synctest.Wait()
		close(goOn)
		all.Wait()
		assert.Equal(t, 1, loads)
	})
}
