package imageproc

import (
	"fmt"
	"math"
	"slices"
)

// Filter is a resampling filter, with PIL's names. When a picture shrinks, the support of all
// filters except Nearest grows with the factor (antialiasing).
type Filter string

// The filters. The numbers are PIL's, which preprocessor_config.json calls "resample".
const (
	Nearest  Filter = "nearest"  // 0
	Lanczos  Filter = "lanczos"  // 1, three lobes
	Bilinear Filter = "bilinear" // 2
	Bicubic  Filter = "bicubic"  // 3, a = −0.5
	Box      Filter = "box"      // 4
	Hamming  Filter = "hamming"  // 5
)

// byCode are the filters in the order of PIL's numbers.
func byCode() []Filter {
	return []Filter{Nearest, Lanczos, Bilinear, Bicubic, Box, Hamming}
}

// check says what is wrong with the name.
func (f Filter) check() error {
	if slices.Contains(byCode(), f) {
		return nil
	}
	return fmt.Errorf("filter %q: want one of %v", f, byCode())
}

// kernel is a filter's weight at a distance of x pixels and the distance beyond which it
// is 0. The formulas are those of Pillow's Resample.c.
func (f Filter) kernel() (weight func(x float64) float64, support float64) {
	switch f {
	case Box:
		return func(x float64) float64 {
			if x > -0.5 && x <= 0.5 {
				return 1
			}
			return 0
		}, 0.5
	case Hamming:
		return func(x float64) float64 {
			if x = math.Abs(x); x >= 1 {
				return 0
			}
			return sinc(x) * (0.54 + 0.46*math.Cos(math.Pi*x))
		}, 1
	case Bicubic:
		return bicubic, 2
	case Lanczos:
		return func(x float64) float64 {
			if x < -3 || x >= 3 {
				return 0
			}
			return sinc(x) * sinc(x/3)
		}, 3
	}
	return func(x float64) float64 { return max(1-math.Abs(x), 0) }, 1 // Bilinear
}

// bicubic is Keys' kernel with a = −0.5.
func bicubic(x float64) float64 {
	const a = -0.5
	switch x = math.Abs(x); {
	case x < 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return (((x-5)*x+8)*x - 4) * a
	}
	return 0
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// Fixed point: a weight has 22 bits behind the point, so that 255 times the sum of all
// weights' magnitudes (below 2) stays within 32 bits.
const (
	fraction = 22
	half     = 1 << (fraction - 1)
)

// span is where one output pixel comes from along one axis: the pixels from first on,
// each with its weight.
type span struct {
	first   int
	weights []int32
}

// spans are the sources of the output pixels lo to hi−1 of out, along an axis of in
// pixels.
func spans(in, out, lo, hi int, f Filter) []span {
	weight, support := f.kernel()
	scale := float64(in) / float64(out)
	wide := max(scale, 1)
	support *= wide
	list := make([]span, hi-lo)
	flat := make([]int32, 0, len(list)*(2*int(math.Ceil(support))+1))
	row := make([]float64, 2*int(math.Ceil(support))+1)
	for i := range list {
		center := (float64(lo+i) + 0.5) * scale
		first := max(int(center-support+0.5), 0)
		end := min(int(center+support+0.5), in)
		sum := 0.0
		for k := range end - first {
			row[k] = weight((float64(first+k) - center + 0.5) * (1 / wide))
			sum += row[k]
		}
		start := len(flat)
		for _, w := range row[:end-first] {
			if sum != 0 {
				w /= sum
			}
			flat = append(flat, int32(math.Copysign(0.5, w)+w*(1<<fraction)))
		}
		list[i] = span{first: first, weights: flat[start:len(flat):len(flat)]}
	}
	return list
}

// clip rounds a sum of fixed-point weights times bytes, half already added.
func clip(sum int32) byte {
	v := sum >> fraction
	if v < 0 {
		return 0
	}
	return byte(min(v, 255))
}
