package ocr

import (
	"bytes"
	_ "embed"
	"fmt"
	"image"
	"image/png"

	"github.com/rewardloop/rewardloop/rewards"
)

// CanaryText is the text in the picture that Canary returns.
const CanaryText = "QUIET HARBOUR 42"

// canaryPNG was drawn once, by a test, so that no program carries a font.
//
//go:embed canary.png
var canaryPNG []byte

// Canary returns the picture that tests a reader before its first use: CanaryText in one line of
// black letters on white, 480 × 96 pixels, 40 pixels per em.
func Canary() (*rewards.Pixels, error) {
	img, err := png.Decode(bytes.NewReader(canaryPNG))
	if err != nil {
		return nil, fmt.Errorf("the built-in test picture cannot be decoded: %w", err)
	}
	grey, ok := img.(*image.Gray)
	if !ok {
		return nil, fmt.Errorf("the built-in test picture is a %T, want *image.Gray", img)
	}
	px := &rewards.Pixels{Width: grey.Rect.Dx(), Height: grey.Rect.Dy(), Count: 1, RGB: make([]byte, 0, 3*len(grey.Pix))}
	for _, v := range grey.Pix {
		px.RGB = append(px.RGB, v, v, v)
	}
	return px, nil
}
