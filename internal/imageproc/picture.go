package imageproc

import (
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

const (
	// maxSide is the most pixels a picture may have along one side after a step.
	maxSide = 8192
	// maxSource is the most that it may have before the first, the most that a JPEG can
	// have. Resampling needs memory that grows with a side and not with the area: a line of
	// 2²⁴ pixels would take 16 times what it has itself.
	maxSource = 1<<16 - 1
)

// Picture is one RGB picture with 8 bits per channel. It may share its bytes with the pixels from
// which it was made; these bytes are never modified.
type Picture struct {
	Width, Height int
	// RGB has Height·Width·3 bytes, row by row, with the channels of a pixel together (HWC).
	RGB []byte
}

// frameOf is frame i of px as a picture that aliases it. The error is of class BadInput.
func frameOf(px *rewards.Pixels, i int) (*Picture, error) {
	switch {
	case px == nil:
		return nil, fmt.Errorf("%w: no picture", rewards.BadInput)
	case px.Width < 1 || px.Height < 1 || px.Count < 1 || len(px.RGB)/px.Count/px.Height/px.Width < 3:
		return nil, fmt.Errorf("%w: %d frames of %d×%d pixels in %d bytes", rewards.BadInput, px.Count, px.Width, px.Height, len(px.RGB))
	case max(px.Width, px.Height) > maxSource:
		return nil, fmt.Errorf("%w: a picture of %d×%d pixels, want sides of 1 to %d: cut the picture into parts", rewards.BadInput, px.Width, px.Height, maxSource)
	case i < 0 || i >= px.Count:
		return nil, fmt.Errorf("%w: no frame %d of %d", rewards.BadInput, i, px.Count)
	}
	return &Picture{Width: px.Width, Height: px.Height, RGB: px.Frame(i)}, nil
}

// chw returns the picture's bytes channel by channel: [3, Height, Width].
func (p *Picture) chw() []byte {
	out := make([]byte, 3*p.Width*p.Height)
	planes(out, p.RGB)
	return out
}

// planes writes interleaved pixels as three planes, one behind the other.
func planes(dst, rgb []byte) {
	n := len(rgb) / 3
	r, g, b := dst[:n], dst[n:2*n], dst[2*n:3*n]
	for i := range r {
		r[i], g[i], b[i] = rgb[3*i], rgb[3*i+1], rgb[3*i+2]
	}
}

// window is a part of a picture: columns left to right−1, rows top to bottom−1.
type window struct{ left, top, right, bottom int }

func (w window) width() int  { return w.right - w.left }
func (w window) height() int { return w.bottom - w.top }

// crop returns a copy of a part that lies within p.
func (p *Picture) crop(w window) *Picture {
	out := &Picture{Width: w.width(), Height: w.height(), RGB: make([]byte, w.width()*w.height()*3)}
	n := out.Width * 3
	for y := range out.Height {
		copy(out.RGB[y*n:(y+1)*n], p.RGB[((w.top+y)*p.Width+w.left)*3:])
	}
	return out
}

// place returns a width×height picture of the grey value with p in it, p's upper left
// corner at (left, top), which may be negative. What does not fit is left out.
func (p *Picture) place(width, height, left, top int, value byte) *Picture {
	out := &Picture{Width: width, Height: height, RGB: make([]byte, width*height*3)}
	if value != 0 {
		for i := range out.RGB {
			out.RGB[i] = value
		}
	}
	x0, x1 := max(left, 0), min(left+p.Width, width)
	for y := max(top, 0); y < min(top+p.Height, height) && x0 < x1; y++ {
		copy(out.RGB[(y*width+x0)*3:(y*width+x1)*3], p.RGB[((y-top)*p.Width+x0-left)*3:])
	}
	return out
}
