package imageproc

const (
	MaxSide   = maxSide
	MaxSource = maxSource
)

// Resize is resize.
func Resize(src *Picture, w, h int, f Filter) *Picture { return resize(src, w, h, f) }

// SmartResize is smartResize.
func SmartResize(h, w, factor, minPixels, maxPixels int) (height, width int, err error) {
	return smartResize(h, w, factor, minPixels, maxPixels)
}

// CHW is chw.
func (p *Picture) CHW() []byte { return p.chw() }

// Validate is validate.
func (r Recipe) Validate() error { return r.validate() }

// LongestSize is the size to which Idefics3 brings a w×h picture first.
func LongestSize(p Idefics3, w, h int) (int, int) { return p.longest(w, h) }

// TargetSize is the size to which a step resizes a w×h picture.
func TargetSize(s Step, w, h int) (int, int, error) { return s.target(w, h) }

// For the tests of the package alone.
const (
	Center           = center
	OpCenterCrop     = opCenterCrop
	OpPad            = opPad
	OpResize         = opResize
	OpResizeLongest  = opResizeLongest
	OpResizeShortest = opResizeShortest
	TopLeft          = topLeft
)
