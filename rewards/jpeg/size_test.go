package jpeg_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/jpeg"
)

func TestSizeRefusesWhatItCannotMeasure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bytes, width, height, quality int
		says                          string
	}{
		"no pixels":          {0, 0, 0, 95, "each side must be"},
		"negative side":      {12, -2, -2, 95, "each side must be"},
		"too wide":           {3 * 65501, 65501, 1, 95, "each side must be"},
		"too high":           {3 * 65501, 1, 65501, 95, "each side must be"},
		"short buffer":       {11, 2, 2, 95, "needs 12 bytes, got 11"},
		"long buffer":        {16, 2, 2, 95, "needs 12 bytes, got 16"},
		"quality zero":       {12, 2, 2, 0, "quality 0"},
		"quality beyond 100": {12, 2, 2, 101, "quality 101"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := jpeg.Size(make([]byte, c.bytes), c.width, c.height, c.quality)
			require.ErrorIs(t, err, rewards.BadInput)
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestSizeTakesTheLongestSidesThatPILTakes(t *testing.T) {
	t.Parallel()
	const longest = 65500
	for _, side := range [][2]int{{longest, 1}, {1, longest}} {
		n, err := jpeg.Size(make([]byte, 3*longest), side[0], side[1], 95)
		require.NoError(t, err)
		assert.Greater(t, n, 625)
	}
}

func TestSizeOnlyReadsThePicture(t *testing.T) {
	t.Parallel()
	rgb := picture("noise", 1, 33, 17)
	before := string(rgb)
	_, err := jpeg.Size(rgb, 33, 17, 95)
	require.NoError(t, err)
	assert.Equal(t, before, string(rgb))
}

// Memory must not follow the picture: hundreds of samples may be scored at once.
//
//nolint:paralleltest // counts what the whole process allocates
func TestSizeAllocatesTheSameFewKiBForEveryPicture(t *testing.T) {
	const runs = 20
	for _, side := range []int{1, 512} {
		rgb := picture("blobs", 7, side, side)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			_, err := jpeg.Size(rgb, side, side, 95)
			require.NoError(t, err)
		}
		runtime.ReadMemStats(&after)
		assert.Less(t, (after.TotalAlloc-before.TotalAlloc)/runs, uint64(16<<10), "%d×%d", side, side)
	}
}

func BenchmarkSize(b *testing.B) {
	for _, kind := range []string{"flat", "ramp", "blobs", "noise"} {
		b.Run(kind+"512", func(b *testing.B) {
			rgb := picture(kind, 7, 512, 512)
			b.SetBytes(int64(len(rgb)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jpeg.Size(rgb, 512, 512, 95); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzSize holds that nothing but the documented refusals comes of any input,
// and that a picture's file is at least header and end.
func FuzzSize(f *testing.F) {
	f.Add([]byte{255, 0, 0}, 1, 1, 95)
	f.Add(picture("noise", 9, 17, 3), 17, 3, 1)
	f.Add([]byte{}, 0, 1<<30, 50)
	f.Fuzz(func(t *testing.T, rgb []byte, width, height, quality int) {
		n, err := jpeg.Size(rgb, width, height, quality)
		if err != nil {
			require.ErrorIs(t, err, rewards.BadInput)
			return
		}
		blocks := (width + 15) / 16 * ((height + 15) / 16) * 6
		assert.Greater(t, n, 625)
		// A block is at most 20 bits of DC and 63×26 of AC, each byte perhaps stuffed.
		assert.LessOrEqual(t, n, 626+blocks*(20+63*26)/8*2)
	})
}
