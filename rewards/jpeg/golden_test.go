package jpeg_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"image"
	"image/draw"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards/jpeg"
)

// goldenRow is a line of the golden images' index.jsonl.
type goldenRow struct {
	Image             string  `json:"image"`
	Width             int     `json:"width"`
	Height            int     `json:"height"`
	Bytes             int     `json:"jpeg_q95_bytes"`
	Incompressibility float64 `json:"jpeg_incompressibility"`
	Compressibility   float64 `json:"jpeg_compressibility"`
}

// The golden sizes were written by PIL, so the count is held to the byte.
func TestGoldenSizesEqualPILToTheByte(t *testing.T) {
	t.Parallel()
	dir := goldenImages(t)
	for _, row := range readLines[goldenRow](t, filepath.Join(dir, "index.jsonl")) {
		t.Run(row.Image, func(t *testing.T) {
			t.Parallel()
			n, err := jpeg.Size(readPNG(t, filepath.Join(dir, row.Image)), row.Width, row.Height, 95)
			require.NoError(t, err)
			assert.Equal(t, row.Bytes, n)
		})
	}
}

// pilRow is a line of testdata/pil_sizes.jsonl, made by
// testdata/make_pil_sizes.py with Pillow 13.0 on libjpeg-turbo 3.2.
type pilRow struct {
	Kind    string `json:"kind"`
	Seed    uint32 `json:"seed"`
	Width   int    `json:"width"`
	Height  int    `json:"height"`
	Quality int    `json:"quality"`
	Bytes   int    `json:"bytes"`
}

// Odd sides, single pixels, all qualities: the cases where padding, dummy blocks
// and byte stuffing decide.
func TestGoldenOddSizesAndQualitiesEqualPILToTheByte(t *testing.T) {
	t.Parallel()
	rows := readLines[pilRow](t, filepath.Join("testdata", "pil_sizes.jsonl"))
	require.Greater(t, len(rows), 150)
	for _, row := range rows {
		n, err := jpeg.Size(picture(row.Kind, row.Seed, row.Width, row.Height), row.Width, row.Height, row.Quality)
		require.NoError(t, err)
		assert.Equal(t, row.Bytes, n, "%+v", row)
	}
}

// picture mirrors the function of that name in testdata/make_pil_sizes.py.
func picture(kind string, seed uint32, width, height int) []byte {
	state := seed
	noise := func() int {
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		return int(state >> 24)
	}
	out := make([]byte, 0, 3*width*height)
	for y := range height {
		for x := range width {
			for c := range 3 {
				var v int
				switch kind {
				case "noise":
					v = noise()
				case "ramp":
					v = x*(c+1) + y*2 + int(seed)
				case "checks":
					v = 255 * ((x/(3+c) + y/5) & 1)
				case "blobs":
					v = (x*x+y*y*(c+1))/(int(seed)%97+30) + noise()%9
				case "primary":
					v = 255 * ((noise() >> c) & 1)
				case "flat":
					v = int(seed >> (8 * c))
				default:
					panic("unknown kind of picture " + kind)
				}
				out = append(out, byte(v))
			}
		}
	}
	return out
}

// goldenImages is the folder of the golden pictures: images/ under
// REWARDLOOP_GOLDEN, or under testdata/golden at the root of the repository.
func goldenImages(t *testing.T) string {
	t.Helper()
	root := os.Getenv("REWARDLOOP_GOLDEN")
	if root == "" {
		root = filepath.Join("..", "..", "testdata", "golden")
	}
	dir := filepath.Join(root, "images")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no golden pictures: %s does not exist (set REWARDLOOP_GOLDEN)", dir)
	}
	return dir
}

func readLines[T any](t *testing.T, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var rows []T
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var row T
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row), "%s line %d", path, len(rows)+1)
		rows = append(rows, row)
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, rows, path)
	return rows
}

// readPNG returns the picture as tight RGB bytes; the golden PNGs are opaque.
func readPNG(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	rgba := image.NewNRGBA(img.Bounds())
	draw.Draw(rgba, rgba.Rect, img, img.Bounds().Min, draw.Src)
	rgb := make([]byte, 0, len(rgba.Pix)/4*3)
	for p := 0; p < len(rgba.Pix); p += 4 {
		rgb = append(rgb, rgba.Pix[p:p+3]...)
	}
	return rgb
}
