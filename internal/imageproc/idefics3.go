package imageproc

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// maxLongest is the longest side that Idefics3 resizes to, whatever its file says.
const maxLongest = 4096

// Idefics3 is the image processor of Idefics3 and SmolVLM in transformers 4.57.6 (the version that
// uses PIL; the "Fast" version replaces Lanczos by bicubic).
type Idefics3 struct {
	// NoResize omits the first resize, to LongestEdge (do_resize false).
	NoResize bool
	// LongestEdge is the length of the longer side after the first resize, which may enlarge the
	// picture. 1 to 8192; a picture beyond 4096 is then reduced to 4096.
	LongestEdge int
	// Size is the side of a tile (max_image_size.longest_edge), 1 to 4096.
	Size int
	// Filter is the filter of all resizes.
	Filter Filter
	// SeqLen is the number of tokens of one tile (image_seq_len), or 0 if no file contains it.
	SeqLen int
	// Rescale, Mean and Std are as in Recipe.
	Rescale   float64
	Mean, Std []float32
}

// ParseIdefics3 reads preprocessor_config.json and, if processor is not empty, the image_seq_len of
// processor_config.json.
func ParseIdefics3(preprocessor, processor []byte) (Idefics3, error) {
	c, err := openConfig(preprocessor)
	if err != nil {
		return Idefics3{}, err
	}
	if c.typ != "Idefics3ImageProcessor" && c.typ != "SmolVLMImageProcessor" {
		return Idefics3{}, fmt.Errorf("preprocessor_config.json: image_processor_type %q, want Idefics3ImageProcessor or SmolVLMImageProcessor", c.typ)
	}
	p := Idefics3{NoResize: !take(c, "do_resize", true), Filter: c.filter(Lanczos)}
	p.LongestEdge = c.longest("size", 4*364)
	p.Size = c.longest("max_image_size", 364)
	take(c, "do_image_splitting", true) // Tiles is told by its caller
	delete(c.raw, "do_pad")             // a sample's own tiles are of one size
	delete(c.raw, "video_sampling")     // of SmolVLM2, for videos
	p.Rescale, p.Mean, p.Std = c.norm(halfs(), halfs())
	if err := c.done(); err != nil {
		return Idefics3{}, err
	}
	if len(processor) > maxConfig {
		return Idefics3{}, fmt.Errorf("processor_config.json has %d bytes, want at most %d", len(processor), maxConfig)
	}
	if len(processor) > 0 {
		var file struct {
			SeqLen int `json:"image_seq_len"`
		}
		if err := json.Unmarshal(processor, &file); err != nil {
			return Idefics3{}, fmt.Errorf("processor_config.json: %w", err)
		}
		p.SeqLen = file.SeqLen
	}
	if err := p.validate(); err != nil {
		return Idefics3{}, err
	}
	return p, nil
}

// longest reads a size that has longest_edge alone.
func (c *hfConfig) longest(key string, absent int) int {
	size := c.size(key, map[string]int{"longest_edge": absent})
	if keys(size) != "longest_edge" {
		c.fault("%s has %s, want longest_edge", key, keys(size))
	}
	return size["longest_edge"]
}

// validate names all faults.
func (p Idefics3) validate() error {
	errs := rewards.Faults{side("longest edge", p.LongestEdge, true), p.Filter.check(), checkNorm(p.Rescale, p.Mean, p.Std)}
	errs.Add(p.Size < 1 || p.Size > maxLongest, "tile size is %d, want 1 to %d", p.Size, maxLongest)
	errs.Add(p.SeqLen < 0 || p.SeqLen > 1<<16, "image_seq_len is %d, want 1 to %d", p.SeqLen, 1<<16)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("idefics3 image processor: %w", err)
	}
	return nil
}

// Tiles are the parts of one picture that are inputs of the vision encoder.
type Tiles struct {
	// Rows and Cols are the numbers of rows and columns of the split, both 0 if the picture was not
	// split.
	Rows, Cols int
	// Count is Rows·Cols plus one for the whole picture, which is last; 1 if the picture was not
	// split.
	Count int
	// Size is the side of a tile.
	Size int
	// CHW contains Count tiles of [3, Size, Size], row by row from the upper left.
	CHW []byte
}

// Tiles returns the tiles of frame i of px. Errors are of class BadInput.
func (p Idefics3) Tiles(px *rewards.Pixels, i int, split bool) (Tiles, error) {
	src, err := frameOf(px, i)
	if err != nil {
		return Tiles{}, err
	}
	if !p.NoResize {
		w, h := p.longest(src.Width, src.Height)
		if err := bounded(src.Width, src.Height, w, h); err != nil {
			return Tiles{}, err
		}
		src = resize(src, w, h, p.Filter)
	}
	t := Tiles{Count: 1, Size: p.Size}
	if split {
		w, h := p.grid(src.Width, src.Height)
		if err := bounded(src.Width, src.Height, w, h); err != nil {
			return Tiles{}, err
		}
		src = resize(src, w, h, p.Filter)
		if w > p.Size || h > p.Size {
			t.Rows, t.Cols = h/p.Size, w/p.Size
			t.Count = t.Rows*t.Cols + 1
		}
	}
	n := 3 * p.Size * p.Size
	t.CHW = make([]byte, 0, n*t.Count)
	for y := range t.Rows {
		for x := range t.Cols {
			tile := src.crop(window{left: x * p.Size, top: y * p.Size, right: (x + 1) * p.Size, bottom: (y + 1) * p.Size})
			t.CHW = t.CHW[:len(t.CHW)+n]
			planes(t.CHW[len(t.CHW)-n:], tile.RGB)
		}
	}
	t.CHW = t.CHW[:len(t.CHW)+n]
	planes(t.CHW[len(t.CHW)-n:], resize(src, p.Size, p.Size, p.Filter).RGB)
	return t, nil
}

// longest is the size to which a w×h picture is brought first: the longer side LongestEdge,
// the other one even and in proportion; then no side above 4096.
func (p Idefics3) longest(w, h int) (int, int) {
	aspect := float64(w) / float64(h)
	if w >= h {
		w = p.LongestEdge
		h = int(float64(w) / aspect)
		h += h % 2
	} else {
		h = p.LongestEdge
		w = int(float64(h) * aspect)
		w += w % 2
	}
	w, h = max(w, 1), max(h, 1)
	aspect = float64(w) / float64(h)
	switch {
	case w >= h && w > maxLongest:
		w = maxLongest
		h = int(float64(w) / aspect)
	case h > w && h > maxLongest:
		h = maxLongest
		w = int(float64(h) * aspect)
	}
	return max(w, 1), max(h, 1)
}

// grid is the size in whole tiles to which a w×h picture is brought before it is split.
func (p Idefics3) grid(w, h int) (int, int) {
	up := func(n int) int { return int(math.Ceil(float64(n)/float64(p.Size))) * p.Size }
	aspect := float64(w) / float64(h)
	if w >= h {
		w = up(w)
		return w, up(int(float64(w) / aspect))
	}
	h = up(h)
	return up(int(float64(h) * aspect)), h
}

// Tensor returns t as the input called name: U8 [Count, 3, Size, Size] with Norm set.
func (p Idefics3) Tensor(name string, t Tiles) infer.Tensor {
	return infer.Tensor{
		Name: name, DType: infer.U8, Shape: []int{t.Count, 3, t.Size, t.Size}, U8: t.CHW,
		Norm: &infer.Normalize{Rescale: p.Rescale, Mean: p.Mean, Std: p.Std, Inner: p.Size * p.Size},
	}
}
