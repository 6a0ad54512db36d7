package ppocr

import (
	"math"
	"sync"
)

// maxCandidates bounds how many contours of a map are looked at.
const maxCandidates = 1000

// dbParams say which regions of a detector's map count.
type dbParams struct {
	// Thresh is the probability above which a pixel is text's, BoxThresh what a box
	// needs on average.
	Thresh, BoxThresh float64
	// UnclipRatio, above 0, is how much boxes grow: by their area times it over their
	// perimeter. The detector learns shrunken regions.
	UnclipRatio float64
	// Dilate grows the pixels' regions by one to the right and down first.
	Dilate bool
	// MaxCandidates bounds the contours looked at; 0 and more than 1000 mean 1000.
	MaxCandidates int
	// MinSize is the least length of a region's shorter side in pixels of the map; two
	// more are asked of a grown one.
	MinSize float64
	// Slow averages over a region's own outline instead of the rectangle around it.
	Slow bool
}

// region is a place with text. Quad has whole pixels of the destination, Score is the
// mean probability, within [0, 1] for a sigmoid's map.
type region struct {
	Quad  quad
	Score float64
}

// detection is the working memory of findRegions.
type detection struct {
	mask       bitmask
	components components
	contours   contours
	calipers   calipers
	filler     filler
	hull       []cell
	outline    []cell
}

// detections are kept between pictures, as many as were in use at the same time and the
// collector leaves: 0.1 MB each for a map of 736x736 with text, 15 MB after noise.
var detections = sync.Pool{New: func() any { return new(detection) }} //nolint:gochecknoglobals // a pool has no state to tell

// findRegions finds the text in a detector's map, prob[y*w+x], and answers with boxes
// in an image of destW x destH pixels, in no order to rely on: DBPostProcess of
// RapidOCR with its filter_det_res. Every corner is within the image.
//
// The map must be finite; NaN counts as below Thresh. A map of more than MaxCandidates
// contours, which is noise, is cut to those at the bottom, as the reference does, but
// not always to the same ones. Nothing is found in an empty map, nor in one that is
// shorter than w*h.
func findRegions(prob []float32, w, h, destW, destH int, p dbParams) []region {
	if w <= 0 || h <= 0 || destW <= 0 || destH <= 0 || h > len(prob)/w || len(prob) > math.MaxInt32 {
		return nil
	}
	d, ok := detections.Get().(*detection)
	if !ok {
		d = new(detection)
	}
	defer detections.Put(d)
	d.mask.threshold(prob[:w*h], w, h, float32(p.Thresh), p.Dilate)
	d.components.find(&d.mask)
	limit := p.MaxCandidates
	if limit <= 0 || limit > maxCandidates {
		limit = maxCandidates
	}
	d.contours.pick(&d.components, limit)
	var found []region
	for i := range d.contours.list {
		box, score, ok := d.candidate(prob, w, h, i, p)
		if !ok {
			continue
		}
		if q, ok := place(box, w, h, destW, destH); ok {
			found = append(found, region{Quad: q, Score: score})
		}
	}
	return found
}

// candidate looks at contour i: the grown box around it, unless it is too small or too
// unlikely to be text.
func (d *detection) candidate(prob []float32, w, h, i int, p dbParams) (box [4]corner, score float64, ok bool) {
	d.hull = d.contours.hull(d.hull[:0], i, &d.mask)
	box, side := d.calipers.miniBox(d.hull)
	if float64(side) < p.MinSize {
		return box, 0, false
	}
	if p.Slow {
		score = d.filler.contourMean(prob, w, d.hull, d.contours.of(i), d.contours.list[i].hole, &d.mask)
	} else {
		score = d.filler.boxMean(prob, w, h, box)
	}
	if !(score >= p.BoxThresh) || math.IsInf(score, 0) {
		return box, 0, false
	}
	d.outline = appendOffset(d.outline[:0], box, unclipDistance(box, p.UnclipRatio))
	readingOrder(d.outline)
	d.hull = appendHull(d.hull[:0], d.outline)
	startOffset(d.hull)
	box, side = d.calipers.miniBox(d.hull)
	return box, score, len(d.hull) > 2 && float64(side) >= p.MinSize+2
}

// place takes a box from the map to the image, corners rounded to whole pixels and
// clipped to it; not if 3 pixels or less are left of its top or left side.
func place(box [4]corner, w, h, destW, destH int) (quad, bool) {
	var q quad
	for i, c := range box {
		q[i] = point{scaleTo(c.x, w, destW), scaleTo(c.y, h, destH)}
	}
	q = clockwise(q)
	for i := range q {
		q[i].X, q[i].Y = min(q[i].X, float64(destW-1)), min(q[i].Y, float64(destH-1))
	}
	return q, distance(q[0], q[1]) >= 4 && distance(q[0], q[3]) >= 4
}

// scaleTo takes a coordinate from a side of length from to one of length to, halves
// rounded to even, and clips it to [0, to].
func scaleTo(v float32, from, to int) float64 {
	scaled := float32(float32(v/float32(from)) * float32(to))
	return max(0, min(math.RoundToEven(float64(scaled)), float64(to)))
}

// clockwise orders corners: the upper and the lower one of the two leftmost are the
// left side's, the other two the right side's.
func clockwise(q quad) quad {
	for i := 1; i < len(q); i++ { // by X, equal ones as they were
		for j := i; j > 0 && q[j].X < q[j-1].X; j-- {
			q[j], q[j-1] = q[j-1], q[j]
		}
	}
	if q[1].Y < q[0].Y {
		q[0], q[1] = q[1], q[0]
	}
	if q[3].Y < q[2].Y {
		q[2], q[3] = q[3], q[2]
	}
	return quad{q[0], q[2], q[3], q[1]}
}

// distance is in 32 bits, as the reference's is.
func distance(a, b point) float64 {
	x, y := float32(a.X-b.X), float32(a.Y-b.Y)
	return float64(float32(math.Sqrt(float64(float32(x*x) + float32(y*y)))))
}
