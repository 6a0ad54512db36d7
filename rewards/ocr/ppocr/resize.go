package ppocr

import (
	"math"
	"sync"
)

// resize is cv2.resize with INTER_LINEAR for 8 bits: src at w x h pixels. Exactly half
// of both sides is the mean of four pixels, which cv2 quietly takes then. It is empty
// if src, w or h are.
func resize(src bitmap, w, h int) bitmap {
	if w <= 0 || h <= 0 || src.W <= 0 || src.H <= 0 {
		return bitmap{}
	}
	dst := bitmap{W: w, H: h, Pix: make([]byte, w*h*3)}
	resizeInto(dst.Pix, src, w, h)
	return dst
}

// resizeInto is resize into the first w*h*3 bytes of dst, which must not be src's.
func resizeInto(dst []byte, src bitmap, w, h int) {
	switch {
	case w <= 0 || h <= 0 || src.W <= 0 || src.H <= 0:
	case w == src.W && h == src.H:
		copy(dst[:w*h*3], src.Pix)
	case src.W == 2*w && src.H == 2*h:
		halve(dst[:w*h*3], src, w, h)
	default:
		r, ok := resizers.Get().(*resizer)
		if !ok {
			r = new(resizer)
		}
		r.resize(dst[:w*h*3], src, w, h)
		resizers.Put(r)
	}
}

// halve takes the mean of four pixels, halves rounded up.
func halve(dst []byte, src bitmap, w, h int) {
	for y := range h {
		a := src.Pix[2*y*src.W*3:][:src.W*3]
		b := src.Pix[(2*y+1)*src.W*3:][:src.W*3]
		out := dst[y*w*3:][:w*3]
		for x := 0; x+2 < len(out); x += 3 {
			a, b := a[2*x:2*x+6], b[2*x:2*x+6]
			out[x] = byte((int(a[0]) + int(a[3]) + int(b[0]) + int(b[3]) + 2) >> 2)
			out[x+1] = byte((int(a[1]) + int(a[4]) + int(b[1]) + int(b[4]) + 2) >> 2)
			out[x+2] = byte((int(a[2]) + int(a[5]) + int(b[2]) + int(b[5]) + 2) >> 2)
		}
	}
}

// resizer is the working memory of one resize: the columns' taps and two rows that are
// stretched already.
type resizer struct {
	taps []tap
	rows [2][]int32
	held [2]int // which source rows they are
}

// tap is where a column comes from: the bytes at and next, weighted with 2048ths.
type tap struct {
	at, next int32
	w0, w1   int32
}

var resizers = sync.Pool{New: func() any { return new(resizer) }} //nolint:gochecknoglobals // a pool has no state to tell

func (r *resizer) resize(dst []byte, src bitmap, w, h int) {
	r.taps = sized(r.taps, w)
	scale := 1 / (float64(w) / float64(src.W))
	for x := range r.taps {
		i, frac := sourceOf(x, scale)
		if i < 0 {
			i, frac = 0, 0
		}
		if i >= src.W-1 {
			i, frac = src.W-1, 0
		}
		t := &r.taps[x]
		t.at, t.next = int32(3*i), int32(3*min(i+1, src.W-1))
		t.w0, t.w1 = weights(frac)
	}
	for i := range r.rows {
		r.rows[i], r.held[i] = sized(r.rows[i], 3*w), -1
	}
	scale = 1 / (float64(h) / float64(src.H))
	for y := range h {
		i, frac := sourceOf(y, scale)
		b0, b1 := weights(frac)
		// Unlike for columns, the weights stay beyond the first and last row.
		above := r.row(src, max(0, min(i, src.H-1)))
		below := r.row(src, max(0, min(i+1, src.H-1)))
		blend(dst[y*w*3:][:w*3], above, below, b0, b1)
	}
}

// row is source row y stretched, 16 times less than the weights make it. Two of them
// are kept: even and odd rows have a place each, so that neighbours never displace
// each other.
func (r *resizer) row(src bitmap, y int) []int32 {
	out := r.rows[y&1]
	if r.held[y&1] == y {
		return out
	}
	r.held[y&1] = y
	line := src.Pix[y*src.W*3:][:src.W*3]
	for i, t := range r.taps {
		p, q, o := line[t.at:][:3], line[t.next:][:3], out[3*i:][:3]
		o[0] = (int32(p[0])*t.w0 + int32(q[0])*t.w1) >> 4
		o[1] = (int32(p[1])*t.w0 + int32(q[1])*t.w1) >> 4
		o[2] = (int32(p[2])*t.w0 + int32(q[2])*t.w1) >> 4
	}
	return out
}

// blend mixes two rows. Both products are cut before they are added, as vector units
// do it, so 255 stays the greatest value.
func blend(dst []byte, above, below []int32, b0, b1 int32) {
	above, below = above[:len(dst)], below[:len(dst)]
	for i := range dst {
		dst[i] = byte((above[i]*b0>>16 + below[i]*b1>>16 + 2) >> 2)
	}
}

// sourceOf is the place that a column or row comes from, pixel centres on pixel
// centres: a whole pixel and the fraction of the way to the next.
func sourceOf(i int, scale float64) (int, float32) {
	at := float32((float64(i)+.5)*scale - .5)
	floor := math.Floor(float64(at))
	return int(floor), at - float32(floor)
}

// weights are the parts of a pixel and the next in 2048ths.
func weights(frac float32) (int32, int32) {
	return int32(math.RoundToEven(float64((1 - frac) * 2048))), int32(math.RoundToEven(float64(frac * 2048)))
}
