package ppocr

import (
	"cmp"
	"slices"
)

// appendHull appends the convex hull of pts to dst: clockwise on a screen from the
// first in reading order (the top row's leftmost), without points on a straight line
// between others. pts must be sorted in reading order; repeated points do no harm.
//
// It is Andrew's monotone chain, turned by 90 degrees because rows come sorted.
func appendHull(dst, pts []cell) []cell {
	if len(pts) == 0 {
		return dst
	}
	from := len(dst)
	push := func(p cell, keep int) {
		if dst[len(dst)-1] == p {
			return
		}
		for len(dst) > keep && turn(dst[len(dst)-2], dst[len(dst)-1], p) <= 0 {
			dst = dst[:len(dst)-1]
		}
		dst = append(dst, p)
	}
	dst = append(dst, pts[0])
	for _, p := range pts[1:] {
		push(p, from+1)
	}
	lower := len(dst)
	if lower == from+1 {
		return dst
	}
	for _, p := range slices.Backward(pts[:len(pts)-1]) {
		push(p, lower)
	}
	return dst[:len(dst)-1] // the first point closes the way round
}

// readingOrder sorts points by row and then by column.
func readingOrder(pts []cell) {
	slices.SortFunc(pts, func(a, b cell) int {
		if c := cmp.Compare(a.y, b.y); c != 0 {
			return c
		}
		return cmp.Compare(a.x, b.x)
	})
}

// rotate makes hull begin with the point at first. Where the calipers start decides
// between rectangles of the same area, so it has to be where cv2.convexHull starts:
// there it follows from the order in which the contour was traced.
func rotate(hull []cell, first int) {
	slices.Reverse(hull[:first])
	slices.Reverse(hull[first:])
	slices.Reverse(hull)
}

// startOuter turns a hull from appendHull to where cv2 starts for an outer contour:
// after the top left.
func startOuter(hull []cell) {
	if len(hull) > 1 {
		rotate(hull, 1)
	}
}

// startHole turns a hull from appendHull to where cv2 starts for a hole's contour: at
// the pixel left of the hole's first if that is a corner, else at the top left.
func startHole(hull []cell, left cell) {
	if i := slices.Index(hull, left); i > 0 {
		rotate(hull, i)
	}
}

// startOffset turns a hull from appendHull to where pyclipper's polygons start: after
// the top right.
func startOffset(hull []cell) {
	switch {
	case len(hull) > 2 && hull[1].y == hull[0].y:
		rotate(hull, 2)
	case len(hull) > 1:
		rotate(hull, 1)
	}
}
