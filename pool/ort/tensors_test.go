//go:build cgo

package ort_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
)

// eitherWay runs f with a run in a child, and in this process.
func eitherWay(t *testing.T, f func(t *testing.T, d *device)) {
	t.Helper()
	for _, isolation := range isolations() {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			f(t, openCPU(t, ort.Config{Isolation: isolation}))
		})
	}
}

func TestTruthValuesGoInAndComeOut(t *testing.T) {
	t.Parallel()
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		mask := infer.Tensor{Name: "mask", DType: infer.Bool, Shape: []int{2, 3}, U8: []byte{1, 0, 0, 1, 1, 1}}
		b := infer.Batch{Names: []string{"a", "b"}, Inputs: []infer.Tensor{mask}}
		for range 3 { // the first has ORT make the outputs, the others memory of ours
			out, err := d.Run(t.Context(), model("flags"), b)
			require.NoError(t, err)
			require.Equal(t, []infer.Tensor{
				{Name: "not", DType: infer.Bool, Shape: []int{2, 3}, U8: []byte{0, 1, 1, 0, 0, 0}},
				{Name: "count", DType: infer.I64, Shape: []int{2}, I64: []int64{1, 3}},
			}, out)
		}
		info, err := d.Load(t.Context(), model("flags"))
		require.NoError(t, err)
		require.Equal(t, []infer.Port{{Name: "mask", DType: "BOOL", Shape: []int{-1, -1}}}, info.Inputs)

		b.Inputs[0].U8 = []byte{1, 0, 0, 1, 255, 1}
		_, err = d.Run(t.Context(), model("flags"), b)
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, `tensor "mask" is BOOL and has 255 at 4`)
		b.Inputs[0].DType = infer.U8
		_, err = d.Run(t.Context(), model("flags"), b)
		require.ErrorIs(t, err, infer.ErrInput)
	})
}

func TestTensorsWithoutElementsGoInAndComeOut(t *testing.T) {
	t.Parallel()
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		for range 3 {
			out, err := d.Run(t.Context(), model("flags"), infer.Batch{Names: []string{"a", "b"}, Inputs: []infer.Tensor{{Name: "mask", DType: infer.Bool, Shape: []int{2, 0}}}})
			require.NoError(t, err)
			require.Equal(t, []int{2, 0}, out[0].Shape)
			require.Empty(t, out[0].U8)
			require.Equal(t, []int64{0, 0}, out[1].I64)

			out, err = d.Run(t.Context(), model("echo"), infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{infer.Floats("x", nil, 1, 3, 0, 64)}})
			require.NoError(t, err)
			require.Equal(t, []int{1, 3, 0, 64}, out[0].Shape)
			require.Empty(t, out[0].F32)

			none := infer.Tensor{Name: "x", DType: infer.U8, Shape: []int{1, 3, 0, 64}, Norm: clip(0)}
			none.Norm.Inner = 64
			out, err = d.Run(t.Context(), model("echo"), infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{none}})
			require.NoError(t, err)
			require.Equal(t, []int{1, 3, 0, 64}, out[0].Shape)
		}
	})
}

// clip is the normalisation of CLIP for channels of inner pixels.
func clip(inner int) *infer.Normalize {
	return &infer.Normalize{Rescale: 1.0 / 255, Mean: []float32{0.48145466, 0.4578275, 0.40821073}, Std: []float32{0.26862954, 0.26130258, 0.27577711}, Inner: inner}
}

// noise is n bytes of all values.
func noise(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i*i*31 + i>>3)
	}
	return out
}

