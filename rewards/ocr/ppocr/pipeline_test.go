package ppocr

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func TestGoldenSizesAreRapidOCRs(t *testing.T) {
	t.Parallel()
	type row struct {
		W, H    int
		PageW   int `json:"page_w"`
		PageH   int `json:"page_h"`
		RX, RY  float32
		Bar     *int
		DetW    int `json:"det_w"`
		DetH    int `json:"det_h"`
		None    bool
		PaddleW int `json:"paddle_w"`
		PaddleH int `json:"paddle_h"`
	}
	c, paddle := RapidOCR.constants(), Paddle2.constants()
	for _, r := range golden[[]row](t, "pipeline/sizes.json") {
		w, h := c.pageSize(r.W, r.H)
		require.Equal(t, r.None, w == 0 || h == 0, "%dx%d becomes %dx%d", r.W, r.H, w, h)
		if !r.None {
			require.Equal(t, [2]int{r.PageW, r.PageH}, [2]int{w, h}, "%dx%d", r.W, r.H)
			require.InDelta(t, r.RX, float32(float64(r.W)/float64(w)), 0)
			require.InDelta(t, r.RY, float32(float64(r.H)/float64(h)), 0)
		}
		if r.Bar != nil {
			require.Equal(t, *r.Bar, c.bars(w, h), "%dx%d", r.W, r.H)
			h += 2 * *r.Bar
		}
		if r.DetW > 0 {
			dw, dh := c.detectorSize(w, h)
			require.Equal(t, [2]int{r.DetW, r.DetH}, [2]int{dw, dh}, "%dx%d", r.W, r.H)
		}
		dw, dh := paddle.detectorSize(r.W, r.H)
		require.Equal(t, [2]int{r.PaddleW, r.PaddleH}, [2]int{dw, dh}, "%dx%d", r.W, r.H)
	}
}

func TestFastSizesAreSmaller(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		profile    Profile
		w, h       int
		wantW      int
		wantH      int
		whatItIsOf string
	}{
		{RapidOCR, 512, 512, 512, 512, "as it is"},
		{RapidOCR, 256, 256, 512, 512, "larger, though not 736"},
		{RapidOCR, 768, 768, 512, 512, "smaller"},
		{RapidOCR, 1024, 1024, 672, 672, "two thirds, and the multiple of 32 next to it"},
		{RapidOCR, 2000, 2000, 1344, 1344, "two thirds"},
		{RapidOCR, 832, 480, 896, 512, "832/480*512 = 887"},
		{Paddle2, 512, 512, 512, 512, "the reference's"},
		{Paddle2, 256, 256, 256, 256, "no more than the reference's"},
		{Paddle2, 1024, 1024, 672, 672, "smaller"},
	} {
		w, h := c.profile.constants().fastSize(c.w, c.h, 512, 1.5)
		require.Equal(t, [2]int{c.wantW, c.wantH}, [2]int{w, h}, "%s %dx%d: %s", c.profile, c.w, c.h, c.whatItIsOf)
	}
}

func TestBannersAndColumnsAreTooLongForFastMode(t *testing.T) {
	t.Parallel()
	for size, want := range map[[2]int]bool{{512, 512}: false, {1280, 512}: false, {1281, 512}: true, {512, 1281}: true, {1, 3}: true, {854, 480}: false} {
		require.Equal(t, want, long(size[0], size[1]), "%v", size)
	}
}

func TestSidesAreRoundedWithHalvesToEven(t *testing.T) {
	t.Parallel()
	for side, want := range map[int]int{16: 0, 48: 64, 80: 64, 752: 768, 784: 768, 15: 0, 17: 32} {
		w, _ := scaled(side, side, 1)
		require.Equal(t, want, w, "%d", side)
	}
}

func TestGoldenTablesAreNumpysToTheBit(t *testing.T) {
	t.Parallel()
	type entry struct {
		CRC uint32
		At  [3][5]float64
	}
	want := golden[map[string]entry](t, "pipeline/tables.json")
	for name, got := range map[string]*table{
		"rapidocr": RapidOCR.constants().detectorTable(),
		"paddle2":  Paddle2.constants().detectorTable(),
		"line":     lineTable(),
	} {
		var bytes []byte
		for p := range got {
			for i, v := range [5]int{0, 1, 127, 128, 255} {
				require.InDelta(t, want[name].At[p][i], got[p][v], 1e-6, "%s plane %d value %d", name, p, v)
			}
			for _, v := range got[p] {
				bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(v))
			}
		}
		require.Equal(t, want[name].CRC, crc32.ChecksumIEEE(bytes), name)
	}
}

func TestGoldenWidthsOfCropsAreRapidOCRs(t *testing.T) {
	t.Parallel()
	type row struct {
		Crops       [][2]int
		Width, Fill []int
	}
	c := RapidOCR.constants()
	for _, r := range golden[[]row](t, "pipeline/widths.json") {
		sizes := make([]cropSize, len(r.Crops))
		for i, s := range r.Crops {
			sizes[i] = cropSize{s[0], s[1]}
		}
		widths := c.parityWidths(sizes)
		require.Equal(t, r.Width, widths)
		for i, s := range sizes {
			require.Equal(t, r.Fill[i], s.fill(c.recHeight, widths[i]))
		}
	}
}

