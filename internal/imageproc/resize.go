package imageproc

import "fmt"

// resize returns src at w×h pixels, each 1 to maxSide (it panics otherwise, and for an
// unknown filter), as PIL's Image.resize makes it. If src has that size, src itself is
// returned.
//
// All filters go through our own resampling, not through package imaging, which package
// media uses: imaging needs 1.8 to 4.3 times its processor time and 9 to 24 times its
// memory. From BenchmarkResize, milliseconds of a 2.5 GHz core for noise to 224×224, on a
// shared machine where runs differ by a third:
//
//	              ours   imaging   Pillow 12.3
//	512² bicubic   5.0     14.8         5.8
//	512² lanczos   6.6     21.5         8.5
//	1024² bicubic 13.0     48.0        16.3
//	1024² lanczos 18.9     42.8        22.2
//
// With both cores kept busy by others the ratio is much the same (14.9 to 51.2 ms for 1024²
// bicubic). Besides, imaging's Linear is up to 2 levels off PIL's bilinear, and its Box up
// to 50 off PIL's.
func resize(src *Picture, w, h int, f Filter) *Picture {
	return resizePart(src, w, h, window{right: w, bottom: h}, f)
}

// resizePart returns the part win of what resize returns, and makes no more than it.
func resizePart(src *Picture, w, h int, win window, f Filter) *Picture {
	if w < 1 || h < 1 || w > maxSide || h > maxSide {
		panic(fmt.Sprintf("imageproc: resize to %d×%d, want sides of 1 to %d", w, h, maxSide))
	}
	if err := f.check(); err != nil {
		panic("imageproc: " + err.Error())
	}
	whole := win == window{right: w, bottom: h}
	switch {
	case src.Width == w && src.Height == h && whole:
		return src
	case src.Width == w && src.Height == h:
		return src.crop(win)
	case f == Nearest:
		return nearest(src, w, h, win)
	}
	return resample(src, w, h, win, f)
}
