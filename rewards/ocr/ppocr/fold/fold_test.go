package fold_test

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr/fold"
)

// block is a piece of PP-OCRv4's backbone: a convolution, its scale and shift, a hard
// swish, another scale and shift, and what follows.
func block(next ...op) model {
	r := rand.New(rand.NewPCG(1, 2))
	return model{
		consts: map[string]array{
			"w": filled(r, 4, 3, 3, 3), "b": filled(r, 4), "s1": one(1.7), "t1": one(-.4), "s2": one(.6), "t2": one(.3),
			"zero": one(0), "three": one(3), "six": one(6), "w2": filled(r, 2, 4, 1, 1), "b2": filled(r, 2), "wd": filled(r, 4, 1, 3, 3),
			"gamma": filled(r, 2), "beta": filled(r, 2), "mean": filled(r, 2), "var": {dims: []int{2}, data: []float32{.5, 2}},
			"wt": filled(r, 2, 3, 2, 2), "bt": filled(r, 1, 3, 1, 1), "wg": filled(r, 4, 4, 1, 1),
		},
		ops: append([]op{
			{"Conv", []string{"x", "w", "b"}, "c1", attrs{"pads": {1, 1, 1, 1}}},
			{"Mul", []string{"s1", "c1"}, "m1", nil},
			{"Add", []string{"m1", "t1"}, "a1", nil},
			{"Add", []string{"a1", "three"}, "h1", nil},
			{"Clip", []string{"h1", "zero", "six"}, "h2", nil},
			{"Mul", []string{"a1", "h2"}, "h3", nil},
			{"Div", []string{"h3", "six"}, "h4", nil},
			{"Mul", []string{"s2", "h4"}, "m2", nil},
			{"Add", []string{"m2", "t2"}, "a2", nil},
		}, next...),
	}
}

// same folds a model, checks that it computes the same, and returns the kinds of its
// operations in their order.
func same(t *testing.T, m model) (string, fold.Report) {
	t.Helper()
	out, r, err := fold.Model(m.encode())
	require.NoError(t, err)
	again, r2, err := fold.Model(m.encode())
	require.NoError(t, err)
	require.Equal(t, out, again, "the same every time")
	require.Equal(t, r, r2)
	folded := decode(t, out)
	x := filled(rand.New(rand.NewPCG(3, 4)), 1, 3, 6, 5)
	want, got := m.run(t, x), folded.run(t, x)
	require.Equal(t, want.dims, got.dims)
	for i, v := range want.data {
		require.InDelta(t, v, got.data[i], 2e-5*math.Max(1, math.Abs(float64(v))))
	}
	var kinds []string
	for _, o := range folded.ops {
		if o.kind != "Constant" {
			kinds = append(kinds, o.kind)
		}
	}
	return strings.Join(kinds, " "), r
}

func TestABlockIsFoldedIntoTheConvolutionsAroundIt(t *testing.T) {
	t.Parallel()
	kinds, r := same(t, block(op{"Conv", []string{"a2", "w2", "b2"}, "y", nil}))
	assert.Equal(t, "Conv HardSigmoid Mul Conv", kinds)
	assert.Equal(t, fold.Report{HardSwish: 1, Before: 2, After: 1}, r)
}

func TestAConvolutionThatPadsGetsANormalisationBeforeIt(t *testing.T) {
	t.Parallel()
	kinds, r := same(t, block(op{"Conv", []string{"a2", "wd"}, "y", attrs{"pads": {1, 1, 1, 1}, "group": {4}}}))
	assert.Equal(t, "Conv HardSigmoid Mul BatchNormalization Conv", kinds)
	assert.Equal(t, fold.Report{HardSwish: 1, Before: 2, Normal: 1}, r)
}

func TestTwoUsersOfWhichOnePadsGetANormalisation(t *testing.T) {
	t.Parallel()
	kinds, _ := same(t, block(
		op{"Conv", []string{"a2", "wd"}, "u", attrs{"pads": {1, 1, 1, 1}, "group": {4}}},
		op{"Conv", []string{"a2", "wg"}, "v", nil},
		op{"Add", []string{"u", "v"}, "y", nil},
	))
	assert.Equal(t, "Conv HardSigmoid Mul BatchNormalization Conv Conv Add", kinds) //nolint:dupword // two convolutions
}

