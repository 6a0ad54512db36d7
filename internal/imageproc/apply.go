package imageproc

import (
	"fmt"
	"math"

	"github.com/rewardloop/rewardloop/rewards"
)

// Apply runs the steps of a valid recipe on frame i of px. Errors are of class BadInput: there is
// no such frame, a side has more than 65,535 pixels, a step would result in a side of 0 or of more
// than 8192 pixels, or a picture is larger than its padding.
func (r Recipe) Apply(px *rewards.Pixels, i int) (*Picture, error) {
	p, err := frameOf(px, i)
	if err != nil {
		return nil, err
	}
	for n := 0; n < len(r.Steps); n++ {
		s := r.Steps[n]
		switch s.Op {
		case opResize, opResizeShortest, opResizeLongest:
			w, h, err := s.target(p.Width, p.Height)
			if err != nil {
				return nil, fmt.Errorf("%w (steps[%d], %s)", err, n, s.Op)
			}
			win := window{right: w, bottom: h}
			if n+1 < len(r.Steps) && r.Steps[n+1].within(w, h) {
				n++ // only what the crop leaves is resized
				win = r.Steps[n].middle(w, h)
			}
			p = resizePart(p, w, h, win, s.Filter)
		case opCenterCrop:
			p = s.crop(p)
		case opPad:
			if p, err = s.pad(p); err != nil {
				return nil, fmt.Errorf("%w (steps[%d], %s)", err, n, s.Op)
			}
		default:
			return nil, fmt.Errorf("%w: unknown op %q (steps[%d])", rewards.Internal, s.Op, n)
		}
	}
	return p, nil
}

// target is the size to which a resize brings a w×h picture.
func (s Step) target(w, h int) (int, int, error) {
	tw, th := s.Width, s.Height
	short, long := min(w, h), max(w, h)
	switch s.Op {
	case opResizeShortest:
		if long = int(float64(s.Size*long) / float64(short)); w <= h {
			tw, th = s.Size, long
		} else {
			tw, th = long, s.Size
		}
	case opResizeLongest:
		scale := float64(s.Size) / float64(long)
		tw = int(math.RoundToEven(float64(w) * scale))
		th = int(math.RoundToEven(float64(h) * scale))
	}
	return tw, th, bounded(w, h, tw, th)
}

// bounded refuses sizes that no picture may have.
func bounded(w, h, tw, th int) error {
	if tw < 1 || th < 1 || tw > maxSide || th > maxSide {
		return fmt.Errorf("%w: a picture of %d×%d pixels would become %d×%d, want sides of 1 to %d: send one that is less narrow",
			rewards.BadInput, w, h, tw, th, maxSide)
	}
	return nil
}

// within says that the step is a crop to a part of a w×h picture.
func (s Step) within(w, h int) bool {
	return s.Op == opCenterCrop && s.Width <= w && s.Height <= h
}

// middle is the part of a w×h picture that the crop leaves.
func (s Step) middle(w, h int) window {
	left, top := (w-s.Width)/2, (h-s.Height)/2
	return window{left: left, top: top, right: left + s.Width, bottom: top + s.Height}
}

func (s Step) crop(p *Picture) *Picture {
	switch {
	case s.Width == p.Width && s.Height == p.Height:
		return p
	case s.within(p.Width, p.Height):
		return p.crop(s.middle(p.Width, p.Height))
	}
	// Hugging Face pads the smaller side first, ceil(rest/2) in front, and crops then.
	return p.place(s.Width, s.Height, offset(p.Width, s.Width), offset(p.Height, s.Height), 0)
}

// offset is where a side of n pixels begins within want pixels; negative if it is longer.
func offset(n, want int) int {
	if n > want {
		return -((n - want) / 2)
	}
	return (want - n + 1) / 2
}

func (s Step) pad(p *Picture) (*Picture, error) {
	if p.Width > s.Width || p.Height > s.Height {
		return nil, fmt.Errorf("%w: a picture of %d×%d pixels cannot be padded to %d×%d: resize the picture first",
			rewards.BadInput, p.Width, p.Height, s.Width, s.Height)
	}
	if p.Width == s.Width && p.Height == s.Height {
		return p, nil
	}
	left, top := (s.Width-p.Width)/2, (s.Height-p.Height)/2
	if s.Position == topLeft {
		left, top = 0, 0
	}
	return p.place(s.Width, s.Height, left, top, byte(s.Value)), nil
}
