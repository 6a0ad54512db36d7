package infer_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
)

func TestStackedItemsComeApartAgain(t *testing.T) {
	t.Parallel()
	a := infer.Request{Name: "a", Inputs: []infer.Tensor{infer.Floats("x", []float32{1, 2, 3}, 3), {Name: "n", DType: infer.I64, Shape: []int{}, I64: []int64{7}}}}
	b := infer.Request{Name: "b", Inputs: []infer.Tensor{infer.Floats("x", []float32{4, 5, 6}, 3), {Name: "n", DType: infer.I64, Shape: []int{}, I64: []int64{8}}}}
	batch, err := infer.Stack([]infer.Request{a, b})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, batch.Names)
	require.Equal(t, []int{2, 3}, batch.Inputs[0].Shape)
	require.Equal(t, []int{2}, batch.Inputs[1].Shape)
	row, err := batch.Inputs[0].Row(1)
	require.NoError(t, err)
	require.Equal(t, b.Inputs[0], row)
	row, err = batch.Inputs[1].Row(0)
	require.NoError(t, err)
	require.Equal(t, a.Inputs[1], row)
	_, err = batch.Inputs[0].Row(2)
	require.ErrorIs(t, err, infer.ErrFault)
}

func TestItemsOfDifferentShapesAreNotStacked(t *testing.T) {
	t.Parallel()
	a := infer.Request{Name: "a", Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 6), 2, 3)}}
	b := infer.Request{Name: "b", Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 6), 3, 2)}}
	_, err := infer.Stack([]infer.Request{a, b})
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, `"b"`)
	_, err = infer.Stack(nil)
	require.ErrorIs(t, err, infer.ErrInput)
}

func TestATensorWhoseDataDoesNotFillItsShapeIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []infer.Tensor{
		infer.Floats("x", make([]float32, 5), 2, 3),
		infer.Floats("x", nil, -1),
		infer.Floats("x", nil, 1<<20, 1<<20),
		{Name: "x", DType: "F16", Shape: []int{1}},
	} {
		require.ErrorIs(t, bad.Check(), infer.ErrInput)
	}
	require.NoError(t, infer.Floats("x", nil, 0, 3).Check())
}

func TestAShapeBeyondWhatAnyModelNeedsHasNoNumberOfElements(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1, infer.Elements(nil))
	require.Equal(t, math.MaxInt32, infer.Elements([]int{math.MaxInt32}))
	for _, bad := range [][]int{{1 << 16, 1 << 15}, {math.MaxInt32, 2}, {math.MaxInt32, math.MaxInt32, math.MaxInt32}, {3, -1}} {
		require.Equal(t, -1, infer.Elements(bad), "%v", bad)
	}
}

func TestItemsThatWantOtherOutputsOrOtherPixelsAreOfOtherKeys(t *testing.T) {
	t.Parallel()
	pixels := infer.Tensor{Name: "x", DType: infer.U8, Shape: []int{3, 1, 1}, U8: make([]byte, 3)}
	norm := func(mean float32) *infer.Normalize {
		return &infer.Normalize{Rescale: 1.0 / 255, Mean: []float32{mean, 0, 0}, Std: []float32{1, 1, 1}, Inner: 1}
	}
	other := pixels
	other.Norm = norm(0)
	third := pixels
	third.Norm = norm(0.5)
	seen := make(map[string]bool)
	all := []infer.Request{
		{Inputs: []infer.Tensor{pixels}},
		{Inputs: []infer.Tensor{other}},
		{Inputs: []infer.Tensor{third}},
		{Inputs: []infer.Tensor{pixels}, Outputs: []string{"a"}},
		{Inputs: []infer.Tensor{pixels}, Outputs: []string{"a", "b"}},
		{Inputs: []infer.Tensor{pixels}, Outputs: []string{"b", "a"}},
		{Inputs: []infer.Tensor{pixels}, Outputs: []string{`a"<"b`}},
		{Inputs: []infer.Tensor{pixels}, Generate: &infer.Generate{Keep: 1}},
		{Inputs: []infer.Tensor{pixels}, Generate: &infer.Generate{Keep: 1, Pick: []int64{1}}},
		{Inputs: []infer.Tensor{pixels}, Generate: &infer.Generate{Keep: 1, Stop: []int64{1}}},
	}
	for _, r := range all {
		seen[r.Key()] = true
	}
	require.Len(t, seen, len(all))
	batch, err := infer.Stack(all[4:5])
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, batch.Outputs)
}

func TestTruthValuesAreZeroOrOne(t *testing.T) {
	t.Parallel()
	mask := infer.Tensor{Name: "mask", DType: infer.Bool, Shape: []int{3}, U8: []byte{0, 1, 1}}
	require.NoError(t, mask.Check())
	mask.U8[2] = 2
	require.ErrorIs(t, mask.Check(), infer.ErrInput)
	require.ErrorContains(t, mask.Check(), `tensor "mask" is BOOL and has 2 at 2`)
}

func TestANormalisationThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	good := infer.Normalize{Rescale: 1, Mean: []float32{0, 0, 0}, Std: []float32{1, 1, 1}, Inner: 4}
	for name, change := range map[string]func(*infer.Tensor){
		"floats":      func(t *infer.Tensor) { t.DType, t.F32 = infer.F32, make([]float32, 24) },
		"half of one": func(t *infer.Tensor) { t.Norm.Inner = 5 },
		"no channels": func(t *infer.Tensor) { t.Norm.Mean, t.Norm.Std = nil, nil },
		"zero":        func(t *infer.Tensor) { t.Norm.Std[1] = 0 },
		"nan":         func(t *infer.Tensor) { t.Norm.Mean[1] = float32(math.NaN()) },
		"infinity":    func(t *infer.Tensor) { t.Norm.Rescale = math.Inf(1) },
		"no elements": func(t *infer.Tensor) { t.Norm.Inner = 0 },
		"overflow":    func(t *infer.Tensor) { t.Norm.Inner = math.MaxInt },
	} {
		n := good
		n.Mean, n.Std = slices.Clone(good.Mean), slices.Clone(good.Std)
		tensor := infer.Tensor{Name: "x", DType: infer.U8, Shape: []int{2, 3, 2, 2}, U8: make([]byte, 24), Norm: &n}
		require.NoError(t, tensor.Check())
		change(&tensor)
		require.ErrorIs(t, tensor.Check(), infer.ErrInput, name)
	}
}

func TestBytesBecomeNumbersChannelByChannel(t *testing.T) {
	t.Parallel()
	n := &infer.Normalize{Rescale: 1.0 / 255, Mean: []float32{0.5, 0.25, 0.125}, Std: []float32{0.5, 2, 0.3}}
	src := make([]byte, 2*3*256)
	for i := range src {
		src[i] = byte(i * 7)
	}
	for _, n.Inner = range []int{1, 2, 256, 512} {
		dst := make([]float32, len(src))
		n.Into(dst, src)
		for i, v := range src {
			c := i / n.Inner % 3
			require.Equal(t, (float32(float64(v)/255)-n.Mean[c])/n.Std[c], dst[i], "%d of %d", i, n.Inner) //nolint:testifylint // to the bit
		}
	}
}

// 16 pictures of 224².
func BenchmarkNormalize(b *testing.B) {
	for name, inner := range map[string]int{"chw": 224 * 224, "hwc": 1, "patches": 2 * 14 * 14} {
		b.Run(name, func(b *testing.B) {
			n := &infer.Normalize{Rescale: 1.0 / 255, Mean: []float32{0.5, 0.5, 0.5}, Std: []float32{0.5, 0.5, 0.5}, Inner: inner}
			src := make([]byte, 16*3*224*224)
			dst := make([]float32, len(src))
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				n.Into(dst, src)
			}
		})
	}
}

// asking is a prompt of four tokens with two images' places.
func asking() infer.Request {
	return infer.Request{
		Inputs: []infer.Tensor{
			{Name: "input_ids", DType: infer.I64, Shape: []int{4}, I64: []int64{1, 9, 9, 2}},
			infer.Floats("image_features", make([]float32, 6), 2, 3),
			{Name: "position_ids", DType: infer.I64, Shape: []int{3, 4}, I64: make([]int64, 12)},
		},
		Generate: &infer.Generate{ImageToken: 9, Keep: 4},
	}
}

func TestAPromptIsRefusedWithWhatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	require.NoError(t, asking().Check())
	for says, change := range map[string]func(*infer.Request){
		"no inputs":                    func(r *infer.Request) { r.Inputs = nil },
		"has 3 elements for shape [4]": func(r *infer.Request) { r.Inputs[0].I64 = r.Inputs[0].I64[:3] },
		`takes "input_ids" as I64[L]`:  func(r *infer.Request) { r.Inputs = r.Inputs[1:] },
		`"input_ids" as I64[L] with`:   func(r *infer.Request) { r.Inputs[0].Shape = []int{2, 2} },
		"L above 0": func(r *infer.Request) {
			r.Inputs[0] = infer.Tensor{Name: "input_ids", DType: infer.I64, Shape: []int{0}}
		},
		`"input_ids" has -2 at 3`:                      func(r *infer.Request) { r.Inputs[0].I64[3] = -2 },
		"want I64[4] or I64[3 4]":                      func(r *infer.Request) { r.Inputs[2].Shape = []int{4, 3} },
		`"position_ids" has -1 at 11`:                  func(r *infer.Request) { r.Inputs[2].I64[11] = -1 },
		`duplicate name "input_ids"`:                   func(r *infer.Request) { r.Inputs[2] = r.Inputs[0] },
		`got "mask"`:                                   func(r *infer.Request) { r.Inputs[2].Name = "mask" },
		"has 1 rows":                                   func(r *infer.Request) { r.Inputs[1] = infer.Floats("image_features", make([]float32, 3), 1, 3) },
		"want F32[N D]":                                func(r *infer.Request) { r.Inputs[1].Shape = []int{1, 2, 3} },
		`2 image tokens 9 but no`:                      func(r *infer.Request) { r.Inputs = r.Inputs[:1] },
		"last 5 positions of a prompt":                 func(r *infer.Request) { r.Generate.Keep = 5 },
		"logits of 0 positions":                        func(r *infer.Request) { r.Generate.Keep = 0 },
		"9000 new tokens":                              func(r *infer.Request) { r.Generate.MaxNew = 9000 },
		"21 alternatives":                              func(r *infer.Request) { r.Generate.Top = 21 },
		"5000 tokens picked":                           func(r *infer.Request) { r.Generate.Pick = make([]int64, 5000) },
		"must have no reduction and must not be Whole": func(r *infer.Request) { r.Reduce = infer.ArgMax },
		"must not be Whole":                            func(r *infer.Request) { r.Whole = true },
	} {
		r := asking()
		change(&r)
		require.ErrorIs(t, r.Check(), infer.ErrInput, says)
		require.ErrorContains(t, r.Check(), says)
	}
	text := asking()
	text.Inputs, text.Generate.ImageToken = text.Inputs[:1], 0
	text.Inputs[0].I64[0] = 0 // a model for text, whose token 0 is a token
	require.NoError(t, text.Check())
	text.Generate = nil // any inputs, for a graph
	require.NoError(t, text.Check())
}