func TestNormalisationsAndBiasesGoIntoConvolutionsOfBothKinds(t *testing.T) {
	t.Parallel()
	kinds, r := same(t, block(
		op{"Conv", []string{"a2", "w2"}, "c2", nil},
		op{"BatchNormalization", []string{"c2", "gamma", "beta", "mean", "var"}, "n", nil},
		op{"ConvTranspose", []string{"n", "wt"}, "ct", attrs{"strides": {2, 2}, "kernel_shape": {2, 2}}},
		op{"Add", []string{"ct", "bt"}, "y", nil},
	))
	assert.Equal(t, "Conv HardSigmoid Mul Conv ConvTranspose", kinds)
	assert.Equal(t, 4, r.Before)
}

func TestAScaleOfChannelsIsOneProductAndAMeanIsAPool(t *testing.T) {
	t.Parallel()
	kinds, r := same(t, block(
		op{"Conv", []string{"a2", "wg"}, "c", nil},
		op{"ReduceMean", []string{"c"}, "p", attrs{"axes": {2, 3}, "keepdims": {1}}},
		op{"Conv", []string{"p", "wg"}, "q", nil},
		op{"HardSigmoid", []string{"q"}, "g", nil},
		op{"Mul", []string{"c", "g"}, "cg", nil},
		op{"Add", []string{"c", "cg"}, "y", nil},
	))
	assert.Equal(t, "Conv HardSigmoid Mul Conv GlobalAveragePool Conv HardSigmoid Add Mul", kinds)
	assert.Equal(t, fold.Report{HardSwish: 1, Before: 2, After: 1, Scale: 1, Pool: 1}, r)
}

func TestNamesThatOnlyHandOnAreGone(t *testing.T) {
	t.Parallel()
	m := block(op{"Conv", []string{"a2", "w2", "b2"}, "y", nil})
	m.ops[0].in[1] = "w.same"
	m.ops = append([]op{{"Identity", []string{"w"}, "w.same", nil}}, m.ops...)
	m.ops = append(m.ops[:3], append([]op{{"Identity", []string{"m1"}, "m1.same", nil}}, m.ops[3:]...)...)
	m.ops[4].in[0] = "m1.same"
	kinds, _ := same(t, m)
	assert.Equal(t, "Conv HardSigmoid Mul Conv", kinds)
}

func TestWhatSomebodyElseUsesStays(t *testing.T) {
	t.Parallel()
	m := block(op{"Conv", []string{"a2", "w2", "b2"}, "y0", nil}, op{"Concat", []string{"y0", "c1"}, "y", attrs{"axis": {1}}})
	kinds, _ := same(t, m) // c1 is read twice
	assert.Equal(t, "Conv BatchNormalization HardSigmoid Mul Conv Concat", kinds)
	m = block(op{"Conv", []string{"a2", "w2", "b2"}, "y0", nil}, op{"Concat", []string{"y0", "h2"}, "y", attrs{"axis": {1}}})
	kinds, r := same(t, m)
	assert.Contains(t, kinds, "Clip")
	assert.Zero(t, r.HardSwish)
}

func TestSubnormalWeightsBecomeZero(t *testing.T) {
	t.Parallel()
	m := block(op{"Conv", []string{"a2", "w2", "b2"}, "y", nil})
	m.ops = []op{{"Conv", []string{"x", "w", "b"}, "y", attrs{"pads": {1, 1, 1, 1}}}}
	w := m.consts["w"]
	w.data[5], w.data[6] = 1e-39, -1e-45
	for _, inNodes := range []bool{false, true} {
		m.inNodes = inNodes
		out, r, err := fold.Model(m.encode())
		require.NoError(t, err)
		require.Equal(t, fold.Report{Subnormal: 1}, r)
		got := decode(t, out).consts["w"]
		require.Equal(t, w.dims, got.dims)
		assert.Zero(t, got.data[5])
		assert.Zero(t, got.data[6])
		assert.InDelta(t, w.data[7], got.data[7], 0)
	}
}

func TestWhatIsNotKnownIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	plain := block(op{"Conv", []string{"a2", "w2", "b2"}, "y", nil})
	for name, change := range map[string]func(m *model){
		"old version":    func(m *model) { m.opset = 9 },
		"new version":    func(m *model) { m.opset = 25 },
		"nothing to do":  func(m *model) { m.ops = []op{{"Relu", []string{"x"}, "y", nil}} },
		"graph in nodes": func(m *model) { m.nested = true },
		"weights apart":  func(m *model) { m.external = true },
	} {
		m := plain
		m.ops = append([]op{}, plain.ops...)
		change(&m)
		data := m.encode()
		out, r, err := fold.Model(data)
		require.NoError(t, err, name)
		assert.False(t, r.Changed(), name)
		assert.Equal(t, data, out, name)
	}
}

