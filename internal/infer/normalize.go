package infer

import (
	"fmt"
	"math"
	"strconv"
)

// Normalize converts bytes to numbers: a value v of channel c becomes (float32(v·Rescale) −
// Mean[c]) / Std[c], in float32 and in this order, like the image processors of Hugging Face.
type Normalize struct {
	// Rescale is usually 1/255.
	Rescale float64 `json:"rescale"`
	// Mean and Std have one entry for each channel.
	Mean []float32 `json:"mean"`
	Std  []float32 `json:"std"`
	// Inner is the number of consecutive elements of one channel: the channel of element i is (i /
	// Inner) mod len(Mean). Inner is height·width for CHW, 1 for HWC, and 2·14·14 for the patches
	// of Qwen2-VL.
	Inner int `json:"inner"`
}

// Check returns an error that wraps ErrInput if a field is invalid.
func (n *Normalize) Check() error {
	if n == nil {
		return nil
	}
	if len(n.Mean) == 0 || len(n.Mean) > 16 || len(n.Mean) != len(n.Std) || n.Inner < 1 || n.Inner > math.MaxInt32 {
		return fmt.Errorf("%w: normalisation with %d means, %d deviations and %d elements to a channel", ErrInput, len(n.Mean), len(n.Std), n.Inner)
	}
	for c := range n.Std {
		if n.Std[c] == 0 {
			return fmt.Errorf("%w: normalisation by a deviation of 0", ErrInput)
		}
		for _, v := range []float64{n.Rescale, float64(n.Mean[c]), float64(n.Std[c])} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: normalisation with %v", ErrInput, v)
			}
		}
	}
	return nil
}

// Table returns the number for each of the 256 byte values, for each channel.
func (n *Normalize) Table() [][256]float32 {
	out := make([][256]float32, len(n.Mean))
	for c := range out {
		for v := range 256 {
			out[c][v] = (float32(float64(v)*n.Rescale) - n.Mean[c]) / n.Std[c]
		}
	}
	return out
}

// Into writes the normalised src to dst, one number for each byte. dst must be as long as src, and
// src must begin with the first channel.
func (n *Normalize) Into(dst []float32, src []byte) { lookUp(dst, src, n.Table(), n.Inner) }

// IntoHalves is like Into, with half-precision numbers as in ToHalf. The error wraps ErrInput if
// the normalisation results in a number beyond MaxHalf for some byte.
func (n *Normalize) IntoHalves(dst []uint16, src []byte) error {
	floats := n.Table()
	table := make([][256]uint16, len(floats))
	for c := range table {
		if v := ToHalf(table[c][:], floats[c][:]); v >= 0 {
			return fmt.Errorf("%w: normalisation gives %v for the byte %d in channel %d, but the largest F16 number is %d", ErrInput, floats[c][v], v, c, MaxHalf)
		}
	}
	lookUp(dst, src, table, n.Inner)
	return nil
}

// lookUp writes to dst what a table of each channel has for the bytes of src.
func lookUp[T float32 | uint16](dst []T, src []byte, table [][256]T, inner int) {
	if inner == 1 { // channels last
		for len(src) >= len(table) {
			for c := range table {
				dst[c] = table[c][src[c]]
			}
			src, dst = src[len(table):], dst[len(table):]
		}
		return
	}
	for c := 0; len(src) > 0; c = (c + 1) % len(table) {
		t, k := &table[c], min(inner, len(src))
		for i, v := range src[:k] {
			dst[:k][i] = t[v]
		}
		src, dst = src[k:], dst[k:]
	}
}

// append writes what tells it from another; nothing for nil.
func (n *Normalize) append(b []byte) []byte {
	if n == nil {
		return b
	}
	b = strconv.AppendFloat(append(b, '/'), n.Rescale, 'g', -1, 64)
	for c := range n.Mean {
		b = strconv.AppendFloat(append(b, ' '), float64(n.Mean[c]), 'g', -1, 32)
		b = strconv.AppendFloat(append(b, ':'), float64(n.Std[c]), 'g', -1, 32)
	}
	return strconv.AppendInt(append(b, '*'), int64(n.Inner), 10)
}

// MaxHalf is the largest F16 number (IEEE 754 binary16).
const MaxHalf = 65504

// ToHalf writes src to dst, which must be as long, in half precision, rounded to the nearest F16
// number, ties to even. NaN and infinities are preserved. ToHalf returns the index of the first
// finite number that becomes an infinity (65,520 and more), or -1.
func ToHalf(dst []uint16, src []float32) (overflow int) {
	overflow = -1
	dst = dst[:len(src)]
	for i, v := range src {
		dst[i] = half(v)
		if dst[i]&^halfSign == halfInf && overflow < 0 && !math.IsInf(float64(v), 0) {
			overflow = i
		}
	}
	return overflow
}

// Bits of binary16.
const (
	halfSign = 1 << 15
	halfInf  = 0x1f << 10
	halfNaN  = halfInf | 1<<9
)

func half(v float32) uint16 {
	const (
		inf      = 0xff << 23
		overflow = 0x477ff000 // 65520, in the middle between MaxHalf and what would be the next
		normal   = 113 << 23  // 2^-14; below are the subnormals, multiples of 2^-24
		bias     = 112 << 23  // by which the exponents differ
	)
	b := math.Float32bits(v)
	sign := uint16(b >> 16 & halfSign)
	switch b &= 1<<31 - 1; {
	case b > inf:
		return sign | halfNaN
	case b >= overflow:
		return sign | halfInf
	case b < normal:
		// Floats from 0.5 to 1 are multiples of 2^-24: the sum is rounded as it has to be.
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5)) //nolint:gosec // at most 2^10
	}
	b += 1<<12 - 1 + b>>13&1           // 13 bits go; half of their worth, less one where even is below
	return sign | uint16((b-bias)>>13) //nolint:gosec // below halfInf
}