func TestFastWidthsAreFewAndHoldTheCrop(t *testing.T) {
	t.Parallel()
	c, widths := RapidOCR.constants(), map[int]bool{}
	for w := 1; w < 14000; w++ {
		s := cropSize{w, 20}
		need, width := s.fill(48, maxRecWidth), c.fastWidth(s, 32)
		require.GreaterOrEqual(t, width, need)
		require.LessOrEqual(t, width-need, max(63, width/8), "%d for %d", width, need)
		require.Zero(t, width%32)
		require.LessOrEqual(t, width, maxRecWidth)
		widths[width] = true
	}
	require.LessOrEqual(t, len(widths), 72)
	require.Equal(t, 64, c.fastWidth(cropSize{5, 48}, 32))
	require.Equal(t, 576, c.fastWidth(cropSize{513, 48}, 32))
}

func TestAFlatPictureGetsBlackBars(t *testing.T) {
	t.Parallel()
	src := bitmap{W: 320, H: 31, Pix: make([]byte, 320*31*3)}
	for i := range src.Pix {
		src.Pix[i] = 200
	}
	p, err := RapidOCR.constants().prepare(src, 1<<20)
	require.NoError(t, err)
	require.Equal(t, 24, p.bar) // (40·2 − 31)/2
	require.Equal(t, [2]int{320, 79}, [2]int{p.W, p.H})
	for y := range p.H {
		want := byte(0)
		if y >= 24 && y < 24+31 {
			want = 200
		}
		require.Equal(t, want, p.Pix[y*320*3], "row %d", y)
	}
	q := p.restore(quad{{1, 30}, {10, 20}, {400, 54}, {1, 70}})
	require.Equal(t, [4][2]float64{{1, 6}, {10, 0}, {320, 30}, {1, 31}}, q)
	same, err := Paddle2.constants().prepare(src, 1<<20)
	require.NoError(t, err)
	require.Zero(t, same.bar)
	require.Same(t, &src.Pix[0], &same.Pix[0])
}

func TestAPictureOfWhichNothingWouldBeLeftIsRefused(t *testing.T) {
	t.Parallel()
	_, err := RapidOCR.constants().prepare(bitmap{W: 20000, H: 10, Pix: make([]byte, 600000)}, 1<<24)
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "20000x10")
	_, err = RapidOCR.constants().prepare(bitmap{W: 1000, H: 1, Pix: make([]byte, 3000)}, 1<<24)
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "1000x1 would be scaled to 30016x")
}

func TestPlanesAreBlueGreenRed(t *testing.T) {
	t.Parallel()
	b := bitmap{W: 2, H: 2, Pix: []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
	var id table
	for p := range id {
		for v := range id[p] {
			id[p][v] = float32(1000*p + v)
		}
	}
	got := make([]float32, 3*3*2)
	id.planes(got, b, 3, false)
	require.Equal(t, []float32{3, 6, 0, 9, 12, 0, 1002, 1005, 0, 1008, 1011, 0, 2001, 2004, 0, 2007, 2010, 0}, got)
	id.planes(got, b, 3, true)
	require.Equal(t, []float32{1, 4, 0, 7, 10, 0, 1002, 1005, 0, 1008, 1011, 0, 2003, 2006, 0, 2009, 2012, 0}, got)
}

func FuzzSizes(f *testing.F) {
	f.Add(512, 512)
	f.Add(1, 1000)
	f.Add(20000, 7)
	f.Fuzz(func(t *testing.T, w, h int) {
		if w < 1 || h < 1 || w > 1<<16 || h > 1<<16 {
			return
		}
		for _, p := range []Profile{RapidOCR, Paddle2} {
			c := p.constants()
			pw, ph := c.pageSize(w, h)
			if pw == 0 || ph == 0 {
				continue
			}
			if c.maxSide > 0 && min(w, h) >= c.minSide && max(pw, ph) > c.maxSide+16 {
				t.Fatalf("%s: %dx%d becomes %dx%d", p, w, h, pw, ph)
			}
			full := ph + 2*c.bars(pw, ph)
			dw, dh := c.detectorSize(pw, full)
			fw, fh := c.fastSize(pw, full, 384, 2)
			if fw*fh > dw*dh {
				t.Fatalf("%s: %dx%d: fast %dx%d is more than %dx%d", p, w, h, fw, fh, dw, dh)
			}
			if dw%stride != 0 || dh%stride != 0 || fw%stride != 0 || fh%stride != 0 || dw < 1 || dh < 1 || fw < 1 || fh < 1 {
				t.Fatalf("%s: %dx%d: detector %dx%d, fast %dx%d", p, w, h, dw, dh, fw, fh)
			}
		}
	})
}
