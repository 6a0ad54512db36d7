package imageproc_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/imageproc"
	"github.com/rewardloop/rewardloop/rewards"
)

// grey is a picture whose pixel values count up.
func grey(w, h int) *rewards.Pixels {
	px := &rewards.Pixels{Width: w, Height: h, Count: 1, RGB: make([]byte, w*h*3)}
	for i := range px.RGB {
		px.RGB[i] = byte(i/3 + 1)
	}
	return px
}

func recipe(steps ...imageproc.Step) imageproc.Recipe {
	return imageproc.Recipe{Steps: steps, Rescale: 1.0 / 255, Mean: []float32{0, 0, 0}, Std: []float32{1, 1, 1}}
}

func TestARecipeIsReadStrictly(t *testing.T) {
	t.Parallel()
	const good = `{"steps": [{"op": "resize_shortest", "size": 224, "filter": "bicubic"}, {"op": "center_crop", "width": 224, "height": 224}],
		"rescale": 0.00392156862745098, "mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}`
	var r imageproc.Recipe
	require.NoError(t, json.Unmarshal([]byte(good), &r))
	require.Len(t, r.Steps, 2)
	again, err := json.Marshal(r)
	require.NoError(t, err)
	var back imageproc.Recipe
	require.NoError(t, json.Unmarshal(again, &back))
	require.Equal(t, r, back)

	norm := `"rescale": 1, "mean": [0,0,0], "std": [1,1,1]}`
	for text, want := range map[string]string{
		`{"steps": [{"op": "resize", "width": 3, "height": 3, "filter": "bicubic", "antialias": true}], ` + norm: `unknown field "antialias"`,
		`{"crop": 1, ` + norm:                                                                   `unknown field "crop"`,
		`{"steps": [{"op": "rotate"}], ` + norm:                                                 "steps[0] (rotate): unknown op",
		`{"steps": [{"op": "resize_shortest", "size": 224}], ` + norm:                           `filter ""`,
		`{"steps": [{"op": "resize_longest", "size": 9, "width": 9, "filter": "box"}], ` + norm: "width is not for this op",
		`{"steps": [{"op": "resize", "width": 8193, "height": -1, "filter": "box"}], ` + norm:   "height is -1",
		`{"steps": [{"op": "center_crop", "width": 8, "height": 8, "filter": "box"}], ` + norm:  `filter "box" is not for this op`,
		`{"steps": [{"op": "pad", "width": 8, "height": 8, "value": 256}], ` + norm:             "value is 256",
		`{"steps": [{"op": "pad", "width": 8, "height": 8, "position": "left"}], ` + norm:       `position "left"`,
		`{"steps": [{"op": "center_crop", "width": 8, "height": 8, "value": 3}], ` + norm:       "for pad only",
		`{"mean": [0,0,0], "std": [1,1,1]}`:                                                     "rescale is 0",
		`{"rescale": 1, "mean": [0,0], "std": [1,1,1]}`:                                         "2 means",
		`{"rescale": 1, "mean": [0,0,0], "std": [1,0,1]}`:                                       "no deviation of 0",
		`{"rescale": 1e999, "mean": [0,0,0], "std": [1,1,1]}`:                                   "1e999",
		`null`: "rescale is 0",
		`[]`:   "cannot unmarshal",
	} {
		var r imageproc.Recipe
		err := json.Unmarshal([]byte(text), &r)
		require.ErrorContains(t, err, want, text)
		require.Zero(t, r)
	}
}

func TestAllFaultsOfARecipeAreNamed(t *testing.T) {
	t.Parallel()
	err := imageproc.Recipe{Steps: []imageproc.Step{{Op: imageproc.OpResize, Width: 9, Filter: "cubic"}, {Op: "x"}}}.Validate()
	for _, want := range []string{"height is 0", `filter "cubic"`, "steps[1] (x)", "rescale", "0 means"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, recipe(make([]imageproc.Step, 17)...).Validate(), "17 steps")
}

func TestThePictureIsCroppedAndPaddedAsAsked(t *testing.T) {
	t.Parallel()
	values := func(px *rewards.Pixels, s imageproc.Step) []int {
		r := recipe(s)
		require.NoError(t, r.Validate())
		p, err := r.Apply(px, 0)
		require.NoError(t, err)
		require.Equal(t, []int{s.Width, s.Height}, []int{p.Width, p.Height})
		var out []int
		for i := 0; i < len(p.RGB); i += 3 {
			out = append(out, int(p.RGB[i]))
		}
		return out
	}
	px := grey(3, 2) // 1 2 3 / 4 5 6
	assert.Equal(t, []int{2, 5}, values(px, imageproc.Step{Op: imageproc.OpCenterCrop, Width: 1, Height: 2}))
	assert.Equal(t, []int{1, 2, 4, 5}, values(px, imageproc.Step{Op: imageproc.OpCenterCrop, Width: 2, Height: 2}))
	assert.Equal(t, []int{0, 2, 5}, values(px, imageproc.Step{Op: imageproc.OpCenterCrop, Width: 1, Height: 3}), "one row more in front")
	assert.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 7, 7}, values(px, imageproc.Step{Op: imageproc.OpPad, Width: 3, Height: 3, Value: 7}), "one row more behind")
	assert.Equal(t, []int{9, 1, 2, 3, 9, 9, 4, 5, 6, 9}, values(px, imageproc.Step{Op: imageproc.OpPad, Width: 5, Height: 2, Value: 9, Position: imageproc.Center}))
	assert.Equal(t, []int{1, 2, 3, 0, 4, 5, 6, 0}, values(px, imageproc.Step{Op: imageproc.OpPad, Width: 4, Height: 2, Position: imageproc.TopLeft}))
	assert.Equal(t, []int{1, 2, 3, 4, 5, 6}, values(px, imageproc.Step{Op: imageproc.OpPad, Width: 3, Height: 2}))
}

