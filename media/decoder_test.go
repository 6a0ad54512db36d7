package media_test

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

func decoder(tb testing.TB, cfg media.Config) *media.Decoder {
	tb.Helper()
	d, err := media.New(cfg)
	require.NoError(tb, err)
	return d
}

func encoded(e rewards.Encoding, data []byte) *rewards.Media {
	return &rewards.Media{Kind: rewards.Image, Encoding: e, Data: data, DType: "U8", Shape: []int{len(data)}}
}

func read(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(name)
	require.NoError(tb, err)
	return data
}

func encodingOf(name string) rewards.Encoding {
	switch filepath.Ext(name) {
	case ".png":
		return rewards.PNG
	case ".webp":
		return rewards.WebP
	}
	return rewards.JPEG
}

// pilPictures are the encoded files of testdata/pil.
func pilPictures(tb testing.TB) []string {
	tb.Helper()
	names, err := filepath.Glob("testdata/pil/*")
	require.NoError(tb, err)
	var out []string
	for _, n := range names {
		if !strings.HasSuffix(n, ".rgb") {
			out = append(out, n)
		}
	}
	require.NotEmpty(tb, out)
	return out
}

func TestDecoderSeesThePixelsThatPILSees(t *testing.T) {
	t.Parallel()
	d := decoder(t, media.Config{})
	for _, name := range pilPictures(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			p, err := d.Decode(context.Background(), encoded(encodingOf(name), read(t, name)))
			require.NoError(t, err)
			want := read(t, strings.TrimSuffix(name, filepath.Ext(name))+".rgb")
			require.Len(t, p.RGB, len(want))
			worst, sum := 0, 0
			for i := range want {
				diff := int(p.RGB[i]) - int(want[i])
				diff = max(diff, -diff)
				worst = max(worst, diff)
				sum += diff
			}
			t.Logf("worst %d, mean %.4f", worst, float64(sum)/float64(len(want)))
			// The two JPEG libraries round their cosine transforms differently.
			limit := 0
			if encodingOf(name) == rewards.JPEG {
				limit = 3
			}
			assert.LessOrEqual(t, worst, limit)
		})
	}
}

// A camera's note that the picture lies on its side does not turn it.
func TestAnOrientationOfEXIFIsNotApplied(t *testing.T) {
	t.Parallel()
	var plain bytes.Buffer
	require.NoError(t, jpeg.Encode(&plain, image.NewGray(image.Rect(0, 0, 24, 8)), nil))
	// An APP1 segment: TIFF, big endian, one entry 0x0112 (orientation), SHORT, 6.
	exif := "Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"
	turned := slices.Concat(plain.Bytes()[:2], []byte{0xff, 0xe1, 0, byte(len(exif) + 2)}, []byte(exif), plain.Bytes()[2:])
	d := decoder(t, media.Config{})
	p, err := d.Decode(t.Context(), encoded(rewards.JPEG, turned))
	require.NoError(t, err)
	require.Equal(t, [2]int{24, 8}, [2]int{p.Width, p.Height})
}
