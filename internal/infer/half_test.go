package infer_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// exact is what the 16 bits of a number in half precision mean, by the definition of
// binary16.
func exact(bits uint16) float64 {
	sign := 1 - 2*float64(bits>>15)
	exponent, mantissa := int(bits>>10&0x1f), float64(bits&0x3ff)
	switch exponent {
	case 0x1f:
		if mantissa != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	case 0:
		return math.Copysign(math.Ldexp(mantissa, -24), sign)
	}
	return sign * math.Ldexp(1024+mantissa, exponent-25)
}

// toHalf converts one number.
func toHalf(v float32) (bits uint16, overflow bool) {
	dst := []uint16{0}
	at := infer.ToHalf(dst, []float32{v})
	return dst[0], at == 0
}

func TestEveryNumberOfHalfPrecisionIsItself(t *testing.T) {
	t.Parallel()
	for bits := range 1 << 16 {
		want := uint16(bits)
		got, overflow := toHalf(float32(exact(want)))
		require.False(t, overflow, "%#04x", want)
		if math.IsNaN(exact(want)) {
			require.True(t, math.IsNaN(exact(got)), "%#04x became %#04x", want, got)
			continue
		}
		require.Equal(t, want, got)
	}
}

func TestWhatIsBetweenTwoNumbersOfHalfPrecisionBecomesTheNearer(t *testing.T) {
	t.Parallel()
	for low := range uint16(infinite) {
		high := low + 1 // the next above
		upper := exact(high)
		if high == infinite {
			upper = 65536 // as if there were one more exponent
		}
		middle := float32((exact(low) + upper) / 2) // exact in float32
		even := low + low&1
		for v, want := range map[float32]uint16{
			math.Nextafter32(middle, 0): low,
			middle:                      even,
			math.Nextafter32(middle, math.MaxFloat32): high,
		} {
			for _, sign := range []uint16{0, 1 << 15} {
				if sign != 0 {
					v = -v
				}
				got, overflow := toHalf(v)
				require.Equal(t, want|sign, got, "%v", v)
				require.Equal(t, want == infinite, overflow, "%v", v)
			}
		}
	}
}

const infinite = 0x7c00

func TestTheFirstNumberThatIsTooLargeForHalfPrecisionIsFound(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	for at, src := range map[int][]float32{
		-1: {65504, -65519, inf, -inf, float32(math.NaN()), 0},
		0:  {65520},
		2:  {inf, 1, -math.MaxFloat32, 1e6},
	} {
		require.Equal(t, at, infer.ToHalf(make([]uint16, len(src)), src), "%v", src)
	}
	require.Equal(t, -1, infer.ToHalf(nil, nil))
	got, _ := toHalf(math.SmallestNonzeroFloat32)
	require.Zero(t, got)
	got, _ = toHalf(float32(math.Copysign(0, -1)))
	require.Equal(t, uint16(1<<15), got)
}

func TestBytesBecomeNumbersOfHalfPrecision(t *testing.T) {
	t.Parallel()
	n := &infer.Normalize{Rescale: 1.0 / 255, Mean: []float32{0.5, 0.25, 0.125}, Std: []float32{0.5, 2, 0.3}}
	src := make([]byte, 2*3*256)
	for i := range src {
		src[i] = byte(i * 7)
	}
	floats, want, got := make([]float32, len(src)), make([]uint16, len(src)), make([]uint16, len(src))
	for _, n.Inner = range []int{1, 2, 256, 512} {
		n.Into(floats, src)
		infer.ToHalf(want, floats)
		require.NoError(t, n.IntoHalves(got, src))
		require.Equal(t, want, got, "%d of a channel", n.Inner)
	}
	n.Std[2] = 1e-6
	err := n.IntoHalves(got, src)
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, "for the byte 0 in channel 2, but the largest F16 number is 65504")
}

func TestAPortOfHalfPrecisionCarriesFloats(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		port, tensor infer.DType
		want         bool
	}{
		{infer.F32, infer.F32, true},
		{infer.F16, infer.F32, true},
		{infer.F16, infer.F16, false}, // there is no such tensor
		{infer.F32, infer.F16, false},
		{infer.F16, infer.U8, false},
		{infer.I64, infer.F32, false},
		{infer.Bool, infer.Bool, true},
	} {
		require.Equal(t, tt.want, infer.Port{DType: string(tt.port)}.Carries(tt.tensor), "%s through %s", tt.tensor, tt.port)
	}
}

func TestPortsOfLayersAreListedOnce(t *testing.T) {
	t.Parallel()
	require.Empty(t, infer.Types(nil))
	require.Equal(t, "inputs_embeds F32, past_key_values F16, past_key_values F32, mask I64", infer.Types([]infer.Port{
		{Name: "inputs_embeds", DType: "F32"},
		{Name: "past_key_values.0.key", DType: "F16"},
		{Name: "past_key_values.0.value", DType: "F16"},
		{Name: "past_key_values.1.key", DType: "F32"},
		{Name: "mask", DType: "I64"},
	}))
}

// The embeddings of 1,100 tokens of 576 numbers.
func BenchmarkToHalf(b *testing.B) {
	src := make([]float32, 1100*576)
	for i := range src {
		src[i] = float32(i%2000)/1000 - 1
	}
	dst := make([]uint16, len(src))
	b.SetBytes(int64(4 * len(src)))
	for b.Loop() {
		infer.ToHalf(dst, src)
	}
}
