package infer

import "math"

// MaxHalf is the largest number of F16 (IEEE 754 binary16).
const MaxHalf = 65504

// ToHalf writes src to dst, which is as long, in half precision: the nearest number of
// F16, of two that are as near the even one. NaN and infinities stay what they are. It
// returns the first place of a finite number that becomes an infinity, those of 65,520
// and more, or -1.
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
