package media

import (
	"github.com/disintegration/imaging"

	"github.com/rewardloop/rewardloop/rewards"
)

// Filter is a method to resize a picture, with PIL's name. When shrinking, all filters except Nearest widen
// with the factor (antialiasing), as in PIL.
type Filter string

// The filters.
const (
	Nearest  Filter = "nearest"
	Box      Filter = "box"
	Bilinear Filter = "bilinear"
	Bicubic  Filter = "bicubic" // a = −0.5
	Lanczos  Filter = "lanczos" // three lobes
)

func filters() map[Filter]imaging.ResampleFilter {
	return map[Filter]imaging.ResampleFilter{
		Nearest:  imaging.NearestNeighbor,
		Box:      imaging.Box,
		Bilinear: imaging.Linear,
		Bicubic:  imaging.CatmullRom,
		Lanczos:  imaging.Lanczos,
	}
}

// Resize returns every frame of p at width × height, which must be positive. If p already has this size, Resize
// returns p itself. An unknown filter is treated as Bicubic.
func Resize(p *rewards.Pixels, width, height int, f Filter) *rewards.Pixels {
	if p.Width == width && p.Height == height {
		return p
	}
	kernel, ok := filters()[f]
	if !ok {
		kernel = imaging.CatmullRom
	}
	n := width * height * 3
	out := &rewards.Pixels{Width: width, Height: height, Count: p.Count, RGB: make([]byte, n*p.Count)}
	for i := range p.Count {
		writeRGB(out.RGB[i*n:(i+1)*n], imaging.Resize(p.Image(i), width, height, kernel))
	}
	return out
}

// Fit returns a size in pixels with the same proportions, whose longer side is at most the given number of
// pixels. A smaller picture keeps its size. No side is shorter than 1.
func Fit(width, height, most int) (w, h int) {
	longer := max(width, height)
	if longer <= most {
		return width, height
	}
	return max(1, width*most/longer), max(1, height*most/longer)
}
