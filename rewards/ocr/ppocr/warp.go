package ppocr

import "math"

// rotated is how many times as high as wide a crop is that gets turned: text that runs
// from top to bottom or is written on its side.
const rotated = 1.5

// cropQuad cuts a region out of src and makes it upright, the reference's
// get_rotate_crop_image: cv2.warpPerspective of OpenCV 5.0 with INTER_CUBIC and
// BORDER_REPLICATE, then a quarter turn counter-clockwise if it is at least 1.5 times
// as high as wide. An upright quad of whole pixels within src is copied, to the same
// result. W is 0 if nothing is left, the quad has coordinates that are not finite, or
// a side is longer than any line within src.
func cropQuad(src bitmap, q quad) bitmap {
	w, h, ok := cropSides(src, q)
	if !ok {
		return bitmap{}
	}
	out := bitmap{W: w, H: h, Pix: make([]byte, w*h*3)}
	if x, y, ok := upright(src, q, w, h); ok {
		for i := range h {
			copy(out.Pix[i*w*3:][:w*3], src.Pix[((y+i)*src.W+x)*3:])
		}
	} else {
		warp(out, src, mapping(q, float64(w), float64(h)))
	}
	if float64(h)/float64(w) >= rotated {
		return rotate90(out)
	}
	return out
}

// cropSides is the size of a crop before it is turned: the longer one of opposite sides
// each, cut to whole pixels.
func cropSides(src bitmap, q quad) (w, h int, ok bool) {
	across := max(distance(q[0], q[1]), distance(q[2], q[3]))
	down := max(distance(q[0], q[3]), distance(q[1], q[2]))
	longest := float64(src.W + src.H)
	if !(across >= 1 && across <= longest && down >= 1 && down <= longest) || src.W <= 0 || src.H <= 0 {
		return 0, 0, false
	}
	for _, p := range q {
		if math.IsNaN(p.X) || math.IsInf(p.X, 0) || math.IsNaN(p.Y) || math.IsInf(p.Y, 0) {
			return 0, 0, false
		}
	}
	return int(across), int(down), true
}

// sizeOfCrop is the size that cropQuad gives a crop; W is 0 if nothing is left.
func sizeOfCrop(src bitmap, q quad) cropSize {
	w, h, ok := cropSides(src, q)
	switch {
	case !ok:
		return cropSize{}
	case float64(h)/float64(w) >= rotated:
		return cropSize{h, w}
	}
	return cropSize{w, h}
}

// upright tells whether a quad is a rectangle of whole pixels within src, and where.
func upright(src bitmap, q quad, w, h int) (x, y int, ok bool) {
	x0, y0 := q[0].X, q[0].Y
	if x0 != math.Trunc(x0) || y0 != math.Trunc(y0) || x0 < 0 || y0 < 0 || x0 > float64(src.W-w) || y0 > float64(src.H-h) {
		return 0, 0, false
	}
	x1, y1 := x0+float64(w), y0+float64(h)
	return int(x0), int(y0), q == quad{{x0, y0}, {x1, y0}, {x1, y1}, {x0, y1}}
}

// perspective takes (x, y) to ((m0 x + m1 y + m2) / (m6 x + m7 y + 1), (m3 x + m4 y +
// m5) / the same).
type perspective [8]float64

// mapping takes the rectangle (0, 0), (w, 0), (w, h), (0, h) to the corners of q:
// Heckbert, Fundamentals of Texture Mapping and Image Warping, 1989, section 2.2.3.
func mapping(q quad, w, h float64) perspective {
	dx1, dy1 := q[1].X-q[2].X, q[1].Y-q[2].Y
	dx2, dy2 := q[3].X-q[2].X, q[3].Y-q[2].Y
	sx, sy := q[0].X-q[1].X+q[2].X-q[3].X, q[0].Y-q[1].Y+q[2].Y-q[3].Y
	var g, k float64 // 0 for a parallelogram
	if sx != 0 || sy != 0 {
		det := dx1*dy2 - dx2*dy1
		g, k = (sx*dy2-dx2*sy)/det, (dx1*sy-sx*dy1)/det
	}
	return perspective{
		(q[1].X - q[0].X + g*q[1].X) / w, (q[3].X - q[0].X + k*q[3].X) / h, q[0].X,
		(q[1].Y - q[0].Y + g*q[1].Y) / w, (q[3].Y - q[0].Y + k*q[3].Y) / h, q[0].Y,
		g / w, k / h,
	}
}

