package ppocr

import (
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// page is a picture within the profile's bounds, and the way back.
type page struct {
	bitmap
	// source is the size of the picture that came in.
	sourceW, sourceH int
	// ratioX and ratioY take a pixel of the page to the source, after bar rows were
	// taken off at the top.
	ratioX, ratioY float32
	bar            int
}

// prepare brings a picture within bounds. It fails with class BadInput for one of
// which nothing would be left, more than 125 times as long as wide with a longer
// side above maxSide, and for one that would grow beyond maxPixels.
func (c constants) prepare(src bitmap, maxPixels int) (page, error) {
	w, h := c.pageSize(src.W, src.H)
	if w == 0 || h == 0 {
		return page{}, fmt.Errorf("%w: a picture of %dx%d has a side of less than 16 pixels when the other side is scaled to %d", rewards.BadInput, src.W, src.H, c.maxSide)
	}
	p := page{bitmap: src, sourceW: src.W, sourceH: src.H, ratioX: 1, ratioY: 1, bar: c.bars(w, h)}
	if full := h + 2*p.bar; w*full > maxPixels {
		return page{}, fmt.Errorf("%w: a picture of %dx%d would be scaled to %dx%d, want at most %d pixels", rewards.BadInput, src.W, src.H, w, full, maxPixels)
	}
	if w != src.W || h != src.H {
		p.ratioX, p.ratioY = float32(float64(src.W)/float64(w)), float32(float64(src.H)/float64(h))
		p.bitmap = resize(src, w, h)
	}
	if p.bar > 0 {
		pix := make([]byte, w*(h+2*p.bar)*3)
		copy(pix[p.bar*w*3:], p.Pix)
		p.bitmap = bitmap{W: w, H: h + 2*p.bar, Pix: pix}
	}
	return p, nil
}

// restore maps a region's corners to the picture that came in, with the 32 bits
// that the reference calculates with.
func (p page) restore(q quad) [4][2]float64 {
	var out [4][2]float64
	for i, c := range q {
		x := float32(c.X) * p.ratioX
		y := (float32(c.Y) - float32(p.bar)) * p.ratioY
		out[i][0] = float64(min(max(x, 0), float32(p.sourceW)))
		out[i][1] = float64(min(max(y, 0), float32(p.sourceH)))
	}
	return out
}
