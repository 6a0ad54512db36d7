package ppocr

import (
	"context"
	"fmt"
	"slices"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// detect finds the regions of a page, in reading order, with corners in its
// pixels.
func (r *Reader) detect(ctx context.Context, p page) ([]region, error) {
	w, h := r.constants.detectorSize(p.W, p.H)
	if r.fast(p) {
		w, h = r.constants.fastSize(p.W, p.H, r.cfg.FastSide, r.cfg.FastShrink)
	}
	if w == 0 || h == 0 {
		return nil, nil
	}
	if w*h > r.cfg.MaxDetectorPixels {
		return nil, fmt.Errorf("%w: a picture of %dx%d needs a detector input of %dx%d, want at most %d pixels", rewards.BadInput, p.sourceW, p.sourceH, w, h, r.cfg.MaxDetectorPixels)
	}
	input := r.scratch.floats(3 * w * h)
	small, borrowed := p.bitmap, false
	if w != p.W || h != p.H {
		small, borrowed = bitmap{W: w, H: h, Pix: r.scratch.bytes(3 * w * h)}, true
		resizeInto(small.Pix, p.bitmap, w, h)
	}
	r.detTable.planes(input, small, w, r.cfg.SwapRB)
	if borrowed {
		r.scratch.putBytes(small.Pix)
	}
	out, err := r.models.Det.Infer(ctx, infer.Request{Name: "detector", Inputs: []infer.Tensor{infer.Floats("", input, 3, h, w)}})
	if err != nil {
		return nil, fmt.Errorf("detector: %w", err)
	}
	r.scratch.putFloats(input)
	prob, err := probabilities(out, w, h)
	if err != nil {
		return nil, fmt.Errorf("detector: %w", err)
	}
	found := findRegions(prob, w, h, p.W, p.H, r.constants.db)
	if r.constants.bubble {
		return sortRegionsBubble(found), nil
	}
	return sortRegions(found), nil
}

// probabilities takes the map out of a detector's answer.
func probabilities(out []infer.Tensor, w, h int) ([]float32, error) {
	if len(out) == 0 || out[0].DType != infer.F32 {
		return nil, fmt.Errorf("%w: no probability map in %d outputs", infer.ErrFault, len(out))
	}
	m := out[0]
	if !slices.Equal(m.Shape, []int{1, h, w}) || len(m.F32) != w*h {
		return nil, fmt.Errorf("%w: a map of shape %v with %d values, want [1 %d %d]", infer.ErrFault, m.Shape, len(m.F32), h, w)
	}
	// NaN would be below every threshold: a picture without text, which it is not.
	// It survives the sum, as infinities do.
	var sum float32
	for _, v := range m.F32 {
		sum += v
	}
	if sum-sum != 0 {
		return nil, fmt.Errorf("%w: the probability map contains NaN or infinities", infer.ErrNumbers)
	}
	return m.F32, nil
}
