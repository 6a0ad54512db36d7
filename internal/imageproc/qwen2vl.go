package imageproc

import (
	"errors"
	"fmt"
	"math"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// maxAspect is how much longer than the other one side of a picture for Qwen2-VL may be.
const maxAspect = 200

// Qwen2VL is the image processor of Qwen2-VL and Qwen2.5-VL in transformers 4.57.6.
type Qwen2VL struct {
	// MinPixels and MaxPixels limit width·height after the resize.
	MinPixels, MaxPixels int
	// Patch is the side of a patch in pixels, Merge the number of patches per side that become one
	// token, and Temporal the number of times that a picture is repeated in time.
	Patch, Merge, Temporal int
	Filter                 Filter
	// Rescale, Mean and Std are as in Recipe.
	Rescale   float64
	Mean, Std []float32
}

// ParseQwen2VL reads preprocessor_config.json. The limits are min_pixels and max_pixels, or else
// shortest_edge and longest_edge of size, which are total numbers of pixels in spite of their names
// (the processor that uses PIL ignores them, the "Fast" one does not).
func ParseQwen2VL(preprocessor []byte) (Qwen2VL, error) {
	c, err := openConfig(preprocessor)
	if err != nil {
		return Qwen2VL{}, err
	}
	if c.typ != "Qwen2VLImageProcessor" && c.typ != "Qwen2_5_VLImageProcessor" {
		return Qwen2VL{}, fmt.Errorf("preprocessor_config.json: image_processor_type %q, want Qwen2VLImageProcessor", c.typ)
	}
	if !take(c, "do_resize", true) {
		c.fault("do_resize is false, but pictures of arbitrary sizes do not fill complete patches")
	}
	size := c.size("size", map[string]int{"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280})
	lo, hi := "shortest_edge", "longest_edge"
	switch keys(size) {
	case "longest_edge+shortest_edge":
	case "max_pixels+min_pixels":
		lo, hi = "min_pixels", "max_pixels"
	default:
		c.fault("size has %s, want shortest_edge and longest_edge", keys(size))
	}
	p := Qwen2VL{
		MinPixels: take(c, "min_pixels", size[lo]),
		MaxPixels: take(c, "max_pixels", size[hi]),
		Patch:     take(c, "patch_size", 14),
		Merge:     take(c, "merge_size", 2),
		Temporal:  take(c, "temporal_patch_size", 2),
		Filter:    c.filter(Bicubic),
	}
	p.Rescale, p.Mean, p.Std = c.norm(clipMean(), clipStd())
	if err := c.done(); err != nil {
		return Qwen2VL{}, err
	}
	if err := p.validate(); err != nil {
		return Qwen2VL{}, err
	}
	return p, nil
}

// validate names all faults.
func (p Qwen2VL) validate() error {
	errs := rewards.Faults{p.Filter.check(), checkNorm(p.Rescale, p.Mean, p.Std)}
	if p.MinPixels < 1 || p.MaxPixels < p.MinPixels || p.MaxPixels > maxSide*maxSide {
		errs = append(errs, fmt.Errorf("%d to %d pixels, want 1 to %d and the lower bound first", p.MinPixels, p.MaxPixels, maxSide*maxSide))
	}
	errs.Add(p.Patch < 1 || p.Patch > 256 || p.Merge < 1 || p.Merge > 16 || p.Temporal < 1 || p.Temporal > 16, "patch_size %d, merge_size %d and temporal_patch_size %d, want 1 to 256, 1 to 16 and 1 to 16", p.Patch, p.Merge, p.Temporal)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("qwen2-vl image processor: %w", err)
	}
	return nil
}

// smartResize is the height and width, multiples of factor, to which a picture of h×w is
// brought: each side to the nearest multiple (half to even, as Python rounds), unless
// that is more or fewer pixels than allowed. The error is of class BadInput: an empty
// picture, or one side more than 200 times the other.
func smartResize(h, w, factor, minPixels, maxPixels int) (height, width int, err error) {
	if h < 1 || w < 1 || factor < 1 {
		return 0, 0, fmt.Errorf("%w: a picture of %d×%d pixels cannot be resized to multiples of %d", rewards.BadInput, w, h, factor)
	}
	fh, fw, f := float64(h), float64(w), float64(factor)
	if max(fh, fw)/min(fh, fw) > maxAspect {
		return 0, 0, fmt.Errorf("%w: a picture of %d×%d pixels, want no side longer than %d times the other", rewards.BadInput, w, h, maxAspect)
	}
	height = int(math.RoundToEven(fh/f)) * factor
	width = int(math.RoundToEven(fw/f)) * factor
	switch {
	case height*width > maxPixels:
		beta := math.Sqrt(fh * fw / float64(maxPixels))
		height = max(factor, int(math.Floor(fh/beta/f))*factor)
		width = max(factor, int(math.Floor(fw/beta/f))*factor)
	case height*width < minPixels:
		beta := math.Sqrt(float64(minPixels) / (fh * fw))
		height = int(math.Ceil(fh*beta/f)) * factor
		width = int(math.Ceil(fw*beta/f)) * factor
	}
	return height, width, nil
}

// Patches are the parts of one picture that are inputs of the vision encoder.
type Patches struct {
	// GridT, GridH and GridW are the numbers of patches in time (1), down and across: a row of
	// image_grid_thw.
	GridT, GridH, GridW int
	// Data is [GridH·GridW, 3·Temporal·Patch·Patch]. The patches of one token are adjacent: (block
	// row, block column, row in block, column in block); a patch has (channel, time, row, column).
	Data []byte
}

// Patches returns the patches of frame i of px. Errors are of class BadInput.
func (p Qwen2VL) Patches(px *rewards.Pixels, i int) (Patches, error) {
	src, err := frameOf(px, i)
	if err != nil {
		return Patches{}, err
	}
	h, w, err := smartResize(src.Height, src.Width, p.Patch*p.Merge, p.MinPixels, p.MaxPixels)
	if err != nil {
		return Patches{}, err
	}
	if err := bounded(src.Width, src.Height, w, h); err != nil {
		return Patches{}, err
	}
	src = resize(src, w, h, p.Filter)
	out := Patches{GridT: 1, GridH: h / p.Patch, GridW: w / p.Patch}
	out.Data = make([]byte, 3*p.Temporal*w*h)
	rest := out.Data
	for y := 0; y < out.GridH; y += p.Merge {
		for x := 0; x < out.GridW; x += p.Merge {
			for k := range p.Merge * p.Merge {
				rest = p.patch(rest, src, y+k/p.Merge, x+k%p.Merge)
			}
		}
	}
	return out, nil
}

// patch writes the patch in row y and column x, and returns dst behind it.
func (p Qwen2VL) patch(dst []byte, src *Picture, y, x int) []byte {
	n := p.Patch * p.Patch
	for c := range 3 {
		plane := dst[:n]
		for row := range p.Patch {
			from := src.RGB[((y*p.Patch+row)*src.Width+x*p.Patch)*3+c:]
			to := plane[row*p.Patch:][:p.Patch]
			for i := range to {
				to[i] = from[i*3]
			}
		}
		dst = dst[n:]
		for range p.Temporal - 1 {
			copy(dst, plane)
			dst = dst[n:]
		}
	}
	return dst
}

// Tensor returns the patches as the input called name: U8 [GridH·GridW, 3·Temporal·Patch·Patch]
// with Norm set.
func (p Qwen2VL) Tensor(name string, q Patches) infer.Tensor {
	return infer.Tensor{
		Name: name, DType: infer.U8, U8: q.Data,
		Shape: []int{q.GridT * q.GridH * q.GridW, 3 * p.Temporal * p.Patch * p.Patch},
		Norm:  &infer.Normalize{Rescale: p.Rescale, Mean: p.Mean, Std: p.Std, Inner: p.Temporal * p.Patch * p.Patch},
	}
}
