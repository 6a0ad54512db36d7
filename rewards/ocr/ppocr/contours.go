package ppocr

import "slices"

// contour is one of a mask's contours: a region's outline or a hole's.
type contour struct {
	root int32 // the first span, of components.set or for a hole of components.clear
	hole bool
}

// contours picks a mask's contours and gathers each one's spans.
type contours struct {
	list  []contour
	index []int32 // by span number, twice: the contour that a root belongs to, or -1
	start []int32 // contour i has spans[start[i]:start[i+1]]
	spans []span
	// low and high are a contour's first and last pixel of each row.
	low, high []int32
	points    []cell
}

// pick lists at most limit contours, from the bottom of the picture upwards as
// cv2.findContours does. With more than limit contours, those left out are at the top
// there too, but not always the very same: it places a hole elsewhere in the list.
func (c *contours) pick(comp *components, limit int) {
	c.list = c.list[:0]
	set, gaps := &comp.set, &comp.clear
	i, j := int32(len(set.all))-1, int32(len(gaps.all))-1
	for len(c.list) < limit {
		for i >= 0 && set.parent[i] != i {
			i--
		}
		for j > outside && gaps.parent[j] != j {
			j--
		}
		switch {
		case i < 0 && j <= outside:
			c.gather(comp)
			return
		case j <= outside || i >= 0 && before(gaps.all[j], set.all[i]):
			c.list = append(c.list, contour{root: i})
			i--
		default:
			c.list = append(c.list, contour{root: j, hole: true})
			j--
		}
	}
	c.gather(comp)
}

// before tells whether a starts before b in reading order.
func before(a, b span) bool { return a.y < b.y || a.y == b.y && a.x0 < b.x0 }

// gather sorts the spans of the picked contours by contour, with a counting sort, so
// that each one's stay in reading order.
func (c *contours) gather(comp *components) {
	holes := len(comp.set.all)
	c.index = sized(c.index, holes+len(comp.clear.all))
	for i := range c.index {
		c.index[i] = -1
	}
	c.start = sized(c.start, len(c.list)+1)
	clear(c.start)
	for i, k := range c.list {
		if k.hole {
			c.index[holes+int(k.root)] = int32(i)
		} else {
			c.index[k.root] = int32(i)
		}
	}
	total := c.count(&comp.set, c.index[:holes]) + c.count(&comp.clear, c.index[holes:])
	for i := 1; i < len(c.start); i++ {
		c.start[i] += c.start[i-1]
	}
	c.spans = sized(c.spans, total)
	// Backwards: start[i+1] is where the next one of contour i ends, and has become
	// its beginning, which is start[i]'s place, when all are in.
	c.place(&comp.clear, c.index[holes:])
	c.place(&comp.set, c.index[:holes])
	copy(c.start, c.start[1:])
	c.start[len(c.start)-1] = int32(total)
}

// count gives every span its contour's number and counts them by contour.
func (c *contours) count(s *spans, index []int32) int {
	total := 0
	for i := range s.all {
		k := index[s.root(int32(i))]
		index[i] = k
		if k >= 0 {
			c.start[k+1]++
			total++
		}
	}
	return total
}

func (c *contours) place(s *spans, index []int32) {
	for i, sp := range slices.Backward(s.all) {
		if k := index[i]; k >= 0 {
			c.start[k+1]--
			c.spans[c.start[k+1]] = sp
		}
	}
}

// of is the spans of contour i: a region's own, or those of a hole.
func (c *contours) of(i int) []span { return c.spans[c.start[i]:c.start[i+1]] }

// hull appends the convex hull of contour i to dst, beginning where cv2.convexHull
// begins.
func (c *contours) hull(dst []cell, i int, m *bitmask) []cell {
	if c.list[i].hole {
		return c.holeHull(dst, c.of(i), m)
	}
	c.points = c.points[:0]
	s := c.of(i)
	for len(s) > 0 {
		n := 1
		for n < len(s) && s[n].y == s[0].y {
			n++
		}
		c.points = append(c.points, cell{s[0].x0, s[0].y}, cell{s[n-1].x1, s[0].y})
		s = s[n:]
	}
	from := len(dst)
	dst = appendHull(dst, c.points)
	startOuter(dst[from:])
	return dst
}

// holeHull is the hull of the set pixels that share an edge with a hole. A hole does
// not touch the picture's edge, so there are pixels on all its sides.
func (c *contours) holeHull(dst []cell, hole []span, m *bitmask) []cell {
	top := hole[0].y - 1
	rows := int(hole[len(hole)-1].y-top) + 2
	c.low, c.high = sized(c.low, rows), sized(c.high, rows)
	for i := range rows {
		c.low[i], c.high[i] = int32(m.w), -1
	}
	widen := func(y, from, to int32) {
		if from >= 0 {
			c.low[y-top] = min(c.low[y-top], from)
			c.high[y-top] = max(c.high[y-top], to)
		}
	}
	for _, s := range hole {
		widen(s.y, s.x0-1, s.x1+1)
		widen(s.y-1, m.first(s.y-1, s.x0, s.x1), m.last(s.y-1, s.x0, s.x1))
		widen(s.y+1, m.first(s.y+1, s.x0, s.x1), m.last(s.y+1, s.x0, s.x1))
	}
	c.points = c.points[:0]
	for i := range rows {
		if c.high[i] >= 0 {
			y := top + int32(i)
			c.points = append(c.points, cell{c.low[i], y}, cell{c.high[i], y})
		}
	}
	from := len(dst)
	dst = appendHull(dst, c.points)
	startHole(dst[from:], cell{hole[0].x0 - 1, hole[0].y})
	return dst
}
