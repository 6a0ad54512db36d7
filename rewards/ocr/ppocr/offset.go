package ppocr

import "math"

const (
	// arcTolerance is how far, in pixels, an arc's chords may be inside of it: the
	// default of pyclipper.PyclipperOffset.
	arcTolerance = .25
	// maxOffset and maxArc bound what a garbled ratio can ask for. Within maxOffset an
	// arc has at most 4,500 points.
	maxOffset = 1 << 20
	maxArc    = 1 << 13
)

// unclipDistance is how far a box grows: its area times ratio over its perimeter.
func unclipDistance(box [4]corner, ratio float64) float64 {
	var area, perimeter float64
	for i, p := range box {
		q := box[(i+1)%4]
		px, py, qx, qy := float64(p.x), float64(p.y), float64(q.x), float64(q.y)
		area += px*qy - qx*py
		perimeter += math.Hypot(qx-px, qy-py)
	}
	return math.Abs(area) / 2 * ratio / perimeter
}

// appendOffset appends the outline of box grown by d pixels, with round corners; it is
// not sorted. It appends nothing unless 0 < d <= 2^20 and three different corners are
// left once they are cut to whole pixels, which is what pyclipper makes of floats.
//
// The formulas are those of Clipper 6.4's ClipperOffset for closed polygons with round
// joins. The union that Clipper runs over the outline then changes no hull of a convex
// one.
func appendOffset(dst []cell, box [4]corner, d float64) []cell {
	if !(d > 1e-20 && d <= maxOffset) {
		return dst
	}
	var (
		poly    [4]point
		normals [4]point
	)
	n := wholeCorners(&poly, box)
	if n < 3 {
		return dst
	}
	for i := range n {
		dx, dy := poly[(i+1)%n].X-poly[i].X, poly[(i+1)%n].Y-poly[i].Y
		f := 1 / math.Sqrt(dx*dx+dy*dy)
		normals[i] = point{dy * f, -dx * f}
	}
	steps := min(math.Pi/math.Acos(1-min(arcTolerance, d*.25)/d), math.Pi*d)
	arc := arc{d: d, perRadian: steps / (2 * math.Pi)}
	arc.sin, arc.cos = math.Sincos(2 * math.Pi / steps)
	for j, k := 0, n-1; j < n; k, j = j, j+1 {
		dst = arc.join(dst, poly[j], normals[k], normals[j])
	}
	return dst
}

// wholeCorners cuts a box's corners to whole pixels towards zero, drops repeated ones
// and orders them clockwise on a screen; it says how many are left.
func wholeCorners(poly *[4]point, box [4]corner) int {
	n := 0
	for _, c := range box {
		p := point{math.Trunc(float64(c.x)), math.Trunc(float64(c.y))}
		if n == 0 || poly[n-1] != p {
			poly[n] = p
			n++
		}
	}
	for n > 1 && poly[n-1] == poly[0] {
		n--
	}
	var area float64
	for i := range n {
		p, q := poly[i], poly[(i+1)%n]
		area += p.X*q.Y - q.X*p.Y
	}
	if area < 0 {
		for i, j := 0, n-1; i < j; i, j = i+1, j-1 {
			poly[i], poly[j] = poly[j], poly[i]
		}
	}
	return n
}

// arc is the circle that rounds the corners.
type arc struct{ d, perRadian, sin, cos float64 }

// join appends the outline's points around the corner p between the edges with the
// normals from and to.
func (a arc) join(dst []cell, p, from, to point) []cell {
	sin := from.X*to.Y - to.X*from.Y
	cos := from.X*to.X + to.Y*from.Y
	if math.Abs(sin*a.d) < 1 && cos > 0 { // less than a pixel apart
		return append(dst, a.at(p, from))
	}
	sin = max(-1, min(1, sin))
	if sin < 0 { // a corner that turns inwards, from cutting to whole pixels
		return append(dst, a.at(p, from), cell{int32(p.X), int32(p.Y)}, a.at(p, to))
	}
	steps := min(max(int(math.Round(a.perRadian*math.Abs(math.Atan2(sin, cos)))), 1), maxArc)
	v := from
	for range steps {
		dst = append(dst, a.at(p, v))
		v = point{v.X*a.cos - v.Y*a.sin, v.X*a.sin + v.Y*a.cos}
	}
	return append(dst, a.at(p, to))
}

// at is the pixel at the circle's radius from p in the direction v, halves rounded
// away from zero.
func (a arc) at(p, v point) cell {
	return cell{int32(math.Round(p.X + v.X*a.d)), int32(math.Round(p.Y + v.Y*a.d))}
}
