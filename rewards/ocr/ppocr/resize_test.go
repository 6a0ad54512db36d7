package ppocr

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoldenResizeIsOpenCVs(t *testing.T) {
	t.Parallel()
	different, total := 0, 0
	for _, c := range golden[[]struct {
		Src, Dst string
		W, H     int
	}](t, "geometry/resize.json") {
		n, of, most := compareLevels(t, goldenBitmap(t, c.Dst), resize(goldenBitmap(t, c.Src), c.W, c.H))
		assert.LessOrEqual(t, most, 1, c.Dst)
		different, total = different+n, total+of
	}
	t.Logf("%d of %d values differ, by 1", different, total)
	assert.LessOrEqual(t, float64(different)/float64(total), .001)
}

func TestResizeOfNothingIsNothing(t *testing.T) {
	t.Parallel()
	assert.Zero(t, resize(bitmap{}, 4, 4).W)
	assert.Zero(t, resize(noise(3, 3), 0, 4).W)
	assert.Zero(t, resize(noise(3, 3), 4, -1).W)
	resizeInto(nil, bitmap{}, 4, 4)
	resizeInto(nil, noise(3, 3), 0, 0)
}

func TestResizeIntoLeavesWhatFollowsAlone(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{10, 10}, {5, 5}, {7, 13}} { // the same, half, any
		dst := make([]byte, size[0]*size[1]*3+4)
		copy(dst[len(dst)-4:], "kept")
		resizeInto(dst, noise(10, 10), size[0], size[1])
		assert.Equal(t, "kept", string(dst[len(dst)-4:]))
	}
}

func TestResizeDoesNotShareMemoryWithItsSource(t *testing.T) {
	t.Parallel()
	src := noise(4, 4)
	out := resize(src, 4, 4)
	require.Equal(t, src, out)
	src.Pix[0]++
	assert.NotEqual(t, src, out)
}

func TestResizeKeepsAPlainColour(t *testing.T) {
	t.Parallel()
	src := bitmap{W: 9, H: 5, Pix: make([]byte, 9*5*3)}
	for i := range src.Pix {
		src.Pix[i] = 255
	}
	for _, v := range resize(src, 31, 17).Pix {
		require.Equal(t, byte(255), v)
	}
}

func FuzzResize(f *testing.F) {
	f.Add(uint8(3), uint8(4), uint8(5), uint8(6))
	f.Add(uint8(1), uint8(1), uint8(200), uint8(1))
	f.Add(uint8(8), uint8(8), uint8(4), uint8(4))
	f.Fuzz(func(t *testing.T, sw, sh, dw, dh uint8) {
		out := resize(noise(int(sw), int(sh)), int(dw), int(dh))
		if sw == 0 || sh == 0 || dw == 0 || dh == 0 {
			require.Zero(t, out.W)
			return
		}
		require.Len(t, out.Pix, int(dw)*int(dh)*3)
	})
}

func BenchmarkResize(b *testing.B) {
	for _, c := range [][4]int{{512, 512, 736, 736}, {1024, 1024, 736, 736}, {1024, 1024, 512, 512}, {300, 40, 360, 48}} {
		b.Run(fmt.Sprintf("%dx%d-%dx%d", c[0], c[1], c[2], c[3]), func(b *testing.B) {
			src, dst := noise(c[0], c[1]), make([]byte, c[2]*c[3]*3)
			b.ReportAllocs()
			for b.Loop() {
				resizeInto(dst, src, c[2], c[3])
			}
		})
	}
}
