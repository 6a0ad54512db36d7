package ppocr

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var rapid = dbParams{Thresh: .3, BoxThresh: .5, UnclipRatio: 1.6, Dilate: true, MaxCandidates: 1000, MinSize: 3}

type goldenRegions struct {
	Map       string
	Dest      [2]int
	BoxThresh float64 `json:"box_thresh"`
	Ratio     float64
	Dilate    bool
	Slow      bool
	Boxes     []goldenBox
	Scores    []float64
}

func TestGoldenRegionsAreDBPostProcesss(t *testing.T) {
	t.Parallel()
	near, same, scored, total, extra := 0, 0, 0, 0, 0
	for _, c := range golden[[]goldenRegions](t, "geometry/regions.json") {
		prob, w, h := goldenMap(t, c.Map)
		p := rapid
		p.BoxThresh, p.UnclipRatio, p.Dilate, p.Slow = c.BoxThresh, c.Ratio, c.Dilate, c.Slow
		got := findRegions(prob, w, h, c.Dest[0], c.Dest[1], p)
		extra += max(0, len(got)-len(c.Boxes))
		for i, want := range c.Boxes {
			total++
			best, at := math.Inf(1), -1
			for j, r := range got {
				var b [4]corner
				for k, q := range r.Quad {
					b[k] = corner{float32(q.X), float32(q.Y)}
				}
				if d := want.apart(b); d < best {
					best, at = d, j
				}
			}
			if best > 1 {
				t.Logf("%s slow=%v: %v is not found", c.Map, c.Slow, want)
				continue
			}
			near++
			if best == 0 {
				same++
			}
			if math.Abs(got[at].Score-c.Scores[i]) <= 1e-6 {
				scored++
			} else {
				t.Logf("%s slow=%v: %v has score %v, want %v", c.Map, c.Slow, want, got[at].Score, c.Scores[i])
			}
		}
	}
	t.Logf("of %d boxes %d are within 1 pixel, %d the same, %d have the same score; %d more were found", total, near, same, scored, extra)
	assert.GreaterOrEqual(t, near*100, total*99)
	assert.GreaterOrEqual(t, scored*100, total*98)
	assert.LessOrEqual(t, extra*100, total)
}

func TestNothingIsFoundInNothing(t *testing.T) {
	t.Parallel()
	assert.Empty(t, findRegions(nil, 0, 0, 10, 10, rapid))
	assert.Empty(t, findRegions(make([]float32, 100), 10, 10, 10, 10, rapid), "zeros")
	assert.Empty(t, findRegions(make([]float32, 100), 10, 11, 10, 10, rapid), "a map that is too short")
	assert.Empty(t, findRegions(make([]float32, 100), -10, -10, 10, 10, rapid))
	assert.Empty(t, findRegions(make([]float32, 100), math.MaxInt, math.MaxInt, 10, 10, rapid))
	ones := []float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	assert.Empty(t, findRegions(ones, 10, 1, 10, 10, rapid), "a line")
	assert.Empty(t, findRegions(ones, 1, 10, 10, 10, rapid), "a column")
	assert.Empty(t, findRegions(ones, 5, 2, 0, 10, rapid), "nowhere to put them")
}

func TestAMapOfOnesIsOneRegionOfTheWholeImage(t *testing.T) {
	t.Parallel()
	prob := make([]float32, 64*32)
	for i := range prob {
		prob[i] = 1
	}
	for _, slow := range []bool{false, true} {
		p := rapid
		p.Slow = slow
		got := findRegions(prob, 64, 32, 128, 64, p)
		require.Len(t, got, 1)
		assert.Equal(t, rect(0, 0, 127, 63), got[0].Quad)
		assert.InDelta(t, 1, got[0].Score, 0)
	}
}

func TestNaNIsBelowEveryThreshold(t *testing.T) {
	t.Parallel()
	prob := make([]float32, 64*32)
	for i := range prob {
		prob[i] = float32(math.NaN())
	}
	assert.Empty(t, findRegions(prob, 64, 32, 64, 32, rapid))
}

