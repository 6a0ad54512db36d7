package ppocr

import "math/bits"

// bitmask is a picture of one bit a pixel; bit x%64 of words[y*stride+x/64] is the
// pixel (x, y). Bits to the right of the last column are 0.
type bitmask struct {
	w, h, stride int
	words        []uint64
}

// threshold sets the bits where prob is above limit (NaN is not), then grows the
// regions by a pixel to the right and down if dilate says so: cv2.dilate with a kernel
// of 2x2 ones, whose anchor is its bottom right.
func (m *bitmask) threshold(prob []float32, w, h int, limit float32, dilate bool) {
	m.w, m.h, m.stride = w, h, (w+63)/64
	m.words = sized(m.words, m.stride*h)
	for y := range h {
		row, out := prob[y*w:(y+1)*w], m.row(y)
		for i := range out {
			part := row[i*64 : min(i*64+64, w)]
			var word uint64
			for x, p := range part {
				var bit uint64
				if p > limit {
					bit = 1
				}
				word |= bit << (x & 63)
			}
			out[i] = word
		}
	}
	if dilate {
		m.dilate()
	}
}

func (m *bitmask) row(y int) []uint64 { return m.words[y*m.stride : (y+1)*m.stride] }

// dilate works from the bottom right, so that what it reads is still as it was.
func (m *bitmask) dilate() {
	last := ^uint64(0) >> uint(m.stride*64-m.w)
	for y := m.h - 1; y >= 0; y-- {
		row := m.row(y)
		above := row
		if y > 0 {
			above = m.row(y - 1)
		}
		for i := len(row) - 1; i >= 0; i-- {
			word := row[i] | above[i]
			grown := word | word<<1
			if i > 0 {
				grown |= (row[i-1] | above[i-1]) >> 63
			}
			row[i] = grown
		}
		row[len(row)-1] &= last
	}
}

// first is the leftmost set pixel of a row within [from, to], or -1.
func (m *bitmask) first(y, from, to int32) int32 {
	if from > to {
		return -1
	}
	row := m.row(int(y))
	for i := from >> 6; i <= to>>6; i++ {
		word := row[i]
		if i == from>>6 {
			word &= ^uint64(0) << (from & 63)
		}
		if word != 0 {
			if x := i<<6 + int32(bits.TrailingZeros64(word)); x <= to {
				return x
			}
			return -1
		}
	}
	return -1
}

// last is the rightmost set pixel of a row within [from, to], or -1.
func (m *bitmask) last(y, from, to int32) int32 {
	row := m.row(int(y))
	for i := to >> 6; i >= from>>6; i-- {
		word := row[i]
		if i == to>>6 {
			word &= ^uint64(0) >> (63 - to&63)
		}
		if word != 0 {
			if x := i<<6 + 63 - int32(bits.LeadingZeros64(word)); x >= from {
				return x
			}
			return -1
		}
	}
	return -1
}

// span is a row's pixels from x0 to x1, both included.
type span struct{ x0, x1, y int32 }

// spans are the stretches of equal pixels of a mask in reading order, and which of
// them hang together.
type spans struct {
	all    []span
	row    []int32 // row y has all[row[y]:row[y+1]]
	parent []int32 // towards the first of the region, which has itself
}

// reset makes room for a picture of h rows.
func (s *spans) reset(h int) {
	s.all, s.row, s.parent = s.all[:0], s.row[:0], s.parent[:0]
	if cap(s.row) < h+1 {
		s.row = make([]int32, 0, h+1)
	}
}

func (s *spans) add(x0, x1, y int32) int32 {
	i := int32(len(s.all))
	s.all = append(s.all, span{x0, x1, y})
	s.parent = append(s.parent, i)
	return i
}

// root is the first span of the region that i is in.
func (s *spans) root(i int32) int32 {
	for s.parent[i] != i {
		s.parent[i] = s.parent[s.parent[i]]
		i = s.parent[i]
	}
	return i
}

func (s *spans) join(i, j int32) {
	a, b := s.root(i), s.root(j)
	s.parent[max(a, b)] = min(a, b)
}

// link joins the last row with the one above it. Spans hang together if they share a
// column, or with reach 1 if they touch at a corner.
func (s *spans) link(reach int32) {
	if len(s.row) < 2 {
		return
	}
	i, j, n := s.row[len(s.row)-2], s.row[len(s.row)-1], int32(len(s.all))
	above := j
	for i < above && j < n {
		if s.all[i].x0 <= s.all[j].x1+reach && s.all[j].x0 <= s.all[i].x1+reach {
			s.join(i, j)
		}
		if s.all[i].x1 < s.all[j].x1 {
			i++
		} else {
			j++
		}
	}
}

// outside is the number of the span that stands for what is around the picture.
const outside = 0

// components are a mask's regions (8-connected) and the holes in them (4-connected).
// The convex hulls of a region, and of the pixels around a hole, are those of the
// contours that cv2.findContours(RETR_LIST) traces.
type components struct {
	set, clear spans
}

// find looks for the regions and holes of a mask.
func (c *components) find(m *bitmask) {
	c.set.reset(m.h)
	c.clear.reset(m.h)
	c.clear.add(-1, -1, -1)
	edge := int32(m.w - 1)
	for y := range int32(m.h) {
		c.set.row = append(c.set.row, int32(len(c.set.all)))
		c.clear.row = append(c.clear.row, int32(len(c.clear.all)))
		free := int32(0) // the columns before are in spans
		for free <= edge {
			x0 := m.first(y, free, edge)
			if x0 < 0 {
				break
			}
			if x0 > free {
				c.gap(free, x0-1, y, m)
			}
			x1 := m.lastOfRun(y, x0)
			c.set.add(x0, x1, y)
			free = x1 + 1
		}
		if free <= edge {
			c.gap(free, edge, y, m)
		}
		c.set.link(1)
		c.clear.link(0)
	}
	c.set.row = append(c.set.row, int32(len(c.set.all)))
	c.clear.row = append(c.clear.row, int32(len(c.clear.all)))
}

// gap adds a stretch of clear pixels; one at the picture's edge is no hole's.
func (c *components) gap(x0, x1, y int32, m *bitmask) {
	i := c.clear.add(x0, x1, y)
	if x0 == 0 || int(x1) == m.w-1 || y == 0 || int(y) == m.h-1 {
		c.clear.parent[i] = outside
	}
}

// lastOfRun is the last of the set pixels that follow each other from (x, y) on.
func (m *bitmask) lastOfRun(y, x int32) int32 {
	row := m.row(int(y))
	i := int(x >> 6)
	word := ^row[i] & (^uint64(0) << (x & 63))
	for word == 0 {
		if i++; i == len(row) {
			return int32(m.w - 1)
		}
		word = ^row[i]
	}
	return min(int32(i<<6+bits.TrailingZeros64(word)), int32(m.w)) - 1
}

// sized is s with n elements, whatever they hold.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
