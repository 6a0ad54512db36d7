package media

import (
	"image"
	"image/color"

	"github.com/rewardloop/rewardloop/rewards"
)

// ToRGB copies a picture to RGB without gaps, as PIL's convert("RGB") does: alpha is dropped, not
// blended; gray is repeated; a palette is looked up; of 16 bits the high byte is kept. (PIL clips
// 16-bit gray at 255, which makes the picture white; ToRGB keeps the high byte of 16-bit gray too.)
// The colours of a YCbCr picture are those of JPEG files. The picture must not be empty.
func ToRGB(img image.Image) *rewards.Pixels {
	b := img.Bounds()
	p := &rewards.Pixels{Width: b.Dx(), Height: b.Dy(), Count: 1, RGB: make([]byte, b.Dx()*b.Dy()*3)}
	writeRGB(p.RGB, img)
	return p
}

// writeRGB is ToRGB into a buffer of the right size.
func writeRGB(dst []byte, img image.Image) {
	switch m := img.(type) {
	case *image.NRGBA:
		gather(dst, m.Rect, m.Pix, m.Stride, 4, [3]int{0, 1, 2})
	case *image.RGBA:
		if m.Opaque() {
			gather(dst, m.Rect, m.Pix, m.Stride, 4, [3]int{0, 1, 2})
			return
		}
		anyRGB(dst, img)
	case *image.NRGBA64:
		gather(dst, m.Rect, m.Pix, m.Stride, 8, [3]int{0, 2, 4})
	case *image.RGBA64:
		if m.Opaque() {
			gather(dst, m.Rect, m.Pix, m.Stride, 8, [3]int{0, 2, 4})
			return
		}
		anyRGB(dst, img)
	case *image.Gray:
		gather(dst, m.Rect, m.Pix, m.Stride, 1, [3]int{0, 0, 0})
	case *image.Gray16:
		gather(dst, m.Rect, m.Pix, m.Stride, 2, [3]int{0, 0, 0})
	case *image.Paletted:
		lookUp(dst, m)
	case *image.YCbCr:
		jpegRGB(dst, m)
	case *image.NYCbCrA:
		jpegRGB(dst, &m.YCbCr)
	default:
		anyRGB(dst, img)
	}
}

// gather picks three bytes of every pixel. Pix begins at the rectangle's corner.
func gather(dst []byte, r image.Rectangle, pix []byte, stride, step int, channel [3]int) {
	for y := range r.Dy() {
		row := pix[y*stride:]
		out := dst[y*r.Dx()*3 : (y+1)*r.Dx()*3]
		for len(out) > 0 {
			out[0], out[1], out[2] = row[channel[0]], row[channel[1]], row[channel[2]]
			out, row = out[3:], row[min(step, len(row)):]
		}
	}
}

func lookUp(dst []byte, m *image.Paletted) {
	var table [256][3]byte
	for i, c := range m.Palette {
		if i < len(table) {
			table[i] = opaque(c)
		}
	}
	w := m.Rect.Dx()
	for y := range m.Rect.Dy() {
		for x, index := range m.Pix[y*m.Stride : y*m.Stride+w] {
			copy(dst[(y*w+x)*3:], table[index][:])
		}
	}
}

// anyRGB goes through the colour model, for pictures that are rare here (CMYK).
func anyRGB(dst []byte, img image.Image) {
	b := img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			c := opaque(img.At(x, y))
			copy(dst, c[:])
			dst = dst[3:]
		}
	}
}

// opaque is a colour without its alpha.
func opaque(c color.Color) [3]byte {
	switch c := c.(type) {
	case color.CMYK:
		r, g, b := color.CMYKToRGB(c.C, c.M, c.Y, c.K)
		return [3]byte{r, g, b}
	default:
		n, _ := color.NRGBAModel.Convert(c).(color.NRGBA)
		return [3]byte{n.R, n.G, n.B}
	}
}
