package ppocr

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoldenCropsAreOpenCVsWarps(t *testing.T) {
	t.Parallel()
	different, total := 0, 0
	for _, c := range golden[[]struct {
		Src, Dst string
		Quad     goldenBox
	}](t, "geometry/warp.json") {
		var q quad
		for i, p := range c.Quad {
			q[i] = point{p[0], p[1]}
		}
		n, of, most := compareLevels(t, goldenBitmap(t, c.Dst), cropQuad(goldenBitmap(t, c.Src), q))
		assert.LessOrEqual(t, most, 1, c.Dst)
		different, total = different+n, total+of
	}
	t.Logf("%d of %d values differ, by 1", different, total)
	assert.LessOrEqual(t, float64(different)/float64(total), .002)
}

func rect(x0, y0, x1, y1 float64) quad { return quad{{x0, y0}, {x1, y0}, {x1, y1}, {x0, y1}} }

func TestACropOfAnUprightBoxIsWhatTheWarpWouldGive(t *testing.T) {
	t.Parallel()
	src := noise(40, 30)
	got := cropQuad(src, rect(7, 5, 27, 17))
	want := bitmap{W: 20, H: 12, Pix: make([]byte, 20*12*3)}
	warp(want, src, mapping(rect(7, 5, 27, 17), 20, 12))
	assert.Equal(t, want, got)
}

func TestTheSizeOfACropIsKnownBeforeItIsCut(t *testing.T) {
	t.Parallel()
	src := noise(40, 60)
	for _, q := range []quad{rect(1, 2, 30, 9), rect(1, 2, 9, 50), rect(1, 2, 11, 17), {{3, 3}, {20, 9}, {18, 16}, {1, 10}}, rect(5, 5, 5, 9), rect(0, 0, 1e9, 4)} {
		c := cropQuad(src, q)
		assert.Equal(t, cropSize{c.W, c.H}, sizeOfCrop(src, q), "%v", q)
	}
}

func TestATallCropLiesDownCounterClockwise(t *testing.T) {
	t.Parallel()
	src := noise(20, 20)
	got := cropQuad(src, rect(3, 2, 7, 12)) // 4 wide, 10 high
	require.Equal(t, [2]int{10, 4}, [2]int{got.W, got.H})
	// The top right corner becomes the top left one, the top left the bottom left.
	assert.Equal(t, src.Pix[(2*20+6)*3:][:3], got.Pix[:3])
	assert.Equal(t, src.Pix[(2*20+3)*3:][:3], got.Pix[3*10*3:][:3])
	assert.Equal(t, 5, cropQuad(src, rect(3, 2, 8, 9)).W, "1.4 times as high as wide stays")
	assert.Equal(t, 6, cropQuad(src, rect(3, 2, 7, 8)).W, "1.5 times is turned")
}

func TestACropOfNothingHasNoWidth(t *testing.T) {
	t.Parallel()
	src := noise(20, 20)
	for name, q := range map[string]quad{
		"a point":      rect(5, 5, 5, 5),
		"a line":       rect(5, 5, 15, 5),
		"under 1 high": rect(5, 5, 15, 5.9),
		"NaN":          rect(math.NaN(), 5, 15, 15),
		"infinite":     rect(5, 5, math.Inf(1), 15),
		"far too long": rect(0, 0, 1e9, 5),
	} {
		assert.Zero(t, cropQuad(src, q).W, name)
	}
	assert.Zero(t, cropQuad(bitmap{}, rect(0, 0, 5, 5)).W)
}

func TestACropBeyondTheEdgeRepeatsIt(t *testing.T) {
	t.Parallel()
	src := noise(10, 10)
	got := cropQuad(src, rect(-6, 2, 4, 8))
	require.Equal(t, 10, got.W)
	assert.Equal(t, src.Pix[2*10*3:][:3], got.Pix[:3])
}

func FuzzCropQuad(f *testing.F) {
	f.Add(1., 1., 20., 2., 19., 9., 0., 8.)
	f.Add(5., 5., 5., 5., 5., 5., 5., 5.)
	f.Add(-5., -5., 50., 0., 0., 50., -9., 9.)
	f.Add(0., 0., 10., 10., 0., 10., 10., 0.) // crosses itself
	src := noise(31, 17)
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g, h, i float64) {
		out := cropQuad(src, quad{{a, b}, {c, d}, {e, g}, {h, i}})
		require.Len(t, out.Pix, out.W*out.H*3)
		require.LessOrEqual(t, out.W, src.W+src.H)
		require.LessOrEqual(t, out.H, src.W+src.H)
	})
}

func BenchmarkCropQuad(b *testing.B) {
	src := noise(736, 736)
	for name, q := range map[string]quad{
		"upright-300x40": rect(100, 200, 400, 240),
		"skewed-300x40":  {{100, 200}, {400, 202}, {400, 242}, {100, 240}},
		"skewed-100x24":  {{100, 200}, {200, 203}, {199, 227}, {99, 224}},
		"tall-40x300":    rect(100, 200, 140, 500),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				cropQuad(src, q)
			}
		})
	}
}