// warp fills dst from the places in src that m names.
func warp(dst, src bitmap, m perspective) {
	for y := range dst.H {
		out := dst.Pix[y*dst.W*3:][:dst.W*3]
		bx, by, bd := m[1]*float64(y)+m[2], m[4]*float64(y)+m[5], m[7]*float64(y)+1
		for x := range dst.W {
			d := 1 / (m[6]*float64(x) + bd)
			cubic(out[3*x:3*x+3], src, bounded((m[0]*float64(x)+bx)*d, src.W), bounded((m[3]*float64(x)+by)*d, src.H))
		}
	}
}

// bounded keeps a coordinate within what has whole pixels; beyond two pixels of the
// edge everything looks the same. It makes 0 of NaN, which a quad with three corners
// on a line gives.
func bounded(v float64, n int) float32 {
	if v >= -3 && v <= float64(n)+2 {
		return float32(v)
	}
	switch {
	case v < 0:
		return -3
	case v > 0:
		return float32(n) + 2
	}
	return 0
}

// cubic is the pixel of src at (x, y) between pixels. The 16 pixels around are
// weighted with 65536ths, first along rows, then across: differences to floats are
// below a thousandth of a level, in 40 % of the time.
func cubic(out []byte, src bitmap, x, y float32) {
	ix, iy := int(x+4)-4, int(y+4)-4 // floor
	x0, x1, x2, x3 := cubicWeights(x - float32(ix))
	var wy [4]int64
	wy[0], wy[1], wy[2], wy[3] = cubicWeights(y - float32(iy))
	var b, g, r int64
	if ix >= 1 && ix+2 < src.W && iy >= 1 && iy+2 < src.H {
		at := ((iy-1)*src.W + ix - 1) * 3
		for _, w := range wy {
			p := src.Pix[at:][:12]
			// Two levels share a product, the first in its lower half, which borrows from
			// the upper one when it is negative.
			two := x0*pair(p[0], p[1]) + x1*pair(p[3], p[4]) + x2*pair(p[6], p[7]) + x3*pair(p[9], p[10])
			low := int64(int32(two))
			b += w * low
			g += w * ((two - low) >> 32)
			r += w * (x0*int64(p[2]) + x1*int64(p[5]) + x2*int64(p[8]) + x3*int64(p[11]))
			at += src.W * 3
		}
	} else {
		for j, w := range wy {
			row := max(0, min(iy+j-1, src.H-1)) * src.W
			for i, v := range [4]int64{x0, x1, x2, x3} {
				p := src.Pix[(row+max(0, min(ix+i-1, src.W-1)))*3:][:3]
				b, g, r = b+w*v*int64(p[0]), g+w*v*int64(p[1]), r+w*v*int64(p[2])
			}
		}
	}
	out[0], out[1], out[2] = level(b), level(g), level(r)
}

func pair(low, high byte) int64 { return int64(low) | int64(high)<<32 }

// cubicWeights are the weights, in 65536ths, of four pixels for a place t after the
// second: Keys' kernel with a = -0.75, multiplied out.
func cubicWeights(t float32) (w0, w1, w2, w3 int64) {
	const (
		a   = -.75
		one = 1 << 16
	)
	outer := a * one * t * (1 - t)
	w0, w3 = int64(outer*(1-t)), int64(outer*t)
	w1 = one - int64(one*t*t*((a+3)-(a+2)*t))
	return w0, w1, one - w0 - w1 - w3, w3
}

// level is a sum of both weights as a byte.
func level(v int64) byte { return byte(max(0, min((v+1<<31)>>32, 255))) }

// rotate90 turns a picture a quarter counter-clockwise.
func rotate90(b bitmap) bitmap {
	out := bitmap{W: b.H, H: b.W, Pix: make([]byte, len(b.Pix))}
	for y := range out.H {
		row := out.Pix[y*out.W*3:][:out.W*3]
		from := (b.W - 1 - y) * 3
		for x := 0; x < len(row); x += 3 {
			copy(row[x:x+3], b.Pix[from:from+3])
			from += b.W * 3
		}
	}
	return out
}
