package imageproc_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/imageproc"
	"github.com/rewardloop/rewardloop/rewards"
)

// The files of published models.
const (
	openaiCLIP = `{"crop_size": 224, "do_center_crop": true, "do_normalize": true, "do_resize": true, "feature_extractor_type": "CLIPFeatureExtractor",
		"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3, "size": 224}`
	smolVLM = `{"do_convert_rgb": true, "do_image_splitting": true, "do_normalize": true, "do_pad": true, "do_rescale": true, "do_resize": true,
		"image_mean": [0.5, 0.5, 0.5], "image_processor_type": "Idefics3ImageProcessor", "image_std": [0.5, 0.5, 0.5],
		"max_image_size": {"longest_edge": 512}, "processor_class": "Idefics3Processor", "resample": 1, "rescale_factor": 0.00392156862745098,
		"size": {"longest_edge": 2048}}`
	qwen25VL = `{"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
		"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
		"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor"}`
)

func TestThePublishedFileOfCLIPIsRead(t *testing.T) {
	t.Parallel()
	r, err := imageproc.FromPreprocessor([]byte(openaiCLIP))
	require.NoError(t, err)
	require.Equal(t, imageproc.Recipe{
		Steps: []imageproc.Step{
			{Op: imageproc.OpResizeShortest, Size: 224, Filter: imageproc.Bicubic},
			{Op: imageproc.OpCenterCrop, Width: 224, Height: 224},
		},
		Rescale: 1.0 / 255,
		Mean:    []float32{0.48145466, 0.4578275, 0.40821073},
		Std:     []float32{0.26862954, 0.26130258, 0.27577711},
	}, r)
}