// Divided by a six of five axes the result has five axes.
func TestANumberThatAddsAxesIsNoNumber(t *testing.T) {
	t.Parallel()
	m := block(op{"Conv", []string{"a2", "w2", "b2"}, "y", nil})
	m.consts["deep six"] = array{dims: []int{1, 1, 1, 1, 1}, data: []float32{6}}
	m.ops[6].in[1] = "deep six"
	out, r, err := fold.Model(m.encode())
	require.NoError(t, err)
	assert.Zero(t, r.HardSwish)
	assert.Contains(t, decode(t, out).consts, "deep six")
}

func TestADefaultOfAnInputIsNoConstant(t *testing.T) {
	t.Parallel()
	m := block(op{"Conv", []string{"a2", "w2", "b2"}, "y", nil})
	m.inputs = []string{"s1", "w2"}
	kinds, r := same(t, m)
	assert.Equal(t, "Conv Mul Add HardSigmoid Mul Mul Add Conv", kinds) //nolint:dupword // two products
	assert.Zero(t, r.Before)
}

func TestWhatIsNoModelIsAnError(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "x", "\x3a\x05ab", "\x08\x07", strings.Repeat("\xff", 40)} {
		_, _, err := fold.Model([]byte(data))
		require.Error(t, err, "%q", data)
	}
}

func TestAFileIsFoldedOnceAndMendedWhenItIsSpoilt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, folder := filepath.Join(dir, "m.onnx"), filepath.Join(dir, "a", "b")
	require.NoError(t, os.WriteFile(source, block(op{"Conv", []string{"a2", "w2", "b2"}, "y", nil}).encode(), 0o600))
	path, sum, err := fold.File(source, "", folder)
	require.NoError(t, err)
	require.Equal(t, folder, filepath.Dir(path))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data[:20], 0o600))
	path2, sum2, err := fold.File(source, "", folder)
	require.NoError(t, err)
	require.Equal(t, []string{path, sum}, []string{path2, sum2})
	mended, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, data, mended)
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing is left over")

	path3, sum3, err := fold.File(path, "", folder)
	require.NoError(t, err)
	require.Equal(t, []string{path, sum}, []string{path3, sum3}, "a folded model is not folded again")

	_, _, err = fold.File(source, strings.Repeat("0", 64), folder)
	require.ErrorContains(t, err, "SHA-256 is")
	_, _, err = fold.File(source+".none", "", folder)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	_, _, err = fold.File(source, "", filepath.Join(dir, "file"))
	require.ErrorContains(t, err, source, "a folder that cannot be made")
}

// TestPPOCRsModelsAreFolded looks at the models in the folder REWARDLOOP_MODELS.
func TestPPOCRsModelsAreFolded(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("REWARDLOOP_MODELS")
	for name, want := range map[string]fold.Report{
		"ch_PP-OCRv4_det_mobile": {Subnormal: 4, HardSwish: 24, Scale: 8, Before: 61, After: 10, Normal: 14},
		"ch_PP-OCRv4_rec_mobile": {Subnormal: 10, HardSwish: 28, Before: 62, After: 12, Normal: 16},
		"PP-OCRv6_det_small":     {Subnormal: 7, Scale: 8, Pool: 5, Before: 77},
		"PP-OCRv6_rec_small":     {Subnormal: 2, Pool: 5, Before: 57},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(find(folder, name+".onnx"))
			if err != nil {
				t.Skipf("SKIPPED: no %s.onnx below REWARDLOOP_MODELS=%q", name, folder)
			}
			out, r, err := fold.Model(data)
			require.NoError(t, err)
			assert.Equal(t, want, r)
			_, again, err := fold.Model(out)
			require.NoError(t, err)
			assert.False(t, again.Changed(), "%v", again)
		})
	}
}

// find looks for a file below a folder.
func find(folder, name string) string {
	found := name
	if folder != "" {
		_ = filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
			if err == nil && filepath.Base(path) == name {
				found = path
			}
			return nil
		})
	}
	return found
}

func FuzzModel(f *testing.F) {
	f.Add(block(op{"Conv", []string{"a2", "w2", "b2"}, "y", nil}).encode())
	f.Add(block(op{"Conv", []string{"a2", "wd"}, "y", attrs{"pads": {1, 1, 1, 1}}}).encode())
	f.Add([]byte("\x3a\x02\x0a\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		out, r, err := fold.Model(data)
		if err != nil || !r.Changed() {
			return
		}
		if _, _, err := fold.Model(out); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}
