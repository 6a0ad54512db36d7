package imageproc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// The steps' operations.
const (
	// opResize makes the picture Width×Height, whatever its shape.
	opResize = "resize"
	// opResizeShortest makes the shorter side Size and the longer one
	// int(Size·long/short), as CLIP's processors do.
	opResizeShortest = "resize_shortest"
	// opResizeLongest makes the longer side Size and rounds the other one half to even,
	// as open_clip's ResizeMaxSize does, which HPSv2 uses.
	opResizeLongest = "resize_longest"
	// opCenterCrop takes the middle Width×Height, from (side − size)//2 on. A smaller
	// picture is put in the middle of black, one pixel more in front where the rest is odd,
	// as Hugging Face's center_crop does.
	opCenterCrop = "center_crop"
	// opPad puts the picture into Width×Height of grey Value: in the middle, one pixel more
	// behind where the rest is odd, or in the upper left corner. A picture that is larger
	// is refused.
	opPad = "pad"
)

// Where OpPad puts the picture.
const (
	center  = "center"
	topLeft = "top_left"
)

// maxSteps is the most steps of a recipe.
const maxSteps = 16

// Step is one operation on a picture. Fields that the operation does not use must be zero.
type Step struct {
	Op string `json:"op"`
	// Size is the side for resize_shortest and resize_longest, 1 to 8192.
	Size int `json:"size,omitempty"`
	// Width and Height are the size after resize, center_crop and pad, 1 to 8192.
	Width  int `json:"width,omitempty"`
	Height int `json:"height,omitempty"`
	// Filter is the filter of the three resizes.
	Filter Filter `json:"filter,omitempty"`
	// Value is the grey value of pad, 0 to 255.
	Value int `json:"value,omitempty"`
	// Position is the position of the picture for pad: "center", the default, or "top_left".
	Position string `json:"position,omitempty"`
}

// Recipe describes how a picture is converted to a model's input: steps on its bytes, and then
// (v·Rescale − Mean) / Std for each channel, computed by the process that runs the model.
type Recipe struct {
	Steps []Step `json:"steps"`
	// Rescale is usually 1/255.
	Rescale float64 `json:"rescale"`
	// Mean and Std have three entries: red, green, blue.
	Mean []float32 `json:"mean"`
	Std  []float32 `json:"std"`
}

// UnmarshalJSON reads a recipe strictly: unknown keys and invalid fields are errors.
func (r *Recipe) UnmarshalJSON(data []byte) error {
	type plain Recipe
	var p plain
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return fmt.Errorf("image recipe: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("image recipe: data after the JSON object")
	}
	if err := Recipe(p).validate(); err != nil {
		return err
	}
	*r = Recipe(p)
	return nil
}

// validate names all faults of the recipe.
func (r Recipe) validate() error {
	var errs rewards.Faults
	errs.Add(len(r.Steps) > maxSteps, "%d steps, want at most %d", len(r.Steps), maxSteps)
	for i, s := range r.Steps {
		if err := s.validate(); err != nil {
			errs = append(errs, fmt.Errorf("steps[%d] (%s): %w", i, s.Op, err))
		}
	}
	errs = append(errs, checkNorm(r.Rescale, r.Mean, r.Std))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("image recipe: %w", err)
	}
	return nil
}

// checkNorm names all faults of a normalisation.
func checkNorm(rescale float64, mean, std []float32) error {
	var err error
	if rescale == 0 || !finite(rescale) {
		err = fmt.Errorf("rescale is %v, want a finite number other than 0, such as 1/255", rescale)
	}
	return errors.Join(err, checkMeans(mean, std))
}

func checkMeans(mean, std []float32) error {
	if len(mean) != 3 || len(std) != 3 {
		return fmt.Errorf("%d means and %d deviations, want 3 of each: red, green, blue", len(mean), len(std))
	}
	for c := range 3 {
		if !finite(float64(mean[c])) || !finite(float64(std[c])) || std[c] == 0 {
			return fmt.Errorf("mean %v and std %v, want finite numbers and no deviation of 0", mean, std)
		}
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// validate names all faults of a step.
func (s Step) validate() error {
	var size, box, filter, pad bool
	switch s.Op {
	case opResize:
		box, filter = true, true
	case opResizeShortest, opResizeLongest:
		size, filter = true, true
	case opCenterCrop:
		box = true
	case opPad:
		box, pad = true, true
	default:
		return fmt.Errorf("unknown op, want one of %s, %s, %s, %s, %s", opResize, opResizeShortest, opResizeLongest, opCenterCrop, opPad)
	}
	errs := []error{
		side("size", s.Size, size), side("width", s.Width, box), side("height", s.Height, box),
	}
	if filter {
		errs = append(errs, s.Filter.check())
	} else if s.Filter != "" {
		errs = append(errs, fmt.Errorf("filter %q is not for this op", s.Filter))
	}
	switch {
	case !pad && (s.Value != 0 || s.Position != ""):
		errs = append(errs, fmt.Errorf("value and position are for %s only", opPad))
	case s.Value < 0 || s.Value > 255:
		errs = append(errs, fmt.Errorf("value is %d, want 0 to 255", s.Value))
	case s.Position != "" && s.Position != center && s.Position != topLeft:
		errs = append(errs, fmt.Errorf("position %q, want %s or %s", s.Position, center, topLeft))
	}
	return errors.Join(errs...)
}

// side checks a length in pixels that the step takes, or that it does not.
func side(name string, n int, taken bool) error {
	switch {
	case !taken && n != 0:
		return fmt.Errorf("%s is not for this op", name)
	case taken && (n < 1 || n > maxSide):
		return fmt.Errorf("%s is %d, want 1 to %d", name, n, maxSide)
	}
	return nil
}

// Tensor returns p as the input called name: U8 [3, Height, Width] with Norm set.
func (r Recipe) Tensor(name string, p *Picture) infer.Tensor {
	return infer.Tensor{
		Name: name, DType: infer.U8, Shape: []int{3, p.Height, p.Width},
		U8: p.chw(), Norm: &infer.Normalize{Rescale: r.Rescale, Mean: r.Mean, Std: r.Std, Inner: p.Width * p.Height},
	}
}