func TestPreprocessorsThatAreNotUnderstoodAreRefusedByName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"image_processor_type": "ConvNextImageProcessor"}`: `"ConvNextImageProcessor", want one of`,
		`{}`: `image_processor_type ""`,
		`{"image_processor_type": "CLIPImageProcessor", "crop_pct": 0.9}`:                                   `key "crop_pct" (0.9)`,
		`{"image_processor_type": "CLIPImageProcessor", "do_pad": true}`:                                    `key "do_pad"`,
		`{"image_processor_type": "CLIPImageProcessor", "size": {"longest_edge": 224}}`:                     "longest_edge alone",
		`{"image_processor_type": "CLIPImageProcessor", "size": {"longest_edge": 224, "shortest_edge": 3}}`: "longest_edge+shortest_edge",
		`{"image_processor_type": "CLIPImageProcessor", "size": {"height": 224}}`:                           "size has height,",
		`{"image_processor_type": "SiglipImageProcessor", "size": {"shortest_edge": 224}}`:                  "size has shortest_edge",
		`{"image_processor_type": "SiglipImageProcessor", "do_center_crop": true}`:                          "does not crop",
		`{"image_processor_type": "CLIPImageProcessor", "crop_size": {"shortest_edge": 224}}`:               "crop_size has shortest_edge",
		`{"image_processor_type": "CLIPImageProcessor", "size": "224"}`:                                     "size is \"224\"",
		`{"image_processor_type": "CLIPImageProcessor", "size": [1, 2, 3]}`:                                 "want height and width",
		`{"image_processor_type": "CLIPImageProcessor", "size": 9000}`:                                      "size is 9000",
		`{"image_processor_type": "CLIPImageProcessor", "resample": 6}`:                                     "resample is 6",
		`{"image_processor_type": "CLIPImageProcessor", "do_resize": "yes"}`:                                "do_resize is",
		`{"image_processor_type": "CLIPImageProcessor", "image_std": [0, 1, 1]}`:                            "no deviation of 0",
		`{"image_processor_type": "CLIPImageProcessor", "image_mean": [0, 1]}`:                              "2 means",
		`{"image_processor_type": "CLIPImageProcessor", "rescale_factor": 0}`:                               "rescale is 0",
		`{"image_processor_type": "CLIPImageProcessor", "data_format": "channels_last"}`:                    "channels_last",
		`[1]`: "cannot unmarshal",
		`{"image_processor_type": "CLIPImageProcessor", "x": "` + strings.Repeat("x", 1<<20) + `"}`: "bytes, want at most",
	} {
		_, err := imageproc.FromPreprocessor([]byte(text))
		assert.ErrorContains(t, err, want)
	}
}

func TestKeysOfNoEffectAreLetThrough(t *testing.T) {
	t.Parallel()
	r, err := imageproc.FromPreprocessor([]byte(`{"image_processor_type": "SiglipImageProcessorFast", "processor_class": "SiglipProcessor", "do_convert_rgb": null,
		"crop_size": null, "device": null, "do_center_crop": null, "do_pad": false, "data_format": "channels_first", "default_to_square": true,
		"size": {"height": 384, "width": 384}, "image_mean": 0.5, "resample": null}`))
	require.NoError(t, err)
	require.Equal(t, []imageproc.Step{{Op: imageproc.OpResize, Width: 384, Height: 384, Filter: imageproc.Bicubic}}, r.Steps)
	require.Equal(t, []float32{0.5, 0.5, 0.5}, r.Mean)
}

func TestSmolVLMIsSplitIntoSeventeenTiles(t *testing.T) {
	t.Parallel()
	p, err := imageproc.ParseIdefics3([]byte(smolVLM), []byte(`{"image_seq_len": 64, "processor_class": "Idefics3Processor"}`))
	require.NoError(t, err)
	require.Equal(t, []int{2048, 512, 64}, []int{p.LongestEdge, p.Size, p.SeqLen})
	p.LongestEdge, p.Size = 128, 32 // the same at a sixteenth
	tiles, err := p.Tiles(grey(100, 80), 0, true)
	require.NoError(t, err)
	require.Equal(t, []int{4, 4, 17, 32}, []int{tiles.Rows, tiles.Cols, tiles.Count, tiles.Size})
	tensor := p.Tensor("pixel_values", tiles)
	require.NoError(t, tensor.Check())
	require.Equal(t, []int{17, 3, 32, 32}, tensor.Shape)
}

func TestTilesOfNarrowPictures(t *testing.T) {
	t.Parallel()
	p := imageproc.Idefics3{LongestEdge: 64, Size: 32, Filter: imageproc.Lanczos, Rescale: 1, Mean: []float32{0, 0, 0}, Std: []float32{1, 1, 1}}
	for size, rows := range map[[2]int]int{{1, 1}: 2, {1, 500}: 2, {500, 1}: 1, {5000, 1}: 1} {
		for _, split := range []bool{true, false} {
			tiles, err := p.Tiles(grey(size[0], size[1]), 0, split)
			require.NoError(t, err, size)
			require.Len(t, tiles.CHW, tiles.Count*3*32*32)
			if split {
				require.Equal(t, rows, tiles.Rows, size)
			}
		}
	}
	_, err := p.Tiles(nil, 0, true)
	require.ErrorIs(t, err, rewards.BadInput)
	p.NoResize = true
	_, err = p.Tiles(grey(9000, 2), 0, true)
	require.ErrorIs(t, err, rewards.BadInput, "9000 pixels wide")
}

func TestALineOfPixelsIsRefusedBeforeItTakesManyTimesItsMemory(t *testing.T) {
	t.Parallel()
	norm := imageproc.Recipe{
		Steps:   []imageproc.Step{{Op: imageproc.OpResize, Width: 8, Height: 8, Filter: imageproc.Bicubic}},
		Rescale: 1, Mean: []float32{0, 0, 0}, Std: []float32{1, 1, 1},
	}
	for _, size := range [][2]int{{imageproc.MaxSource + 1, 1}, {1, imageproc.MaxSource + 1}} {
		_, err := norm.Apply(grey(size[0], size[1]), 0)
		require.ErrorIs(t, err, rewards.BadInput)
		require.ErrorContains(t, err, "65535")
		_, err = norm.Apply(grey(min(size[0], imageproc.MaxSource), min(size[1], imageproc.MaxSource)), 0)
		require.NoError(t, err)
	}
}

func TestFilesOfOtherJudgesAreRefusedByName(t *testing.T) {
	t.Parallel()
	idefics := func(data []byte) error { _, err := imageproc.ParseIdefics3(data, nil); return err }
	qwen := func(data []byte) error { _, err := imageproc.ParseQwen2VL(data); return err }
	for _, c := range []struct {
		parse      func([]byte) error
		base       string
		key, value string
		want       string
	}{
		{idefics, smolVLM, "image_processor_type", `"Idefics2ImageProcessor"`, "Idefics2ImageProcessor"},
		{idefics, smolVLM, "size", `{"height": 3, "width": 3}`, "size has height+width, want longest_edge"},
		{idefics, smolVLM, "max_image_size", `{"longest_edge": 4097}`, "tile size is 4097"},
		{idefics, smolVLM, "size", `{"longest_edge": 0}`, "longest edge is 0"},
		{idefics, smolVLM, "do_flip", `true`, `key "do_flip"`},
		{idefics, smolVLM, "rescale_factor", `0`, "rescale is 0"},
		{qwen, qwen25VL, "image_processor_type", `"Glm4vImageProcessor"`, "Glm4vImageProcessor"},
		{qwen, qwen25VL, "do_resize", `false`, "do_resize is false"},
		{qwen, qwen25VL, "size", `{"longest_edge": 5}`, "size has longest_edge"},
		{qwen, qwen25VL, "max_pixels", `3`, "3136 to 3 pixels"},
		{qwen, qwen25VL, "patch_size", `0`, "patch_size 0"},
		{qwen, qwen25VL, "temporal_patch_size", `2.5`, "temporal_patch_size is 2.5"},
		{qwen, qwen25VL, "frames", `7`, `key "frames"`},
		{qwen, qwen25VL, "rescale_factor", `0`, "rescale is 0"},
	} {
		require.NoError(t, c.parse([]byte(c.base)))
		file := map[string]json.RawMessage{}
		require.NoError(t, json.Unmarshal([]byte(c.base), &file))
		file[c.key] = json.RawMessage(c.value)
		data, err := json.Marshal(file)
		require.NoError(t, err)
		require.ErrorContains(t, c.parse(data), c.want)
	}
	_, err := imageproc.ParseIdefics3([]byte(smolVLM), []byte(`{`))
	require.ErrorContains(t, err, "processor_config.json")
	_, err = imageproc.ParseIdefics3([]byte(smolVLM), make([]byte, 1<<20+1))
	require.ErrorContains(t, err, "at most")
	_, err = imageproc.ParseIdefics3([]byte(smolVLM), []byte(`{"image_seq_len": -1}`))
	require.ErrorContains(t, err, "image_seq_len is -1")
}

func TestTheBoundsOfQwenAreReadInAllTheirForms(t *testing.T) {
	t.Parallel()
	for more, want := range map[string][2]int{
		``:                                     {56 * 56, 28 * 28 * 1280},
		`, "min_pixels": 10, "max_pixels": 20`: {10, 20},
		`, "size": {"shortest_edge": 30, "longest_edge": 40}`:                   {30, 40},
		`, "size": {"min_pixels": 50, "max_pixels": 60}`:                        {50, 60},
		`, "size": {"shortest_edge": 30, "longest_edge": 40}, "max_pixels": 99`: {30, 99},
	} {
		p, err := imageproc.ParseQwen2VL([]byte(`{"image_processor_type": "Qwen2VLImageProcessorFast"` + more + `}`))
		require.NoError(t, err, more)
		require.Equal(t, want, [2]int{p.MinPixels, p.MaxPixels}, more)
	}
}

func TestQwenRefusesPicturesThatAreTooNarrow(t *testing.T) {
	t.Parallel()
	p, err := imageproc.ParseQwen2VL([]byte(qwen25VL))
	require.NoError(t, err)
	_, err = p.Patches(grey(1, 201), 0)
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "1×201 pixels, want no side longer than 200 times the other")
	got, err := p.Patches(grey(1, 200), 0)
	require.NoError(t, err)
	require.NoError(t, p.Tensor("pixel_values", got).Check())
	_, err = p.Patches(grey(9000, 60), 0)
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "want sides of 1 to 8192")
	_, _, err = imageproc.SmartResize(0, 5, 28, 1, 2)
	require.ErrorIs(t, err, rewards.BadInput)
}
