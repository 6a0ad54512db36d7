package ppocr

import (
	"math"
	"slices"
)

// stride is what the detector's sides are multiples of.
const stride = 32

// maxRecWidth bounds a crop's width for the recogniser: 680 times its height,
// more than any line of text. Wider ones are squeezed.
const maxRecWidth = 1 << 15

// scaled is both sides times a ratio, cut to whole pixels and rounded to the
// multiple of 32 next to it, halves to the even one, as Python's round does: 0
// for a side of less than 16.
func scaled(w, h int, ratio float64) (int, int) {
	round := func(side int) int {
		return int(math.RoundToEven(float64(int(float64(side)*ratio))/stride)) * stride
	}
	return round(w), round(h)
}

// pageSize is the size that a picture is brought to before everything else: at
// most maxSide, or else at least minSide, and otherwise its own.
func (c constants) pageSize(w, h int) (int, int) {
	if c.maxSide > 0 && max(w, h) > c.maxSide {
		w, h = scaled(w, h, float64(c.maxSide)/float64(max(w, h)))
	}
	if c.minSide > 0 && min(w, h) > 0 && min(w, h) < c.minSide {
		w, h = scaled(w, h, float64(c.minSide)/float64(min(w, h)))
	}
	return w, h
}

// bars is the height of the black bars above and below a picture.
func (c constants) bars(w, h int) int {
	if c.barHeight == 0 || (h > c.barHeight && float64(w)/float64(h) <= c.barRatio) {
		return 0
	}
	want := max(int(float64(w)/c.barRatio), c.barHeight) * 2
	return max(want-h, h-want) / 2
}

// detectorSize is the reference's size of the detector's input for a picture; a
// side of 0 means that there is nothing to see.
func (c constants) detectorSize(w, h int) (int, int) {
	side, ratio := min(w, h), 1.0
	if c.detMax {
		side = max(w, h)
	}
	if (c.detMax && side > c.detSide) || (!c.detMax && side < c.detSide) {
		ratio = float64(c.detSide) / float64(side)
	}
	dw, dh := scaled(w, h, ratio)
	if c.detClamp {
		dw, dh = max(dw, stride), max(dh, stride)
	}
	return dw, dh
}

// fastLong is how many times as long as wide a picture may be for fast mode. Longer
// ones, banners and columns, are read as in parity mode: their text is small beside
// them, often on its side, and stands or falls with every pixel. Of 54 such pictures
// that were drawn for the comparison, 7 got another reward in fast mode.
const fastLong = 2.5

// long tells whether a picture is too long for fast mode.
func long(w, h int) bool { return float64(max(w, h)) > fastLong*float64(min(w, h)) }

// fastSize is the detector's size in fast mode: the smaller side becomes side, but no
// picture is made more than shrink times smaller, and none gets more pixels than the
// reference would give it.
func (c constants) fastSize(w, h, side int, shrink float64) (int, int) {
	dw, dh := c.detectorSize(w, h)
	fw, fh := scaled(w, h, max(float64(side)/float64(min(w, h)), 1/shrink))
	if fw, fh = max(fw, stride), max(fh, stride); fw*fh < dw*dh {
		return fw, fh
	}
	return dw, dh
}

// cropSize is the size of a cut-out line.
type cropSize struct{ W, H int }

func (s cropSize) ratio() float64 { return float64(s.W) / float64(s.H) }

// fill is the columns of a recogniser's input that a crop takes at the given
// height, at most width; the rest is padding.
func (s cropSize) fill(height, width int) int {
	return min(int(math.Ceil(float64(height)*s.ratio())), width)
}

// parityWidths are the widths that the reference pads crops to: sorted by width
// over height, those of a batch of recBatch share the width of the longest.
func (c constants) parityWidths(crops []cropSize) []int {
	order := make([]int, len(crops))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch ra, rb := crops[a].ratio(), crops[b].ratio(); {
		case ra < rb:
			return -1
		case ra > rb:
			return 1
		}
		return 0
	})
	widths := make([]int, len(crops))
	for batch := range slices.Chunk(order, c.recBatch) {
		longest := float64(c.recWidth) / float64(c.recHeight)
		for _, i := range batch {
			longest = max(longest, crops[i].ratio())
		}
		for _, i := range batch {
			widths[i] = min(int(float64(c.recHeight)*longest), maxRecWidth)
		}
	}
	return widths
}

// fastWidth is the width that fast mode pads a crop to: the next multiple of step, at
// least two of them. Beyond 16 steps the step doubles, and again at every double of
// that, so that all crops up to maxRecWidth have at most 72 widths between them and
// padding takes less than an eighth.
func (c constants) fastWidth(s cropSize, step int) int {
	need := s.fill(c.recHeight, maxRecWidth)
	for need > 16*step {
		step *= 2
	}
	return max((need+step-1)/step, 2) * step
}