func TestAPictureThatCannotBeMadeIsABadInput(t *testing.T) {
	t.Parallel()
	shortest := recipe(imageproc.Step{Op: imageproc.OpResizeShortest, Size: 224, Filter: imageproc.Bicubic}, imageproc.Step{Op: imageproc.OpCenterCrop, Width: 224, Height: 224})
	longest := recipe(imageproc.Step{Op: imageproc.OpResizeLongest, Size: 224, Filter: imageproc.Bicubic})
	pad := recipe(imageproc.Step{Op: imageproc.OpPad, Width: 9, Height: 9})
	for _, c := range []struct {
		recipe imageproc.Recipe
		px     *rewards.Pixels
		frame  int
		want   string
	}{
		{shortest, grey(1, 500), 0, "1×500 pixels would become 224×112000, want sides of 1 to 8192"},
		{longest, grey(1, 500), 0, "would become 0×224"},
		{pad, grey(10, 1), 0, "10×1 pixels cannot be padded to 9×9"},
		{pad, nil, 0, "no picture"},
		{pad, &rewards.Pixels{}, 0, "0 frames"},
		{pad, &rewards.Pixels{Width: 2, Height: 2, Count: 1, RGB: make([]byte, 11)}, 0, "11 bytes"},
		{pad, grey(1, 1), 1, "no frame 1 of 1"},
		{pad, grey(1, 1), -1, "no frame -1"},
	} {
		require.NoError(t, c.recipe.Validate())
		_, err := c.recipe.Apply(c.px, c.frame)
		require.ErrorIs(t, err, rewards.BadInput, c.want)
		require.ErrorContains(t, err, c.want)
	}
}

func TestOddPicturesGoThrough(t *testing.T) {
	t.Parallel()
	clip, err := imageproc.FromPreprocessor([]byte(`{"image_processor_type": "CLIPImageProcessor"}`))
	require.NoError(t, err)
	for _, size := range [][2]int{{1, 1}, {1, 36}, {36, 1}, {223, 225}, {224, 224}, {7, 250}} {
		p, err := clip.Apply(grey(size[0], size[1]), 0)
		require.NoError(t, err, size)
		tensor := clip.Tensor("pixel_values", p)
		require.NoError(t, tensor.Check())
		require.Equal(t, []int{3, 224, 224}, tensor.Shape)
	}
}

func TestAFrameOfAVideoIsTakenAndNotWrittenTo(t *testing.T) {
	t.Parallel()
	px := &rewards.Pixels{Width: 1, Height: 2, Count: 2, RGB: []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
	p, err := recipe().Apply(px, 1)
	require.NoError(t, err)
	require.Equal(t, []byte{7, 10, 8, 11, 9, 12}, p.CHW())
	_, err = recipe(imageproc.Step{Op: imageproc.OpResize, Width: 3, Height: 3, Filter: imageproc.Lanczos}).Apply(px, 0)
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, px.RGB)
}

func FuzzRecipe(f *testing.F) {
	f.Add([]byte(`{"steps": [{"op": "resize_shortest", "size": 24, "filter": "bicubic"}, {"op": "center_crop", "width": 24, "height": 30}], "rescale": 1, "mean": [0,0,0], "std": [1,1,1]}`))
	f.Add([]byte(`{"steps": [{"op": "pad", "width": 9, "height": 20, "value": 7, "position": "top_left"}, {"op": "resize_longest", "size": 5, "filter": "box"}], "rescale": 0.5, "mean": [0,0,0], "std": [1,1,1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r imageproc.Recipe
		if err := r.UnmarshalJSON(data); err != nil {
			require.Zero(t, r)
			return
		}
		require.NoError(t, r.Validate())
		area := 0
		for _, s := range r.Steps {
			area = max(area, s.Size, s.Width, s.Height)
		}
		if area > 200 || len(r.Steps) > 4 {
			return // right, but slow
		}
		p, err := r.Apply(grey(7, 5), 0)
		if err != nil {
			require.ErrorIs(t, err, rewards.BadInput)
			return
		}
		tensor := r.Tensor("x", p)
		require.NoError(t, tensor.Check())
	})
}
