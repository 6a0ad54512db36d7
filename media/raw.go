package media

import (
	"context"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// rawShape is a raw tensor in words.
type rawShape struct {
	frames, channels, height, width int
	// strides, in bytes, of the four axes.
	frame, channel, row, column int
}

// raw turns an uncompressed U8 tensor of 1, 3 or 4 channels into RGB. Channels
// last and three of them is what pixels are already: no copy.
func (d *Decoder) raw(ctx context.Context, m *rewards.Media) (*rewards.Pixels, error) {
	s, err := d.rawShape(m)
	if err != nil {
		return nil, err
	}
	p := &rewards.Pixels{Width: s.width, Height: s.height, Count: s.frames}
	if s.channels == 3 && s.channel == 1 {
		p.RGB = m.Data
		return p, nil
	}
	size := int64(s.frames) * int64(s.height) * int64(s.width) * 3
	err = d.within(ctx, p, size, 0, func(*booking) error {
		n := s.height * s.width * 3
		for t := range s.frames {
			if err := ctx.Err(); err != nil {
				return err // the caller's own context error
			}
			s.gather(p.RGB[t*n:(t+1)*n], m.Data[t*s.frame:])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// gather writes one frame as RGB. The destination is written front to back; a
// planar source is read as three streams.
func (s rawShape) gather(dst, src []byte) {
	green, blue := s.channel, 2*s.channel
	if s.channels == 1 {
		green, blue = 0, 0
	}
	for y := range s.height {
		row := src[y*s.row:]
		out := dst[y*s.width*3 : (y+1)*s.width*3]
		if s.column == 1 {
			r, g, b := row[:s.width], row[green:green+s.width], row[blue:blue+s.width]
			interleave(out, r, g, b)
			continue
		}
		for x := range s.width {
			in := row[x*s.column:]
			out[3*x], out[3*x+1], out[3*x+2] = in[0], in[green], in[blue]
		}
	}
}

// interleave writes r, g and b, all of one length, as RGB.
func interleave(out, r, g, b []byte) {
	g, b = g[:len(r)], b[:len(r)] // one check here, none in the loop
	for x, v := range r {
		px := out[3*x : 3*x+3 : 3*x+3]
		px[0], px[1], px[2] = v, g[x], b[x]
	}
}

// rawShape holds the shape against the layout, the limits and the data.
func (d *Decoder) rawShape(m *rewards.Media) (rawShape, error) {
	if m.DType != "U8" {
		return rawShape{}, bad("raw pixels of type %q: want U8", m.DType)
	}
	switch m.Layout {
	case rewards.HWC, rewards.CHW, rewards.THWC, rewards.TCHW, rewards.CTHW:
	default:
		return rawShape{}, bad("layout %q: want HWC, CHW, THWC, TCHW or CTHW", m.Layout)
	}
	if len(m.Shape) != len(m.Layout) {
		return rawShape{}, bad("shape %v does not fit the layout %s", m.Shape, m.Layout)
	}
	stride := len(m.Layout) - 1
	axis := func(name string) int {
		if i := strings.Index(string(m.Layout), name); i >= 0 {
			return m.Shape[i]
		}
		return 1
	}
	s := rawShape{frames: axis("T"), channels: axis("C"), height: axis("H"), width: axis("W")}
	switch {
	case s.channels != 1 && s.channels != 3 && s.channels != 4:
		return rawShape{}, bad("%d channels (layout %s, shape %v): want 1, 3 or 4", s.channels, m.Layout, m.Shape)
	case s.frames < 1 || s.frames > d.cfg.MaxFrames:
		return rawShape{}, bad("%d frames: want 1…%d", s.frames, d.cfg.MaxFrames)
	case m.Kind == rewards.Image && s.frames != 1:
		return rawShape{}, bad("an image with %d frames: send it as a video", s.frames)
	}
	if err := d.checkSize(s.width, s.height); err != nil {
		return rawShape{}, err
	}
	// No overflow: at most 2^20 frames of 2^30 pixels of 4 channels.
	if want := int64(s.frames) * int64(s.height) * int64(s.width) * int64(s.channels); want != int64(len(m.Data)) {
		return rawShape{}, bad("shape %v needs %d bytes, got %d", m.Shape, want, len(m.Data))
	}
	for n := 1; stride >= 0; stride-- {
		switch m.Layout[stride] {
		case 'T':
			s.frame = n
		case 'C':
			s.channel = n
		case 'H':
			s.row = n
		case 'W':
			s.column = n
		}
		n *= m.Shape[stride]
	}
	return s, nil
}
