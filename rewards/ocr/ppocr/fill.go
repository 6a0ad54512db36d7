package ppocr

import "math"

// filler averages probabilities within outlines. It keeps its working memory; one
// goroutine at a time may use it.
type filler struct {
	// low and high are the first and last filled column of each row, high < low where
	// there is none.
	low, high []int
	w, h      int
	marks     []byte
	queue     []int32
}

// boxMean is the reference's box_score_fast: the mean of prob (w x h) within box, its
// outline included as cv2.fillPoly draws it. It is 0 for a box beside the map.
func (f *filler) boxMean(prob []float32, w, h int, box [4]corner) float64 {
	x0, x1, y0, y1 := box[0].x, box[0].x, box[0].y, box[0].y
	for _, c := range box[1:] {
		x0, x1, y0, y1 = min(x0, c.x), max(x1, c.x), min(y0, c.y), max(y1, c.y)
	}
	left, right := within(math.Floor(float64(x0)), w), within(math.Ceil(float64(x1)), w)
	top, bottom := within(math.Floor(float64(y0)), h), within(math.Ceil(float64(y1)), h)
	f.reset(right-left+1, bottom-top+1)
	var poly [4]whole
	for i, c := range box { // cut towards zero, once the origin has moved
		poly[i] = whole{int(c.x - float32(left)), int(c.y - float32(top))}
	}
	f.polygon(poly)
	var sum float64
	n := 0
	for y, from := range f.low {
		to := f.high[y]
		if to < from {
			continue
		}
		row := prob[(top+y)*w+left:]
		for _, p := range row[from : to+1] {
			sum += float64(p)
		}
		n += to - from + 1
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// within is v as an index below n.
func within(v float64, n int) int { return int(max(0, min(v, float64(n-1)))) }

func (f *filler) reset(w, h int) {
	f.w, f.h = w, h
	f.low, f.high = sized(f.low, h), sized(f.high, h)
	for y := range h {
		f.low[y], f.high[y] = w, -1
	}
}

// polygon fills a convex polygon as cv2.fillPoly does: every edge as a line of whole
// pixels, and what is between two of them in a row.
func (f *filler) polygon(p [4]whole) {
	from := p[3]
	for _, to := range p {
		a, b := from, to
		switch {
		case !f.beside(a) && !f.beside(b):
			f.line(a, b)
		case f.clip(&a, &b):
			f.line(a, b)
			fallthrough
		default:
			// No line tells where the rows end that it leaves at their sides.
			if a.y == b.y { // clipping left nothing of its height
				a, b = from, to
			}
			f.edge(from, to, a, b)
		}
		from = to
	}
}

// whole is a place in whole pixels of the filler's area, perhaps beside it.
type whole struct{ x, y int }

func (f *filler) beside(p whole) bool { return p.x < 0 || p.x >= f.w || p.y < 0 || p.y >= f.h }

// line marks the pixels of Bresenham's line between two places of the area, drawn from
// left to right.
func (f *filler) line(a, b whole) {
	if a.x > b.x {
		a, b = b, a
	}
	dx, dy, down := b.x-a.x, b.y-a.y, 1
	if dy < 0 {
		dy, down = -dy, -1
	}
	steep := dy > dx
	if steep {
		dx, dy = dy, dx
	}
	miss := dx - 2*dy
	for range dx + 1 {
		f.low[a.y], f.high[a.y] = min(f.low[a.y], a.x), max(f.high[a.y], a.x)
		aside := miss < 0
		miss -= 2 * dy
		if aside {
			miss += 2 * dx
		}
		if steep {
			a.y += down
			if aside {
				a.x++
			}
		} else {
			a.x++
			if aside {
				a.y += down
			}
		}
	}
}

// edge marks where the rows from one end of an edge to before the other meet the line
// through a and b, in 65536ths of a pixel, up to the sides of the area.
func (f *filler) edge(from, to, a, b whole) {
	if from.y == to.y {
		return
	}
	const shift = 16
	slope := (b.x - a.x) << shift / (b.y - a.y)
	top, bottom, start := from.y, to.y, a
	if top > bottom {
		top, bottom, start = bottom, top, b
	}
	x := start.x<<shift + (max(top, 0)-start.y)*slope
	for y := max(top, 0); y < min(bottom, f.h); y++ {
		ceil, floor := (x+1<<shift-1)>>shift, x>>shift
		f.low[y], f.high[y] = min(f.low[y], max(ceil, 0)), max(f.high[y], min(floor, f.w-1))
		x += slope
	}
}

// clip moves the ends of a line that are beside the area to its border, rounding
// towards zero, and tells whether any of it is within.
func (f *filler) clip(a, b *whole) bool {
	right, bottom := f.w-1, f.h-1
	sides := func(p *whole) (h, v int) {
		switch {
		case p.x < 0:
			h = -1
		case p.x > right:
			h = 1
		}
		switch {
		case p.y < 0:
			v = -1
		case p.y > bottom:
			v = 1
		}
		return h, v
	}
	apart := func() bool { // both ends beyond the same side
		ah, av := sides(a)
		bh, bv := sides(b)
		return ah != 0 && ah == bh || av != 0 && av == bv
	}
	if apart() {
		return false
	}
	for _, p := range [2]*whole{a, b} {
		if _, v := sides(p); v != 0 {
			y := max(v, 0) * bottom
			p.x += int(float64(y-p.y) * float64(b.x-a.x) / float64(b.y-a.y))
			p.y = y
		}
	}
	if apart() {
		return false
	}
	for _, p := range [2]*whole{a, b} {
		if h, _ := sides(p); h != 0 {
			x := max(h, 0) * right
			p.y += int(float64(x-p.x) * float64(b.y-a.y) / float64(b.x-a.x))
			p.x = x
		}
	}
	return !apart()
}

// contourMean is the reference's box_score_slow: the mean of prob (w wide) over the
// pixels of a contour and what it encloses. hull is the contour's. A region's pixels
// are given by its spans; with hole they are the hole's, and its contour is the pixels
// around it.
func (f *filler) contourMean(prob []float32, w int, hull []cell, spans []span, hole bool, m *bitmask) float64 {
	x0, x1, y0, y1 := hull[0].x, hull[0].x, hull[0].y, hull[0].y
	for _, c := range hull {
		x0, x1, y0, y1 = min(x0, c.x), max(x1, c.x), min(y0, c.y), max(y1, c.y)
	}
	// One pixel more on every side, for the way around.
	f.w, f.h = int(x1-x0)+3, int(y1-y0)+3
	f.marks = sized(f.marks, f.w*f.h)
	clear(f.marks)
	at := func(x, y int32) int { return int(y-y0+1)*f.w + int(x-x0+1) }
	for _, s := range spans {
		for i := at(s.x0, s.y); i <= at(s.x1, s.y); i++ {
			f.marks[i] = inside
		}
	}
	f.flood(hole) // around a hole is what hangs together as regions do
	if hole {
		for _, s := range spans {
			f.marks[at(s.x0-1, s.y)], f.marks[at(s.x1+1, s.y)] = inside, inside
			for _, y := range [2]int32{s.y - 1, s.y + 1} {
				for x := m.first(y, s.x0, s.x1); x >= 0; x = m.first(y, x+1, s.x1) {
					f.marks[at(x, y)] = inside
				}
			}
		}
	}
	var sum float64
	n := 0
	for y := y0; y <= y1; y++ {
		marks := f.marks[at(x0, y):]
		for i, p := range prob[int(y)*w+int(x0) : int(y)*w+int(x1)+1] {
			if marks[i] != around {
				sum += float64(p)
				n++
			}
		}
	}
	return sum / float64(n)
}

// What a mark says of a pixel; 0 is enclosed by a contour or not known yet.
const (
	inside = 1
	around = 2
)

// flood marks what is around: the pixels without a mark that hang together with the
// first, over shared edges or with corners over those as well.
func (f *filler) flood(corners bool) {
	// The four that share an edge, then those that share a corner.
	all := [8]whole{{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {1, 1}, {1, -1}, {-1, 1}, {-1, -1}}
	neighbours := all[:4]
	if corners {
		neighbours = all[:]
	}
	f.marks[0] = around
	f.queue = append(f.queue[:0], 0)
	for len(f.queue) > 0 {
		at := int(f.queue[len(f.queue)-1])
		f.queue = f.queue[:len(f.queue)-1]
		x, y := at%f.w, at/f.w
		for _, d := range neighbours {
			nx, ny := x+d.x, y+d.y
			if nx < 0 || nx >= f.w || ny < 0 || ny >= f.h || f.marks[ny*f.w+nx] != 0 {
				continue
			}
			f.marks[ny*f.w+nx] = around
			f.queue = append(f.queue, int32(ny*f.w+nx))
		}
	}
}
