package media_test

import (
	"image"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

func goldenDir(t *testing.T, sub string) string {
	t.Helper()
	root := os.Getenv("REWARDLOOP_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "testdata", "golden")
	}
	dir := filepath.Join(root, sub)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no golden folder %s: set REWARDLOOP_GOLDEN", dir)
	}
	return dir
}

// TestGoldenBilinearResize holds Resize against PIL's BILINEAR at 144×48.
func TestGoldenBilinearResize(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob(filepath.Join(goldenDir(t, "images"), "*.bilinear144x48.rgb"))
	require.NoError(t, err)
	d := decoder(t, media.Config{})
	for _, name := range names {
		picture := strings.TrimSuffix(name, ".bilinear144x48.rgb") + ".png"
		p, err := d.Decode(t.Context(), encoded(rewards.PNG, read(t, picture)))
		require.NoError(t, err)
		got, want := media.Resize(p, 144, 48, media.Bilinear), read(t, name)
		require.Len(t, got.RGB, len(want))
		worst := 0
		for i := range want {
			worst = max(worst, int(want[i])-int(got.RGB[i]), int(got.RGB[i])-int(want[i]))
		}
		assert.LessOrEqual(t, worst, 1, picture)
	}
}

// TestGoldenPicturesDecode reads the pictures of the golden set, of the 128 for
// OCR one of each prompt.
func TestGoldenPicturesDecode(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	for sub, pattern := range map[string]string{"images": "*.png", "ocr": "*_0.jpg"} {
		names, err := filepath.Glob(filepath.Join(goldenDir(t, sub), pattern))
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			p, err := d.Decode(t.Context(), encoded(encodingOf(name), read(t, name)))
			require.NoError(t, err, name)
			assert.Len(t, p.RGB, p.Width*p.Height*3)
			free(p)
		}
	}
	assert.Zero(t, d.Booked())
}

func TestResizeTakesEveryFrameAndEveryFilter(t *testing.T) {
	t.Parallel()
	p := &rewards.Pixels{Width: 2, Height: 2, Count: 2, RGB: make([]byte, 24)}
	for i := 12; i < 24; i++ {
		p.RGB[i] = 200
	}
	assert.Same(t, p, media.Resize(p, 2, 2, media.Box))
	for _, f := range []media.Filter{media.Nearest, media.Box, media.Bilinear, media.Bicubic, media.Lanczos} {
		got := media.Resize(p, 5, 3, f)
		assert.Equal(t, []int{5, 3, 2, 90}, []int{got.Width, got.Height, got.Count, len(got.RGB)})
		assert.Equal(t, byte(0), got.Frame(0)[44])
		assert.Equal(t, byte(200), got.Frame(1)[44])
	}
}

func TestToRGBDropsAlphaAndKnowsCutOuts(t *testing.T) {
	t.Parallel()
	colours := []color.NRGBA{{200, 100, 50, 0}, {1, 2, 3, 128}, {9, 8, 7, 255}, {255, 0, 255, 1}}
	whole := image.NewNRGBA(image.Rect(0, 0, 6, 6))
	for i, c := range colours {
		whole.SetNRGBA(2+i%2, 3+i/2, c)
	}
	p := media.ToRGB(whole.SubImage(image.Rect(2, 3, 4, 5)))
	assert.Equal(t, []byte{200, 100, 50, 1, 2, 3, 9, 8, 7, 255, 0, 255}, p.RGB)

	blended := image.NewRGBA(image.Rect(0, 0, 1, 1)) // premultiplied: half of (200, 100, 50)
	blended.SetRGBA(0, 0, color.RGBA{100, 50, 25, 128})
	assert.InDelta(t, 200, float64(media.ToRGB(blended).RGB[0]), 1)

	for _, ratio := range []image.YCbCrSubsampleRatio{image.YCbCrSubsampleRatio444, image.YCbCrSubsampleRatio440, image.YCbCrSubsampleRatio420, image.YCbCrSubsampleRatio410} {
		m := image.NewYCbCr(image.Rect(0, 0, 9, 7), ratio)
		for i := range m.Y {
			m.Y[i] = 77
		}
		for i := range m.Cb {
			m.Cb[i], m.Cr[i] = 128, 128
		}
		for _, cut := range []image.Rectangle{m.Rect, image.Rect(1, 1, 8, 6), image.Rect(8, 6, 9, 7)} {
			for _, v := range media.ToRGB(m.SubImage(cut)).RGB {
				require.Equal(t, byte(77), v)
			}
		}
	}
}
