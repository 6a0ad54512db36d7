package pickle

import (
	"encoding/binary"
	"math"
)

// NDArray is a numpy.ndarray in C order. Exactly one of Data, Strings and Objects contains the
// elements; none does for an array without elements.
type NDArray struct {
	// DType is one of "b1", "u1", "i4", "i8", "f2", "f4", "f8", "O", or "U" with the number of
	// characters, such as "U12".
	DType string
	// Shape contains the dimensions, the outermost first. It is empty for a zero-dimensional array,
	// which has one element.
	Shape []int
	// Data contains the elements of a numeric array, little-endian. It shares the memory of the
	// input and may be unaligned.
	Data []byte
	// Strings contains the elements of a U array.
	Strings []string
	// Objects contains the elements of an O array.
	Objects []Value
}

// Len returns the number of elements, the product of the dimensions.
func (a *NDArray) Len() int {
	n := 1
	for _, d := range a.Shape {
		n *= d
	}
	return n
}

// At returns the i-th element in C order as bool, int64, float64 or string, or as any Value for an
// O array. i must be in 0 to Len()-1.
func (a *NDArray) At(i int) Value {
	switch a.DType[0] {
	case 'U':
		return a.Strings[i]
	case 'O':
		return a.Objects[i]
	}
	size := int(a.DType[1] - '0')
	return element(a.DType, a.Data[i*size:(i+1)*size])
}

// element reads one little-endian number.
func element(code string, raw []byte) Value {
	switch code {
	case "b1":
		return raw[0] != 0
	case "u1":
		return int64(raw[0])
	case "i4":
		return int64(int32(binary.LittleEndian.Uint32(raw)))
	case "i8":
		return int64(binary.LittleEndian.Uint64(raw))
	case "f2":
		return float16(binary.LittleEndian.Uint16(raw))
	case "f4":
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	default: // f8
		return math.Float64frombits(binary.LittleEndian.Uint64(raw))
	}
}

// float16 widens an IEEE 754 binary16: 1 bit of sign, 5 of exponent (bias 15),
// 10 of fraction.
func float16(h uint16) float64 {
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	exponent, fraction := int(h>>10&0x1f), float64(h&0x3ff)
	switch exponent {
	case 0: // zero and subnormals
		return sign * math.Ldexp(fraction, -24)
	case 0x1f:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}
