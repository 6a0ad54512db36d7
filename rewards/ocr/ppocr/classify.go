package ppocr

import (
	"context"
	"fmt"
	"math"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// upsideDown is the classifier's class for a line that stands on its head, and
// turnScore what its probability must be above for the line to be turned.
const (
	upsideDown = 1
	turnScore  = .9
)

// upright turns a crop by 180 degrees if the classifier says so.
func (r *Reader) upright(ctx context.Context, crop bitmap, t *stopwatch) (bitmap, error) {
	width, height := r.cfg.ClassifierSize[0], r.cfg.ClassifierSize[1]
	input := r.line(crop, width, height)
	t.pause()
	out, err := r.models.Cls.Infer(ctx, infer.Request{Name: "classifier", Inputs: []infer.Tensor{infer.Floats("", input, 3, height, width)}})
	t.waited(&t.classifier)
	if err != nil {
		return bitmap{}, fmt.Errorf("classifier: %w", err)
	}
	r.scratch.putFloats(input)
	if len(out) == 0 || len(out[0].F32) != 2 {
		return bitmap{}, fmt.Errorf("classifier: %w: want an output of 2 probabilities", infer.ErrFault)
	}
	p := out[0].F32
	if sum := p[0] + p[1]; math.IsNaN(float64(sum)) || math.IsInf(float64(sum), 0) {
		return bitmap{}, fmt.Errorf("classifier: %w: probabilities %v", infer.ErrFault, p)
	}
	// The 32-bit probability is compared with the 64-bit bound, as numpy does.
	if p[upsideDown] > p[0] && float64(p[upsideDown]) > turnScore {
		return rotate180(crop), nil
	}
	return crop, nil
}

// line makes a model's input of a crop: resized to the height with its aspect
// kept, or squeezed to the width, and zeros on the right, which are a mid grey.
func (r *Reader) line(crop bitmap, width, height int) []float32 {
	w := cropSize{crop.W, crop.H}.fill(height, width)
	input := r.scratch.floats(3 * width * height)
	if w < width {
		for y := range 3 * height {
			clear(input[y*width+w : (y+1)*width])
		}
	}
	if w == crop.W && height == crop.H {
		r.lineTable.planes(input, crop, width, r.cfg.SwapRB)
		return input
	}
	small := bitmap{W: w, H: height, Pix: r.scratch.bytes(3 * w * height)}
	resizeInto(small.Pix, crop, w, height)
	r.lineTable.planes(input, small, width, r.cfg.SwapRB)
	r.scratch.putBytes(small.Pix)
	return input
}
