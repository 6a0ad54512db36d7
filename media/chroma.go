package media

import "image"

// This file turns YCbCr into RGB as the C libraries behind PIL do. Package
// image repeats the chroma of a subsampled picture over 2×2 pixels; libjpeg and
// libwebp interpolate it, which moves edges of coloured text by up to tens of
// levels. Sources of the formulas: jdsample.c and jdcolor.c of libjpeg-turbo,
// dsp/upsampling.c and dsp/yuv.h of libwebp.

// jpegRGB converts a full-range picture, the colours of JPEG files.
func jpegRGB(dst []byte, m *image.YCbCr) {
	w := m.Rect.Dx()
	up := jpegChroma(m)
	cb, cr := make([]byte, w+1), make([]byte, w+1)
	for y := range m.Rect.Dy() {
		up(cb, m.Cb, y)
		up(cr, m.Cr, y)
		luma := m.Y[y*m.YStride : y*m.YStride+w]
		out := dst[y*w*3 : (y+1)*w*3]
		for x, l := range luma {
			out[3*x], out[3*x+1], out[3*x+2] = fullRange(int(l), int(cb[x])-128, int(cr[x])-128)
		}
	}
}

// fullRange is JFIF's conversion in 16-bit fixed point, rounded as libjpeg does.
func fullRange(y, cb, cr int) (r, g, b byte) {
	const half = 1 << 15
	return clip(y + (91881*cr+half)>>16),
		clip(y + (-22554*cb-46802*cr+half)>>16),
		clip(y + (116130*cb+half)>>16)
}

func clip(v int) byte { return byte(max(0, min(v, 255))) }

// upsample writes row y of a chroma plane at full width into out, which has one
// byte more than the picture is wide.
type upsample func(out, plane []byte, y int)

// jpegChroma is libjpeg's "fancy" upsampling for the two common subsamplings:
// three parts of the nearer sample, one of the farther. Others are repeated.
func jpegChroma(m *image.YCbCr) upsample {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	cw, ch := (w+1)/2, (h+1)/2
	ratio := m.SubsampleRatio
	if cw <= 2 || m.Rect.Min.X%2 != 0 || m.Rect.Min.Y%2 != 0 {
		ratio = -1 // libjpeg repeats the samples of a narrow picture; the rest are cut-outs
	}
	line := make([]int, cw)
	switch ratio {
	case image.YCbCrSubsampleRatio422:
		return func(out, plane []byte, y int) {
			row := plane[y*m.CStride : y*m.CStride+cw]
			for i, v := range row {
				line[i] = int(v)
			}
			widen(out, line, 1, 2, 2)
		}
	case image.YCbCrSubsampleRatio420:
		return func(out, plane []byte, y int) {
			near := y / 2
			far := max(0, min(near-1+y%2*2, ch-1))
			a, b := plane[near*m.CStride:], plane[far*m.CStride:]
			for i := range line {
				line[i] = 3*int(a[i]) + int(b[i])
			}
			widen(out, line, 8, 7, 4)
		}
	}
	return func(out, plane []byte, y int) {
		for x := range w {
			out[x] = plane[m.COffset(m.Rect.Min.X+x, m.Rect.Min.Y+y)]
		}
	}
}

// widen doubles a row: each sample becomes two, mixed 3:1 with its neighbour on
// that side. The biases of the left and right one differ, so that rounding has
// no direction; shift divides by what the samples are scaled by, times four.
func widen(out []byte, line []int, left, right, shift int) {
	last := len(line) - 1
	for i, v := range line {
		before, after := line[max(i-1, 0)], line[min(i+1, last)]
		l, r := (3*v+before+left)>>shift, (3*v+after+right)>>shift
		out[2*i] = byte(l)
		if 2*i+1 < len(out) {
			out[2*i+1] = byte(r)
		}
	}
}

// studioRGB converts a lossy WebP picture: 4:2:0 in the range 16…235 of video.
// It says false for any other picture.
func studioRGB(dst []byte, img image.Image) bool {
	var m *image.YCbCr
	switch v := img.(type) {
	case *image.YCbCr:
		m = v
	case *image.NYCbCrA:
		m = &v.YCbCr
	default:
		return false
	}
	w, h := m.Rect.Dx(), m.Rect.Dy()
	cw, ch := (w+1)/2, (h+1)/2
	cb, cr := make([]byte, w+1), make([]byte, w+1)
	up := func(out, plane []byte, y int) {
		near := y / 2
		far := max(0, min(near-1+y%2*2, ch-1))
		webpRow(out, plane[near*m.CStride:][:cw], plane[far*m.CStride:][:cw])
	}
	for y := range h {
		up(cb, m.Cb, y)
		up(cr, m.Cr, y)
		out := dst[y*w*3 : (y+1)*w*3]
		for x, l := range m.Y[y*m.YStride : y*m.YStride+w] {
			out[3*x], out[3*x+1], out[3*x+2] = studioRange(int(l), int(cb[x]), int(cr[x]))
		}
	}
	return true
}

// webpRow mixes the four nearest chroma samples 9:3:3:1, with libwebp's two
// roundings.
func webpRow(out, near, far []byte) {
	last := len(near) - 1
	for i := range near {
		for side, j := range [2]int{max(i-1, 0), min(i+1, last)} {
			x := 2*i + side
			if x >= len(out) {
				continue
			}
			a, b, c, d := int(near[i]), int(near[j]), int(far[i]), int(far[j])
			if j == i { // the edge of the picture: only two samples
				out[x] = byte((3*a + c + 2) >> 2)
				continue
			}
			diagonal := (a + b + c + d + 8 + 2*(b+c)) >> 3
			out[x] = byte((diagonal + a) >> 1)
		}
	}
}

// studioRange is libwebp's VP8YUVToRGB: 14-bit coefficients, 6 bits of fraction.
func studioRange(y, u, v int) (r, g, b byte) {
	luma := y * 19077 >> 8
	return clip((luma + v*26149>>8 - 14234) >> 6),
		clip((luma - u*6419>>8 - v*13320>>8 + 8708) >> 6),
		clip((luma + u*33050>>8 - 17685) >> 6)
}
