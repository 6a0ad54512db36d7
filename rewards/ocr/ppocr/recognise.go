package ppocr

import (
	"context"
	"fmt"
	"sync"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// reading is what the recogniser says of a crop.
type reading struct {
	text       string
	confidence float64
}

// recognise reads the regions of a page, at most Concurrency at a time, and answers
// with those of which a crop is left, in their order, and what they say. The first
// failure ends the others. Crops are cut out one by one, so that no more than
// Concurrency are in memory: a thousand regions may overlap.
func (r *Reader) recognise(ctx context.Context, p page, regions []region, alphabet dictionary) ([]region, []reading, error) {
	kept, sizes := regions[:0], make([]cropSize, 0, len(regions))
	for _, g := range regions {
		if s := sizeOfCrop(p.bitmap, g.Quad); s.W > 0 {
			kept, sizes = append(kept, g), append(sizes, s)
		}
	}
	widths := r.widths(p, sizes)
	out := make([]reading, len(kept))
	err := r.each(ctx, len(kept), func(ctx context.Context, i int) (err error) {
		out[i], err = r.readLine(ctx, cropQuad(p.bitmap, kept[i].Quad), widths[i], alphabet)
		return err
	})
	return kept, out, err
}

// widths are those that the crops of a page are padded to.
func (r *Reader) widths(p page, crops []cropSize) []int {
	if !r.fast(p) {
		return r.constants.parityWidths(crops)
	}
	widths := make([]int, len(crops))
	for i, s := range crops {
		widths[i] = r.constants.fastWidth(s, r.cfg.WidthStep)
	}
	return widths
}

// readWhole reads a picture as one line.
func (r *Reader) readWhole(ctx context.Context, src bitmap, alphabet dictionary) ([]Result, error) {
	line := src
	if r.cfg.Mode == Parity {
		c := r.constants
		c.barHeight = 0 // bars are for the detector
		p, err := c.prepare(src, r.cfg.MaxPixels)
		if err != nil {
			return nil, err
		}
		line = p.bitmap
	}
	size := cropSize{line.W, line.H}
	width := r.constants.parityWidths([]cropSize{size})[0]
	if r.cfg.Mode == Fast {
		width = r.constants.fastWidth(size, r.cfg.WidthStep)
	}
	read, err := r.readLine(ctx, line, width, alphabet)
	if err != nil || !r.keeps(read) {
		return nil, err
	}
	w, h := float64(src.W), float64(src.H)
	return []Result{{Text: read.text, Confidence: read.confidence, Quad: [4][2]float64{{0, 0}, {w, 0}, {w, h}, {0, h}}, Detection: 1}}, nil
}

// each calls do for 0 to n-1 from up to Concurrency goroutines, which have ended
// when it returns. It returns the first error; the
// context of the other calls ends with it.
func (r *Reader) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards next and first
		next  int
		first error
	)
	worker := func() {
		for {
			mu.Lock()
			i := next
			next++
			stop := first != nil
			mu.Unlock()
			if i >= n || stop {
				return
			}
			if err := rewards.Guard(func() error { return do(ctx, i) }); err != nil {
				mu.Lock()
				if first == nil {
					first = err
				}
				mu.Unlock()
				cancel(err)
			}
		}
	}
	if n == 1 { // the usual picture: no goroutine
		worker()
		return first
	}
	for range min(n, r.cfg.Concurrency) {
		wg.Go(worker)
	}
	wg.Wait()
	return first
}

// readLine reads one crop, padded to the width.
func (r *Reader) readLine(ctx context.Context, crop bitmap, width int, alphabet dictionary) (reading, error) {
	height := r.constants.recHeight
	input := r.line(crop, width, height)
	out, err := r.models.Rec.Infer(ctx, infer.Request{
		Name:   "recogniser",
		Inputs: []infer.Tensor{infer.Floats("", input, 3, height, width)},
		Reduce: infer.ArgMax,
	})
	if err != nil {
		return reading{}, fmt.Errorf("recogniser: %w", err)
	}
	r.scratch.putFloats(input)
	var classes, probs *infer.Tensor
	for i := range out {
		switch {
		case out[i].DType == infer.I32 && classes == nil:
			classes = &out[i]
		case out[i].DType == infer.F32 && probs == nil:
			probs = &out[i]
		}
	}
	if classes == nil || probs == nil || len(classes.Shape) != 1 || len(classes.I32) == 0 {
		return reading{}, fmt.Errorf("recogniser: %w: want the classes of each step and their probabilities, got %d outputs", infer.ErrFault, len(out))
	}
	text, confidence, err := alphabet.decode(classes.I32, probs.F32, r.constants.rounded)
	if err != nil {
		return reading{}, fmt.Errorf("recogniser: %w", err)
	}
	return reading{text, confidence}, nil
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
