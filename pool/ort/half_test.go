//go:build cgo

package ort_test

import (
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// nearHalf is how far numbers of F16 may be from those of F32.
const nearHalf = 2e-2

// numbersOfHalf are the numbers of F16 without infinities and NaN, 63,488 of them, by the
// definition of binary16.
func numbersOfHalf() []float32 {
	var out []float32
	for bits := range 1 << 15 {
		exponent, mantissa := bits>>10, float64(bits&0x3ff)
		v := math.Ldexp(1024+mantissa, exponent-25)
		switch exponent {
		case 0:
			v = math.Ldexp(mantissa, -24)
		case 0x1f:
			continue
		}
		out = append(out, float32(v), float32(math.Copysign(v, -1)))
	}
	return out
}

func TestEveryNumberOfF16GoesInAndComesOutAsItIs(t *testing.T) {
	t.Parallel()
	all := numbersOfHalf()
	require.Len(t, all, 63488)
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		for _, rows := range []int{2, 64, 2} { // shapes that are not foreseen, and one that is
			in := infer.Floats("x", all, rows, len(all)/rows)
			out, err := d.Run(t.Context(), model("half_echo"), infer.Batch{Names: make([]string, rows), Inputs: []infer.Tensor{in}, Outputs: []string{"y"}})
			require.NoError(t, err)
			require.Len(t, out, 1)
			require.Equal(t, infer.F32, out[0].DType)
			require.Equal(t, []int{rows, len(all) / rows}, out[0].Shape)
			for i, v := range out[0].F32 {
				require.Equal(t, math.Float32bits(all[i]), math.Float32bits(v), "%v became %v", all[i], v)
			}
		}
	})
}

func TestAModelOfF16SaysSo(t *testing.T) {
	t.Parallel()
	s := open(t, "half_echo")
	require.Equal(t, []infer.Port{{Name: "x", DType: "F16", Shape: []int{-1, -1}}}, s.Info().Inputs)
	require.Equal(t, []infer.Port{{Name: "y", DType: "F16", Shape: []int{-1, -1}}, {Name: "sum", DType: "F16", Shape: []int{}}}, s.Info().Outputs)
	for range 3 {
		out := normal(outputs(t, s, infer.AsIs, infer.Floats("", []float32{1, 2, 3, 0.1}, 2, 2)))
		const tenth = 0.0999755859375
		require.Equal(t, []infer.Tensor{infer.Floats("y", []float32{1, 2, 3, tenth}, 2, 2), infer.Floats("sum", []float32{6.1015625}, []int{}...)}, out)
	}
	out := outputs(t, s, infer.AsIs, infer.Floats("x", nil, 0, 3))
	require.Equal(t, []int{0, 3}, out[0].Shape)
	require.Equal(t, []infer.Tensor{
		{Name: "half", DType: infer.I32, Shape: []int{2}, I32: []int32{1, 0}}, infer.Floats("half.max", []float32{2, 5}, 2),
	}, outputs(t, open(t, "halves"), infer.ArgMax, infer.Floats("x", []float32{1, 2, 5, 4}, 2, 2)))
	_, err := openModel(t, infer.Model{Name: "half_echo", Path: fixture("half_echo")}, infer.Info{Inputs: []infer.Port{{Name: "x", DType: "F32", Shape: []int{-1, -1}}}})
	require.NoError(t, err, "floats are what is wanted of it")
}

func TestANumberBeyondF16IsTheItemsFault(t *testing.T) {
	t.Parallel()
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		m := model("half_log")
		run := func(x ...float32) error {
			_, err := d.Run(t.Context(), m, infer.Batch{Names: []string{"sample 7"}, Inputs: []infer.Tensor{infer.Floats("x", x, 1, 2)}})
			return err
		}
		require.NoError(t, run(1, 65519))
		err := run(1, -65520)
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, `input [x F16[-1 2]]: model input refused: -65520 at 1 is beyond F16, which ends at 65504`)
		require.ErrorContains(t, err, "sample 7")
		require.ErrorIs(t, run(1, float32(math.NaN())), infer.ErrInput)
		require.ErrorIs(t, run(1, float32(math.Inf(1))), infer.ErrInput)
		tiny := &infer.Normalize{Rescale: 1, Mean: []float32{0}, Std: []float32{1e-6}, Inner: 2}
		_, err = d.Run(t.Context(), m, infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{{Name: "x", DType: infer.U8, Shape: []int{1, 2}, U8: []byte{1, 2}, Norm: tiny}}})
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, "[x F16[-1 2]]")
		require.Zero(t, d.opener.Stats()["cpu"].Crashes)
		// What the model makes of good numbers is its own.
		err = run(1, -1)
		require.ErrorIs(t, err, infer.ErrFault)
		require.ErrorContains(t, err, `output "y" has NaN at 1`)
	})
}