func TestARegionWithANaNInItIsNotScored(t *testing.T) {
	t.Parallel()
	prob := make([]float32, 64*32)
	for y := 8; y < 20; y++ {
		for x := 8; x < 50; x++ {
			prob[y*64+x] = .9
		}
	}
	require.Len(t, findRegions(prob, 64, 32, 64, 32, rapid), 1)
	prob[12*64+20] = float32(math.NaN())
	assert.Empty(t, findRegions(prob, 64, 32, 64, 32, rapid))
}

func TestNoiseIsBoundedByCandidates(t *testing.T) {
	t.Parallel()
	const side = 400
	prob := make([]float32, side*side)
	for y := range side {
		for x := range side {
			if y%8 < 6 && x%8 < 6 {
				prob[y*side+x] = 1
			}
		}
	}
	assert.Len(t, findRegions(prob, side, side, side, side, rapid), 1000, "of 2500")
	p := rapid
	p.MaxCandidates = 7
	assert.Len(t, findRegions(prob, side, side, side, side, p), 7)
	p.MaxCandidates = 1 << 30
	assert.Len(t, findRegions(prob, side, side, side, side, p), 1000)
}

func TestRegionsFoundAtTheSameTimeAreTheSame(t *testing.T) {
	t.Parallel()
	prob := page736()
	want := findRegions(prob, 736, 736, 512, 512, rapid)
	require.NotEmpty(t, want)
	got := make(chan []region)
	for range 4 {
		go func() { got <- findRegions(prob, 736, 736, 512, 512, rapid) }()
	}
	for range 4 {
		assert.Equal(t, want, <-got)
	}
}

func FuzzFindRegions(f *testing.F) {
	f.Add([]byte("a map of probabilities, of which some are high"), uint8(7), uint16(20), uint16(30), true, false)
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}, uint8(5), uint16(5), uint16(5), false, true)
	f.Fuzz(func(t *testing.T, raw []byte, width uint8, destW, destH uint16, dilate, slow bool) {
		if len(raw) > 1500 {
			raw = raw[:1500]
		}
		prob := make([]float32, len(raw)*4)
		for i := range prob { // blocks of 4 pixels, so that there is something to find
			prob[i] = float32(raw[i/4]) / 255
		}
		if len(raw) > 8 && raw[0] == 7 {
			prob[5] = math.Float32frombits(binary.LittleEndian.Uint32(raw[1:]))
		}
		w := int(width)
		h := 0
		if w > 0 {
			h = len(prob) / w
		}
		p := rapid
		p.Dilate, p.Slow, p.BoxThresh = dilate, slow, .1
		for _, r := range findRegions(prob, w, h, int(destW), int(destH), p) {
			for _, c := range r.Quad {
				require.True(t, c.X >= 0 && c.X < float64(destW) && c.Y >= 0 && c.Y < float64(destH), "%v", r.Quad)
				require.True(t, c.X == math.Trunc(c.X) && c.Y == math.Trunc(c.Y), "%v", r.Quad)
			}
			require.True(t, r.Score >= .1 && !math.IsInf(r.Score, 0))
		}
	})
}

// page736 is a map like one of a page: 40 lines, slightly slanted.
func page736() []float32 {
	prob := make([]float32, 736*736)
	for line := range 40 {
		for x := 30 + line*5%70; x < 640-line*11%200; x++ {
			for y := range 11 {
				prob[(10+line*18+y+x*3/736)*736+x] = .9
			}
		}
	}
	return prob
}

func BenchmarkFindRegions(b *testing.B) {
	few := make([]float32, 736*736)
	for y := 100; y < 160; y++ {
		for x := 100; x < 600; x++ {
			few[(y+x/50)*736+x] = .95
		}
	}
	noisy := make([]float32, 736*736)
	for i, v := range noise(736, 736).Pix {
		noisy[i/3] = float32(v) / 255
	}
	ones := make([]float32, 736*736)
	for i := range ones {
		ones[i] = 1
	}
	slow := rapid
	slow.Slow = true
	plain := rapid
	plain.Dilate = false
	for _, c := range []struct {
		name string
		prob []float32
		p    dbParams
	}{{"one-line", few, rapid}, {"forty-lines", page736(), rapid}, {"forty-lines-slow", page736(), slow}, {"noise", noisy, rapid}, {"noise-undilated", noisy, plain}, {"ones", ones, rapid}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				findRegions(c.prob, 736, 736, 512, 512, c.p)
			}
		})
	}
}
