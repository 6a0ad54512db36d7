package ppocr

import (
	"encoding/json"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// golden decodes a golden file below testdata. The scripts beside the folders write
// them, and testdata/README.md says how.
func golden[T any](t *testing.T, name string) T {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)))
	require.NoError(t, err)
	var v T
	require.NoError(t, json.Unmarshal(raw, &v))
	require.NotEmpty(t, v)
	return v
}

func decodePNG(t *testing.T, name string) image.Image {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "geometry", name))
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	return img
}

// goldenBitmap reads a picture.
func goldenBitmap(t *testing.T, name string) bitmap {
	t.Helper()
	img := decodePNG(t, name)
	b := bitmap{W: img.Bounds().Dx(), H: img.Bounds().Dy()}
	for y := range b.H {
		for x := range b.W {
			r, g, bl, _ := img.At(x, y).RGBA()
			b.Pix = append(b.Pix, byte(r>>8), byte(g>>8), byte(bl>>8))
		}
	}
	return b
}

// goldenMap reads a map of probabilities, kept as grey levels.
func goldenMap(t *testing.T, name string) (prob []float32, w, h int) {
	t.Helper()
	img, ok := decodePNG(t, name).(*image.Gray)
	require.True(t, ok)
	w, h = img.Bounds().Dx(), img.Bounds().Dy()
	for y := range h {
		for x := range w {
			prob = append(prob, float32(img.GrayAt(x, y).Y)/255)
		}
	}
	return prob, w, h
}

type goldenBox [4][2]float64

func (b goldenBox) corners() [4]corner {
	var c [4]corner
	for i, p := range b {
		c[i] = corner{float32(p[0]), float32(p[1])}
	}
	return c
}

// apart is the greatest difference between coordinates.
func (b goldenBox) apart(c [4]corner) float64 {
	d := 0.0
	for i, p := range b {
		d = max(d, math.Abs(float64(float32(p[0])-c[i].x)), math.Abs(float64(float32(p[1])-c[i].y)))
	}
	return d
}

func cells(points [][2]int32) []cell {
	out := make([]cell, len(points))
	for i, p := range points {
		out[i] = cell{p[0], p[1]}
	}
	return out
}

// inReadingOrder is a copy of a hull to compare with.
func inReadingOrder(hull []cell) []cell {
	out := append([]cell{}, hull...)
	readingOrder(out)
	return out
}

// compareLevels tells which part of the values is equal and by how much others differ.
func compareLevels(t *testing.T, want, got bitmap) (different, total, most int) {
	t.Helper()
	require.Equal(t, [2]int{want.W, want.H}, [2]int{got.W, got.H})
	require.Len(t, got.Pix, len(want.Pix))
	for i, v := range want.Pix {
		d := int(v) - int(got.Pix[i])
		if d != 0 {
			different++
		}
		most = max(most, d, -d)
	}
	return different, len(want.Pix), most
}

// noise is a picture of any content, the same for the same size.
func noise(w, h int) bitmap {
	b := bitmap{W: w, H: h, Pix: make([]byte, w*h*3)}
	state := uint32(w*7919 + h)
	for i := range b.Pix {
		state = state*1664525 + 1013904223
		b.Pix[i] = byte(state >> 24)
	}
	return b
}

func TestTurnKnowsClockwiseFromStraightOn(t *testing.T) {
	t.Parallel()
	assert.Positive(t, turn(cell{0, 0}, cell{1, 0}, cell{1, 1}))
	assert.Negative(t, turn(cell{0, 0}, cell{1, 0}, cell{1, -1}))
	assert.Zero(t, turn(cell{0, 0}, cell{2, 1}, cell{4, 2}))
}