func TestATensorOfAnotherTypeThanFloatsIsRefusedWhereAPortIsOfF16(t *testing.T) {
	t.Parallel()
	s := open(t, "half_echo")
	for _, bad := range []infer.Tensor{
		{Name: "x", DType: infer.U8, Shape: []int{1, 2}, U8: []byte{1, 2}},
		{Name: "x", DType: infer.I64, Shape: []int{1, 2}, I64: []int64{1, 2}},
	} {
		_, err := s.Run(t.Context(), infer.Batch{Inputs: []infer.Tensor{bad}})
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, `cannot take its input "x": the model takes [x F16[-1 -1]]`)
	}
	_, err := s.Run(t.Context(), infer.Batch{Inputs: []infer.Tensor{{Name: "x", DType: infer.F16, Shape: []int{1, 2}, U8: make([]byte, 4)}}})
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, `has type "F16", want F32`)
}

func TestAPortThatCannotBePassedOnIsNamedAtLoadWithItsType(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"brain":       `"y" is a tensor of BF16, want F32, F16,`,
		"half_scalar": `"by" is a tensor of F16 without axes`,
	} {
		m := infer.Model{Name: name, Path: fixture(name)}
		_, err := openModel(t, m, infer.Info{})
		require.ErrorIs(t, err, infer.ErrModel)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, m.Path)
	}
}

func TestAModelOfF16MayKeepItsWeightsInAFileBesideIt(t *testing.T) {
	t.Parallel()
	require.Equal(t, []infer.Tensor{infer.Floats("y", []float32{7, 10}, 1, 2)}, outputs(t, open(t, "outside"), infer.AsIs, infer.Floats("x", []float32{1, 2}, 1, 2)))
}

// picturesOf are n pictures as bytes for an encoder of images.
func picturesOf(n, side int, outputs ...string) infer.Batch {
	return infer.Batch{
		Names:   make([]string, n),
		Inputs:  []infer.Tensor{{Name: "pixel_values", DType: infer.U8, Shape: []int{n, 3, side, side}, U8: noise(n * 3 * side * side), Norm: clip(side * side)}},
		Outputs: outputs,
	}
}

func TestAnEncoderOfImagesInF16AnswersAsItDoesInF32(t *testing.T) {
	t.Parallel()
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		for _, b := range []infer.Batch{picturesOf(1, 16), picturesOf(3, 32, "image_embeds"), picturesOf(3, 32), picturesOf(2, 64, "image_embeds", "last_hidden_state")} {
			want, err := d.Run(t.Context(), model("vit"), b)
			require.NoError(t, err)
			for range 2 {
				got, err := d.Run(t.Context(), model("vit_fp16"), b)
				require.NoError(t, err)
				require.Len(t, got, len(want))
				for i := range got {
					require.Equal(t, want[i].Name, got[i].Name)
					require.Equal(t, want[i].Shape, got[i].Shape)
					require.InDeltaSlice(t, want[i].F32, got[i].F32, nearHalf)
				}
			}
		}
	})
}

func TestBytesAreNormalisedStraightIntoHalfPrecision(t *testing.T) {
	t.Parallel()
	b := picturesOf(2, 8)
	in := b.Inputs[0]
	in.Name, in.Shape = "x", []int{2, 3 * 64}
	got := outputs(t, open(t, "half_echo"), infer.AsIs, in)[0]
	floats := make([]float32, in.Len())
	in.Norm.Into(floats, in.U8)
	plain := outputs(t, open(t, "half_echo"), infer.AsIs, infer.Floats("x", floats, in.Shape...))[0]
	require.Equal(t, plain, got)
	require.InDeltaSlice(t, floats, got.F32, 2e-3)
}

// A run takes the memory that the one before gave back: there is none for each byte.
func TestARunInHalfPrecisionMakesNoMemoryOfItsOwn(t *testing.T) { //nolint:paralleltest // it counts the process's memory
	s := open(t, "half_echo")
	const n = 1 << 20
	b := infer.Batch{Inputs: []infer.Tensor{{Name: "x", DType: infer.U8, Shape: []int{1, n}, U8: noise(n), Norm: &infer.Normalize{Rescale: 1.0 / 255, Mean: []float32{0.5}, Std: []float32{0.5}, Inner: 1}}}}
	run := func() {
		a, err := s.Run(t.Context(), b)
		require.NoError(t, err)
		a.Release()
	}
	run() // whose output ONNX Runtime makes
	run()
	const runs = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		run()
	}
	runtime.ReadMemStats(&after)
	each := (after.TotalAlloc - before.TotalAlloc) / runs
	t.Logf("a run over %d bytes allocates %d bytes in %d pieces", n, each, (after.Mallocs-before.Mallocs)/runs)
	require.Less(t, each, uint64(n/16))
}
