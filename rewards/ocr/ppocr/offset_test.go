package ppocr

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoldenOffsetsAreClippers(t *testing.T) {
	t.Parallel()
	for _, c := range golden[[]goldenRectangle](t, "geometry/rectangles.json") {
		d := unclipDistance(c.Box.corners(), 1.6)
		assert.InDelta(t, c.Distance, d, 1e-9)
		outline := appendOffset(nil, c.Box.corners(), d)
		readingOrder(outline)
		hull := appendHull(nil, outline)
		assert.Equal(t, inReadingOrder(cells(c.Outline)), inReadingOrder(hull))
		startOffset(hull)
		box, side := new(calipers).miniBox(hull)
		assert.LessOrEqual(t, c.Grown.apart(box), .001)
		assert.InDelta(t, c.GrownSide, side, .001)
	}
}

func TestCornersAreCutToWholePixelsBeforeTheyGrow(t *testing.T) {
	t.Parallel()
	outline := appendOffset(nil, [4]corner{{10.9, 10.9}, {50.9, 10.9}, {50.9, 30.9}, {10.9, 30.9}}, 5)
	readingOrder(outline)
	hull := appendHull(nil, outline)
	at := extremes(hull)
	assert.Equal(t, [4]int32{5, 55, 35, 5}, [4]int32{hull[at[0]].y, hull[at[1]].x, hull[at[2]].y, hull[at[3]].x})
}

func TestNothingGrowsByNonsense(t *testing.T) {
	t.Parallel()
	box := [4]corner{{0, 0}, {9, 0}, {9, 9}, {0, 9}}
	for _, d := range []float64{0, -1, math.NaN(), math.Inf(1), 1e9} {
		assert.Empty(t, appendOffset(nil, box, d))
	}
	assert.Empty(t, appendOffset(nil, [4]corner{{0, 0}, {.9, 0}, {.9, .9}, {0, .9}}, 5), "one point is left")
	assert.Empty(t, appendOffset(nil, [4]corner{{0, 0}, {9, 0}, {9, .5}, {0, .5}}, 5), "two points are left")
}

func FuzzAppendOffset(f *testing.F) {
	f.Add(float32(1), float32(1), float32(20), float32(2), float32(19), float32(9), float32(0), float32(8), 4.5)
	f.Add(float32(1), float32(1), float32(1), float32(2), float32(1), float32(9), float32(0), float32(8), 1e6)
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g, h, i float32, by float64) {
		for _, v := range []float32{a, b, c, d, e, g, h, i} {
			if !(v > -1e6 && v < 1e6) {
				return
			}
		}
		outline := appendOffset(nil, [4]corner{{a, b}, {c, d}, {e, g}, {h, i}}, by)
		require.LessOrEqual(t, len(outline), 4*(maxArc+1))
		readingOrder(outline)
		box, _ := new(calipers).miniBox(appendHull(nil, outline))
		for _, p := range box {
			require.False(t, math.IsNaN(float64(p.x)) || math.IsNaN(float64(p.y)))
		}
	})
}
