package tesseract

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"slices"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// canaryText is written in the canary picture.
const canaryText = "QUIET HARBOUR 42"

// canary draws the picture that every new slot must read before it is used.
func canary() (*rewards.Pixels, error) {
	return render(canaryText, 480, 96, 40)
}

// render writes one line of black text on white.
func render(text string, width, height int, size float64) (*rewards.Pixels, error) {
	parsed, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("parsing the canary's font: %w", err)
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		return nil, fmt.Errorf("scaling the canary's font: %w", err)
	}
	defer face.Close()
	img := image.NewGray(image.Rect(0, 0, width, height))
	draw.Draw(img, img.Bounds(), image.White, image.Point{}, draw.Src)
	d := font.Drawer{Dst: img, Src: image.NewUniform(color.Black), Face: face}
	d.Dot = fixed.P((width-d.MeasureString(text).Round())/2, height/2+int(size/3))
	d.DrawString(text)
	px := &rewards.Pixels{Width: width, Height: height, Count: 1, RGB: make([]byte, 0, 3*width*height)}
	for _, v := range img.Pix {
		px.RGB = append(px.RGB, v, v, v)
	}
	return px, nil
}

// checkCanary says what is wrong with a reading of the canary. Only English is
// held to the letter: a model of another script need not know Latin capitals,
// but must answer.
func checkCanary(language string, lines []ocr.Line) error {
	got := strings.ToUpper(ocr.Text(lines))
	if !slices.Contains(strings.Split(language, "+"), "eng") || strings.ReplaceAll(got, " ", "") == strings.ReplaceAll(canaryText, " ", "") {
		return nil
	}
	return fmt.Errorf("read %q where %q is written", got, canaryText)
}