func TestBytesAreNormalisedWhereTheModelRuns(t *testing.T) {
	t.Parallel()
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		n := clip(5 * 7)
		in := infer.Tensor{Name: "x", DType: infer.U8, Shape: []int{2, 3, 5, 7}, U8: noise(2 * 3 * 5 * 7), Norm: n}
		want := make([]float32, len(in.U8))
		for i, v := range in.U8 {
			c := i / 35 % 3
			want[i] = (float32(float64(v)*n.Rescale) - n.Mean[c]) / n.Std[c]
		}
		for range 3 {
			out, err := d.Run(t.Context(), model("echo"), infer.Batch{Names: []string{"a", "b"}, Inputs: []infer.Tensor{in}})
			require.NoError(t, err)
			require.Equal(t, []infer.Tensor{infer.Floats("y", want, 2, 3, 5, 7)}, out)
		}
		plain := in
		plain.Norm = nil
		_, err := d.Run(t.Context(), model("echo"), infer.Batch{Names: []string{"a", "b"}, Inputs: []infer.Tensor{plain}})
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, `cannot take its input "x"`)
		_, err = d.Run(t.Context(), model("dtypes"), infer.Batch{Names: []string{"a"}, Inputs: []infer.Tensor{
			infer.Floats("in_f32", []float32{1, 2}, 1, 2),
			{Name: "in_i64", DType: infer.I64, Shape: []int{1, 2}, I64: []int64{1, 2}},
			{Name: "in_i32", DType: infer.I32, Shape: []int{1, 2}, I32: []int32{1, 2}},
			{Name: "in_u8", DType: infer.U8, Shape: []int{1, 2}, U8: []byte{1, 2}, Norm: &infer.Normalize{Rescale: 1, Mean: []float32{0}, Std: []float32{1}, Inner: 1}},
		}})
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, `cannot take its input "in_u8"`)
	})
}

func TestOnlyTheOutputsThatAreWantedTravel(t *testing.T) {
	t.Parallel()
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		const side = 1 << 11 // 48 MiB of hidden state an item: two do not fit into an answer
		b := infer.Batch{
			Names:   []string{"a", "b"},
			Inputs:  []infer.Tensor{{Name: "pixel_values", DType: infer.U8, Shape: []int{2, 3, side, side}, U8: make([]byte, 2*3*side*side), Norm: clip(side * side)}},
			Outputs: []string{"image_embeds"},
		}
		out, err := d.Run(t.Context(), model("tower"), b)
		require.NoError(t, err)
		require.Len(t, out, 1)
		require.Equal(t, "image_embeds", out[0].Name)
		require.InDeltaSlice(t, []float32{-1.7922626, -1.7520971, -1.4802198, -1.7922626, -1.7520971, -1.4802198}, out[0].F32, 0.02) // sums of 4 million floats
		b.Outputs = nil
		_, err = d.Run(t.Context(), model("tower"), b)
		require.ErrorIs(t, err, infer.ErrMemory)

		b.Inputs[0] = infer.Floats("pixel_values", []float32{1, 2, 3}, 1, 3, 1, 1)
		b.Names, b.Outputs = []string{"a"}, []string{"image_embeds", "last_hidden_state"} // in this order
		out, err = d.Run(t.Context(), model("tower"), b)
		require.NoError(t, err)
		require.Equal(t, []infer.Tensor{infer.Floats("image_embeds", []float32{1, 2, 3}, 1, 3), infer.Floats("last_hidden_state", []float32{1, 2, 3}, 1, 3, 1, 1)}, out)
		for _, bad := range [][]string{{"pooler_output"}, {"image_embeds", "image_embeds"}, {""}, strings.Split(strings.Repeat("x ", 1000), " ")} {
			b.Outputs = bad
			_, err = d.Run(t.Context(), model("tower"), b)
			require.ErrorIs(t, err, infer.ErrInput)
			require.ErrorContains(t, err, `"`+bad[0]+`" was requested`)
			require.ErrorContains(t, err, "last_hidden_state F32[-1 3 -1 -1], image_embeds F32[-1 3]")
		}
	})
}

func TestAnInputThatIsAnOutputIsLeftAwayToo(t *testing.T) {
	t.Parallel()
	s := open(t, "through")
	b := infer.Batch{Inputs: []infer.Tensor{infer.Floats("x", []float32{1, 2}, 1, 2)}, Outputs: []string{"y"}}
	for i := range 3 {
		b.Inputs[0].F32[0] = float32(i)
		a, err := s.Run(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, []infer.Tensor{infer.Floats("y", []float32{-float32(i), -2}, 1, 2)}, a.Outputs)
		a.Release()
	}
}
