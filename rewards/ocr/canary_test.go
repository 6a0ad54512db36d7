package ocr_test

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	fix "golang.org/x/image/math/fixed"

	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// REWARDLOOP_UPDATE=1 writes canary.png anew.
func TestTheCanaryIsItsTextInTheRegularGoFont(t *testing.T) {
	t.Parallel()
	parsed, err := opentype.Parse(goregular.TTF)
	require.NoError(t, err)
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: 40, DPI: 72, Hinting: font.HintingFull})
	require.NoError(t, err)
	defer face.Close()
	img := image.NewGray(image.Rect(0, 0, 480, 96))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	d := font.Drawer{Dst: img, Src: image.NewUniform(color.Black), Face: face}
	d.Dot = fix.P((480-d.MeasureString(ocr.CanaryText).Round())/2, 48+13)
	d.DrawString(ocr.CanaryText)
	if os.Getenv("REWARDLOOP_UPDATE") == "1" {
		var file bytes.Buffer
		require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, img))
		require.NoError(t, os.WriteFile("canary.png", file.Bytes(), 0o644)) //nolint:gosec // a file of the tree
		t.Skip("canary.png is written")
	}
	px, err := ocr.Canary()
	require.NoError(t, err)
	require.Equal(t, []int{480, 96, 1}, []int{px.Width, px.Height, px.Count})
	for i, v := range img.Pix {
		require.Equal(t, []byte{v, v, v}, px.RGB[3*i:3*i+3], "pixel %d", i)
	}
}
