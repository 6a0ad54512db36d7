package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// picture is a line of pictures.jsonl, and its pixels.
type picture struct {
	File   string `json:"file"`
	Kind   string `json:"kind"`
	Prompt string `json:"prompt"`
	// Rendered is what is really written on a golden picture.
	Rendered string `json:"rendered"`

	path string
	px   *rewards.Pixels
}

// golden is the kind of the pictures of testdata/golden/ocr.
const golden = "golden"

// cjkFonts are where fonts with Chinese characters lie on Debian.
var cjkFonts = []string{ //nolint:gochecknoglobals // a table
	"/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",
	"/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc",
	"/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",
}

// draw runs pictures.py into a folder.
func (s settings) draw(ctx context.Context, folder string, count int) error {
	args := []string{
		filepath.Join(s.root, "tools", "bench", "ocr", "pictures.py"), folder,
		"--golden", filepath.Join(s.root, "testdata", "golden", "ocr"), "--count", strconv.Itoa(count),
	}
	if s.seed != 0 {
		args = append(args, "--seed", strconv.Itoa(s.seed))
	}
	if s.extra != "" {
		args = append(args, "--extra", s.extra)
	}
	font := s.cjk
	for _, f := range cjkFonts {
		if _, err := os.Stat(f); font == "" && err == nil {
			font = f
		}
	}
	if font != "" {
		args = append(args, "--cjk", font)
	}
	out, err := exec.CommandContext(ctx, s.python, args...).CombinedOutput() //nolint:gosec // our own arguments
	if err != nil {
		return fmt.Errorf("pictures.py: %w\n%s", err, out)
	}
	return nil
}

// load reads the pictures of a folder that draw filled.
func load(folder string) ([]picture, error) {
	f, err := os.Open(filepath.Join(folder, "pictures.jsonl"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []picture
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var p picture
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("pictures.jsonl: row %d: %w", len(out)+1, err)
		}
		p.path = filepath.Join(folder, p.File)
		if p.px, err = decode(p.path); err != nil {
			return nil, fmt.Errorf("%s: %w", p.File, err)
		}
		out = append(out, p)
	}
}

// thin keeps every nth picture, so that about count are left of each origin.
func thin(pictures []picture, count int) []picture {
	var out []picture
	for _, kind := range []bool{true, false} {
		part := slices.DeleteFunc(slices.Clone(pictures), func(p picture) bool { return (p.Kind == golden) != kind })
		step := max(1, len(part)/count)
		for i := 0; i < len(part); i += step {
			out = append(out, part[i])
		}
	}
	return out
}

func decode(path string) (*rewards.Pixels, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		return nil, err
	}
	return flatten(img), nil
}

// flatten is what RapidOCR does to a picture with an alpha channel and media does
// not, which drops it as PIL's convert("RGB") does: it lays it over white if what is
// visible is dark, over black if it is light (rapidocr/utils/load_image.py). It is here
// so that both readers get the same pixels.
func flatten(img image.Image) *rewards.Pixels {
	n, ok := img.(*image.NRGBA)
	if !ok || n.Opaque() {
		return media.ToRGB(img)
	}
	px := &rewards.Pixels{Width: n.Rect.Dx(), Height: n.Rect.Dy(), Count: 1}
	sum, seen := 0.0, 0
	each := func(do func(c color.NRGBA)) {
		for y := n.Rect.Min.Y; y < n.Rect.Max.Y; y++ {
			for x := n.Rect.Min.X; x < n.Rect.Max.X; x++ {
				do(n.NRGBAAt(x, y))
			}
		}
	}
	each(func(c color.NRGBA) {
		if c.A > 0 {
			sum += .299*float64(c.R) + .587*float64(c.G) + .114*float64(c.B)
			seen++
		}
	})
	ground := float32(0)
	if seen == 0 || sum/float64(seen) < 128 {
		ground = 255
	}
	each(func(c color.NRGBA) {
		a := float32(c.A) / 255
		for _, v := range [3]uint8{c.R, c.G, c.B} {
			px.RGB = append(px.RGB, uint8(float32(v)*a+ground*(1-a)))
		}
	})
	return px
}
