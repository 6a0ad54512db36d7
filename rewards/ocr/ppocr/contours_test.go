package ppocr

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type goldenContour struct {
	Hull [][2]int32
	Box  goldenBox
	Side float64
	Slow float64
}

type goldenMask struct {
	W, H          int
	Mask, Dilated string
	Contours      []goldenContour
}

// unpack makes probabilities of bits, rows filled up to whole bytes, first bit highest.
func unpack(t *testing.T, text string, w, h int) []float32 {
	t.Helper()
	raw, err := hex.DecodeString(text)
	require.NoError(t, err)
	prob := make([]float32, w*h)
	for y := range h {
		for x := range w {
			prob[y*w+x] = float32(raw[y*((w+7)/8)+x/8] >> (7 - x%8) & 1)
		}
	}
	return prob
}

func found(t *testing.T, prob []float32, w, h int) *detection {
	t.Helper()
	d := new(detection)
	d.mask.threshold(prob, w, h, .5, false)
	d.components.find(&d.mask)
	d.contours.pick(&d.components, len(prob)+1)
	return d
}

func TestGoldenDilationGrowsRightAndDown(t *testing.T) {
	t.Parallel()
	for _, c := range golden[[]goldenMask](t, "geometry/masks.json") {
		var got, want bitmask
		got.threshold(unpack(t, c.Mask, c.W, c.H), c.W, c.H, .5, true)
		want.threshold(unpack(t, c.Dilated, c.W, c.H), c.W, c.H, .5, false)
		assert.Equal(t, want, got)
	}
}

func TestGoldenContoursHaveTheSameHullsBoxesAndInsides(t *testing.T) {
	t.Parallel()
	contours, boxes := 0, 0
	for _, c := range golden[[]goldenMask](t, "geometry/masks.json") {
		d := found(t, unpack(t, c.Mask, c.W, c.H), c.W, c.H)
		weight := make([]float32, c.W*c.H)
		for i := range weight {
			weight[i] = float32(i%251) / 256
		}
		require.Len(t, d.contours.list, len(c.Contours))
		left := c.Contours
		for i := range d.contours.list {
			hull := d.contours.hull(nil, i, &d.mask)
			box, side := d.calipers.miniBox(hull)
			slow := d.filler.contourMean(weight, c.W, hull, d.contours.of(i), d.contours.list[i].hole, &d.mask)
			// A hole may have its region's hull, and so tell itself from it by its inside only.
			at := slices.IndexFunc(left, func(g goldenContour) bool {
				d := slow - g.Slow
				return slices.Equal(inReadingOrder(hull), inReadingOrder(cells(g.Hull))) && d < 1e-6 && d > -1e-6
			})
			require.GreaterOrEqual(t, at, 0, "hull %v", hull)
			if contours++; len(hull) < 3 {
				boxes++
				assert.Zero(t, side)
			} else {
				assert.InDelta(t, left[at].Side, side, .001)
				if left[at].Box.apart(box) <= .001 {
					boxes++
				}
			}
			left = slices.Delete(slices.Clone(left), at, at+1)
		}
	}
	t.Logf("%d of %d boxes are the same", boxes, contours)
	assert.Equal(t, contours, boxes)
}

func TestRegionsTouchAtCornersAndHolesDoNot(t *testing.T) {
	t.Parallel()
	d := found(t, []float32{
		1, 0, 0, 0, 0,
		0, 1, 1, 1, 0,
		0, 1, 0, 1, 0,
		0, 1, 1, 0, 1,
		0, 1, 0, 1, 0,
		0, 1, 1, 1, 0,
	}, 5, 6)
	holes := 0
	for _, c := range d.contours.list {
		if c.hole {
			holes++
		}
	}
	assert.Equal(t, 3, holes)
	assert.Len(t, d.contours.list, 4)
}

func TestPickTakesTheLowestContours(t *testing.T) {
	t.Parallel()
	d := found(t, []float32{1, 0, 1, 0, 0, 0, 1, 0, 1}, 3, 3)
	require.Len(t, d.contours.list, 4)
	d.contours.pick(&d.components, 2)
	require.Len(t, d.contours.list, 2)
	assert.Equal(t, []span{{2, 2, 2}}, d.contours.of(0))
	assert.Equal(t, []span{{0, 0, 2}}, d.contours.of(1))
}

// slowly finds regions or holes by flooding, pixel by pixel: for each its pixels.
func slowly(prob []float32, w, h int, value float32, corners bool) [][]int {
	seen := make([]bool, len(prob))
	var out [][]int
	for start := range prob {
		if seen[start] || prob[start] != value {
			continue
		}
		seen[start] = true
		queue := []int{start}
		for i := 0; i < len(queue); i++ {
			x, y := queue[i]%w, queue[i]/w
			for dy := -1; dy <= 1; dy++ {
				for dx := -1; dx <= 1; dx++ {
					if dx*dy != 0 && !corners || x+dx < 0 || x+dx >= w || y+dy < 0 || y+dy >= h {
						continue
					}
					next := (y+dy)*w + x + dx
					if !seen[next] && prob[next] == value {
						seen[next] = true
						queue = append(queue, next)
					}
				}
			}
		}
		slices.Sort(queue)
		out = append(out, queue)
	}
	return out
}

func FuzzComponents(f *testing.F) {
	f.Add([]byte{0xff, 0x81, 0xbd, 0xa5, 0xbd, 0x81, 0xff}, uint8(8))
	f.Add([]byte{0xaa, 0x55, 0xaa}, uint8(5))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32}, uint8(130))
	f.Fuzz(func(t *testing.T, raw []byte, width uint8) {
		if len(raw) > 300 {
			raw = raw[:300]
		}
		w := int(width)
		if w == 0 || len(raw)*8 < w {
			return
		}
		h := len(raw) * 8 / w
		prob := make([]float32, w*h)
		for i := range prob {
			prob[i] = float32(raw[i/8] >> (i % 8) & 1)
		}
		d := found(t, prob, w, h)
		want := slowly(prob, w, h, 1, true)
		for _, hole := range slowly(prob, w, h, 0, false) {
			if !slices.ContainsFunc(hole, func(p int) bool {
				return p%w == 0 || p%w == w-1 || p/w == 0 || p/w == h-1
			}) {
				want = append(want, hole)
			}
		}
		var got [][]int
		for i := range d.contours.list {
			var pixels []int
			for _, s := range d.contours.of(i) {
				for x := s.x0; x <= s.x1; x++ {
					pixels = append(pixels, int(s.y)*w+int(x))
				}
			}
			got = append(got, pixels)
			hull := d.contours.hull(nil, i, &d.mask)
			for j := range hull {
				if len(hull) > 2 {
					require.Positive(t, turn(hull[j], hull[(j+1)%len(hull)], hull[(j+2)%len(hull)]))
				}
			}
		}
		require.ElementsMatch(t, want, got)
	})
}
