package infer

import (
	"fmt"
	"math"
	"strconv"
)

// Normalize makes numbers of bytes: a value v of channel c becomes
// (float32(v·Rescale) − Mean[c]) / Std[c], in float32 and in this order, as Hugging
// Face's image processors compute it.
type Normalize struct {
	// Rescale is mostly 1/255.
	Rescale float64 `json:"rescale"`
	// Mean and Std have one entry per channel.
	Mean []float32 `json:"mean"`
	Std  []float32 `json:"std"`
	// Inner is how many elements in a row belong to one channel: the channel of element i
	// is (i / Inner) mod len(Mean). It is height·width for CHW, 1 for HWC, and 2·14·14
	// for the patches of Qwen2-VL.
	Inner int `json:"inner"`
}

// Check says what is wrong with it, wrapping ErrInput.
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

// Table is what each of the 256 bytes becomes, channel after channel.
func (n *Normalize) Table() [][256]float32 {
	out := make([][256]float32, len(n.Mean))
	for c := range out {
		for v := range 256 {
			out[c][v] = (float32(float64(v)*n.Rescale) - n.Mean[c]) / n.Std[c]
		}
	}
	return out
}

// Into writes to dst what src becomes, which is as long: one byte is one number. src
// begins with the first channel.
func (n *Normalize) Into(dst []float32, src []byte) { lookUp(dst, src, n.Table(), n.Inner) }

// IntoHalves is Into in half precision, see ToHalf. It wraps ErrInput where the
// normalisation makes of some byte what is beyond MaxHalf.
func (n *Normalize) IntoHalves(dst []uint16, src []byte) error {
	floats := n.Table()
	table := make([][256]uint16, len(floats))
	for c := range table {
		if v := ToHalf(table[c][:], floats[c][:]); v >= 0 {
			return fmt.Errorf("%w: normalisation makes %v of the byte %d in channel %d, and F16 ends at %d", ErrInput, floats[c][v], v, c, MaxHalf)
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
