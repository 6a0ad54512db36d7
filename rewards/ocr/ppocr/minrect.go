package ppocr

import "math"

// calipers finds rectangles of least area around hulls. It keeps its working memory;
// one goroutine at a time may use it.
type calipers struct {
	edge []corner  // edge i leads from point i to the next one
	inv  []float32 // 1 over its length
}

// rectangle is a rotated rectangle in RotatedRect's components; angle is in degrees.
type rectangle struct {
	center        corner
	width, height float32
	angle         float32
}

// around is cv2.minAreaRect of OpenCV 5.0 for a hull of three points or more that is
// strictly convex, clockwise on a screen: rotating calipers in float32, the last one
// of several rectangles with the same area, the angle within [-90, 0).
func (c *calipers) around(hull []cell) rectangle {
	n := len(hull)
	c.measure(hull)
	at := extremes(hull)
	var (
		least     = float32(math.MaxFloat32)
		a, b      float32 // the direction of the first side
		w, h      float32
		bestA     float32
		bestB     float32
		bestW     float32
		bestH     float32
		left, top cell
	)
	for range n {
		lead := c.next(at)
		i := at[lead]
		x, y := float32(c.edge[i].x*c.inv[i]), float32(c.edge[i].y*c.inv[i])
		switch lead {
		case 0:
			a, b = x, y
		case 1:
			a, b = y, -x
		case 2:
			a, b = -x, -y
		default:
			a, b = -y, x
		}
		if at[lead]++; at[lead] == n {
			at[lead] = 0
		}
		across, down := between(hull[at[3]], hull[at[1]]), between(hull[at[0]], hull[at[2]])
		w = float32(across.x*a) + float32(across.y*b)
		h = float32(-down.x*b) + float32(down.y*a)
		if area := float32(w * h); area <= least {
			least, bestA, bestB, bestW, bestH = area, a, b, w, h
			left, top = hull[at[3]], hull[at[0]]
		}
	}
	return rectFrom(bestA, bestB, bestW, bestH, left, top)
}

// measure fills in the edges.
func (c *calipers) measure(hull []cell) {
	c.edge, c.inv = c.edge[:0], c.inv[:0]
	for i, p := range hull {
		q := hull[0]
		if i+1 < len(hull) {
			q = hull[i+1]
		}
		e := between(p, q)
		x, y := float64(e.x), float64(e.y)
		c.edge = append(c.edge, e)
		c.inv = append(c.inv, float32(1/math.Sqrt(float64(x*x)+float64(y*y))))
	}
}

// next is the side of the calipers that meets an edge first when they turn: 0 for the
// one above, then clockwise.
func (c *calipers) next(at [4]int) int {
	v := [4]corner{c.edge[at[0]], c.edge[at[1]], c.edge[at[2]], c.edge[at[3]]}
	v[1] = corner{v[1].y, -v[1].x}
	v[2] = corner{-v[2].x, -v[2].y}
	v[3] = corner{-v[3].y, v[3].x}
	lead := 0
	for i := 1; i < 4; i++ {
		if float32(v[i].y*v[lead].x)+float32(-v[i].x*v[lead].y) < 0 {
			lead = i
		}
	}
	return lead
}

// extremes are the points that the calipers touch at the start: the first of the
// topmost, rightmost, lowest and leftmost ones.
func extremes(hull []cell) [4]int {
	var at [4]int
	for i, p := range hull {
		if p.y < hull[at[0]].y {
			at[0] = i
		}
		if p.x > hull[at[1]].x {
			at[1] = i
		}
		if p.y > hull[at[2]].y {
			at[2] = i
		}
		if p.x < hull[at[3]].x {
			at[3] = i
		}
	}
	return at
}

// rectFrom is the rectangle with a side in direction (a, b) through top and one across
// it through left.
func rectFrom(a, b, w, h float32, left, top cell) rectangle {
	lx, ly, tx, ty := float32(left.x), float32(left.y), float32(top.x), float32(top.y)
	c1 := float32(a*lx) + float32(ly*b)
	c2 := float32(-b*tx) + float32(ty*a)
	inv := 1 / (float32(a*a) - float32(-b*b))
	x := float32((float32(c1*a) - float32(c2*b)) * inv)
	y := float32((float32(a*c2) - float32(-b*c1)) * inv)
	side, other := corner{float32(a * w), float32(b * w)}, corner{float32(-b * h), float32(a * h)}

	r := rectangle{center: corner{
		x: x + float32((side.x+other.x)*.5),
		y: y + float32((side.y+other.y)*.5),
	}, width: length(side), height: length(other)}
	// Up to 4.6 an angle within (0, 90] came out, and the corners in another order.
	radians := math.Atan2(float64(side.y), float64(side.x))
	for radians >= math.Pi/2 {
		radians -= math.Pi
	}
	if radians > -math.Pi/2 {
		radians -= math.Pi / 2
		r.width, r.height = r.height, r.width
	}
	r.angle = float32(float64(radians*180) / math.Pi)
	return r
}

// corners is cv2.boxPoints.
func (r rectangle) corners() [4]corner {
	radians := float64(float64(r.angle)*math.Pi) / 180
	b := float32(math.Cos(radians)) * .5
	a := float32(math.Sin(radians)) * .5
	aw, ah, bw, bh := float32(a*r.width), float32(a*r.height), float32(b*r.width), float32(b*r.height)
	x, y := r.center.x, r.center.y
	return [4]corner{
		{x - ah - bw, y + bh - aw},
		{x + ah - bw, y - bh - aw},
		{x + ah + bw, y - bh + aw},
		{x - ah + bw, y + bh + aw},
	}
}

// miniBox is the reference's get_mini_boxes: the corners of the least rectangle around
// a hull, clockwise from the top left, and its shorter side, which is 0 for a hull
// without an area.
func (c *calipers) miniBox(hull []cell) (box [4]corner, side float32) {
	if len(hull) < 3 {
		return box, 0
	}
	r := c.around(hull)
	p := r.corners()
	for i := 1; i < len(p); i++ { // by x, equal ones as they were
		for j := i; j > 0 && p[j].x < p[j-1].x; j-- {
			p[j], p[j-1] = p[j-1], p[j]
		}
	}
	box = [4]corner{p[1], p[3], p[2], p[0]}
	if p[1].y > p[0].y {
		box[0], box[3] = p[0], p[1]
	}
	if p[3].y > p[2].y {
		box[1], box[2] = p[2], p[3]
	}
	return box, min(r.width, r.height)
}

func between(a, b cell) corner { return corner{float32(b.x - a.x), float32(b.y - a.y)} }

func length(v corner) float32 {
	x, y := float64(v.x), float64(v.y)
	return float32(math.Sqrt(float64(x*x) + float64(y*y)))
}

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
