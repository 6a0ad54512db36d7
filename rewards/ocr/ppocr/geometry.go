package ppocr

// The geometry of this package follows OpenCV 5.0 and pyclipper 1.4, which the
// reference runs on, down to their roundings: a corner that comes out as 10.99999
// instead of 11 is cut to 10 further on. float32 is used where they use it, and
// float32(a*b) + float32(c*d) keeps a compiler from fusing the two into one rounding.

// point is a place in an image in pixels: X to the right, Y down, the centre of the first
// pixel at (0, 0).
type point struct{ X, Y float64 }

// quad is a text region's outline: top left, top right, bottom right, bottom left.
type quad [4]point

// bitmap is an 8-bit picture of three channels (BGR or RGB), interleaved, rows without padding:
// channel c of the pixel (x, y) is Pix[(y*W+x)*3+c].
type bitmap struct {
	W, H int
	Pix  []byte
}

// cell is a pixel's place.
type cell struct{ x, y int32 }

// corner is a place in 32 bits, as the reference has it between its steps.
type corner struct{ x, y float32 }

// turn is twice the area of the triangle a, b, c: positive if the way from a over b
// to c turns clockwise as seen on a screen, 0 on a straight line.
func turn(a, b, c cell) int64 {
	return int64(b.x-a.x)*int64(c.y-a.y) - int64(b.y-a.y)*int64(c.x-a.x)
}
