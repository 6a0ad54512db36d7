package imageproc_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"image"
	"image/draw"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/imageproc"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// goldenFolder is the folder of pictures of the golden data: the repository's, or that
// below the folder named by REWARDLOOP_GOLDEN.
func goldenFolder() string {
	dir := os.Getenv("REWARDLOOP_GOLDEN")
	if dir == "" {
		dir = filepath.Join("..", "..", "testdata", "golden")
	}
	return filepath.Join(dir, "images")
}

// load reads a PNG.
func load(t *testing.T, path string) *rewards.Pixels {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	px := &rewards.Pixels{Width: img.Bounds().Dx(), Height: img.Bounds().Dy(), Count: 1}
	plain := image.NewNRGBA(image.Rect(0, 0, px.Width, px.Height))
	draw.Draw(plain, plain.Rect, img, img.Bounds().Min, draw.Src)
	for i := 0; i < len(plain.Pix); i += 4 {
		px.RGB = append(px.RGB, plain.Pix[i:i+3]...)
	}
	return px
}

// close1 wants every byte within 1 level, and returns how many differ at all.
func close1(t *testing.T, want, got []byte) int {
	t.Helper()
	require.Len(t, got, len(want))
	differ := 0
	for i, w := range want {
		d := int(w) - int(got[i])
		if d == 0 {
			continue
		}
		differ++
		if d < -1 || d > 1 {
			require.Failf(t, "more than 1 level off", "byte %d of %d: want %d, got %d", i, len(want), w, got[i])
		}
	}
	return differ
}

// golden is testdata/index.json, which models/export/golden_pixels.py wrote.
type golden struct {
	MadeWith    map[string]string `json:"made_with"`
	Cases       []goldenCase      `json:"cases"`
	SmartResize [][]int           `json:"smart_resize"`
	Idefics3    [][]int           `json:"idefics3"`
	Shortest    [][]int           `json:"shortest"`
	Longest     [][]int           `json:"longest"`
}

type goldenCase struct {
	Name, Image, File, Kind string
	Offset                  int
	Shape                   []int
	Config                  json.RawMessage
	Filter                  imageproc.Filter
	Size                    int
	Split                   bool
	Rows, Cols              int
	Grid                    []int
}

func readGolden(t *testing.T) golden {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "index.json"))
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(data, &g))
	require.NotEmpty(t, g.Cases)
	return g
}

// path of the case's picture: this package's, or one of the golden data.
func (c goldenCase) path(t *testing.T) string {
	t.Helper()
	if strings.HasPrefix(c.Image, "img_") {
		return filepath.Join(goldenFolder(), c.Image)
	}
	return filepath.Join("testdata", c.Image)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// want are the bytes that the reference made.
func (c goldenCase) want(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", c.File))
	require.NoError(t, err)
	n := infer.Elements(c.Shape)
	if strings.HasSuffix(c.File, ".f32") {
		n *= 4
	}
	require.GreaterOrEqual(t, len(data), c.Offset+n)
	return data[c.Offset : c.Offset+n]
}

// got is what this package makes of the picture, and in the form of the reference.
func (c goldenCase) got(t *testing.T, px *rewards.Pixels) infer.Tensor {
	t.Helper()
	switch c.Kind {
	case "classic":
		r, err := imageproc.FromPreprocessor(c.Config)
		require.NoError(t, err)
		return c.apply(t, r, px)
	case "longest":
		r := imageproc.Recipe{
			Steps: []imageproc.Step{
				{Op: imageproc.OpResizeLongest, Size: c.Size, Filter: imageproc.Bicubic},
				{Op: imageproc.OpPad, Width: c.Size, Height: c.Size},
			},
			Rescale: 1, Mean: []float32{0, 0, 0}, Std: []float32{1, 1, 1},
		}
		require.NoError(t, r.Validate())
		return c.apply(t, r, px)
	case "resize":
		p := imageproc.Resize(&imageproc.Picture{Width: px.Width, Height: px.Height, RGB: px.RGB}, c.Shape[1], c.Shape[0], c.Filter)
		return infer.Tensor{DType: infer.U8, Shape: []int{p.Height, p.Width, 3}, U8: p.RGB}
	case "idefics3":
		p, err := imageproc.ParseIdefics3(c.Config, []byte(`{"image_seq_len": 64}`))
		require.NoError(t, err)
		require.Equal(t, 64, p.SeqLen)
		tiles, err := p.Tiles(px, 0, c.Split)
		require.NoError(t, err)
		require.Equal(t, []int{c.Rows, c.Cols}, []int{tiles.Rows, tiles.Cols})
		return p.Tensor("pixel_values", tiles)
	case "qwen2vl":
		p, err := imageproc.ParseQwen2VL(c.Config)
		require.NoError(t, err)
		patches, err := p.Patches(px, 0)
		require.NoError(t, err)
		grid := []int{patches.GridT, patches.GridH, patches.GridW}
		require.Equal(t, c.Grid, grid)
		return p.Tensor("pixel_values", patches)
	}
	require.Fail(t, "unknown kind", c.Kind)
	return infer.Tensor{}
}

// apply runs a recipe. The reference of bytes has the channels last, that of floats first.
func (c goldenCase) apply(t *testing.T, r imageproc.Recipe, px *rewards.Pixels) infer.Tensor {
	t.Helper()
	p, err := r.Apply(px, 0)
	require.NoError(t, err)
	if strings.HasSuffix(c.File, ".f32") {
		return r.Tensor("pixel_values", p)
	}
	return infer.Tensor{DType: infer.U8, Shape: []int{p.Height, p.Width, 3}, U8: p.RGB}
}

func TestGoldenProcessorsAgreeWithThoseOfPython(t *testing.T) {
	t.Parallel()
	cases := readGolden(t).Cases
	pictures := map[string]*rewards.Pixels{}
	for _, c := range cases {
		if path := c.path(t); pictures[c.Image] == nil && exists(path) {
			pictures[c.Image] = load(t, path)
		}
	}
	for _, c := range cases {
		t.Run(c.Name+"/"+c.Image, func(t *testing.T) {
			t.Parallel()
			px := pictures[c.Image]
			if px == nil {
				t.Skipf("SKIPPED: the golden data has no %s", c.Image)
			}
			got := c.got(t, px)
			require.NoError(t, got.Check())
			require.Equal(t, c.Shape, got.Shape)
			if strings.HasSuffix(c.File, ".f32") {
				wantFloats(t, c.want(t), got)
				return
			}
			if n := close1(t, c.want(t), got.U8); n > 0 {
				t.Logf("%d of %d bytes are 1 level off", n, len(got.U8))
			}
		})
	}
}

// wantFloats wants the normalised values of the reference.
func wantFloats(t *testing.T, want []byte, got infer.Tensor) {
	t.Helper()
	table := got.Norm.Table()
	for i, v := range got.U8 {
		w := math.Float32frombits(binary.LittleEndian.Uint32(want[4*i:]))
		require.InDelta(t, w, table[i/got.Norm.Inner%3][v], 1e-6, "value %d", i)
	}
}

func TestGoldenPicturesAgreeWithPIL(t *testing.T) {
	t.Parallel()
	dir := goldenFolder()
	index, err := os.ReadFile(filepath.Join(dir, "index.jsonl"))
	if err != nil {
		t.Skipf("SKIPPED: the golden data has no index of its images: %v", err)
	}
	clip, err := imageproc.FromPreprocessor([]byte(`{"image_processor_type": "CLIPImageProcessor"}`))
	require.NoError(t, err)
	seen := 0
	for lines := bufio.NewScanner(bytes.NewReader(index)); lines.Scan(); {
		var row struct{ Image string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
		path := filepath.Join(dir, row.Image)
		if !exists(path) {
			t.Logf("SKIPPED: the golden data has no %s", row.Image)
			continue
		}
		px := load(t, path)
		for suffix, get := range map[string]func() *imageproc.Picture{
			".clip224.rgb": func() *imageproc.Picture {
				p, err := clip.Apply(px, 0)
				require.NoError(t, err)
				return p
			},
			".bilinear144x48.rgb": func() *imageproc.Picture {
				return imageproc.Resize(&imageproc.Picture{Width: px.Width, Height: px.Height, RGB: px.RGB}, 144, 48, imageproc.Bilinear)
			},
		} {
			name := strings.TrimSuffix(path, ".png") + suffix
			want, err := os.ReadFile(name)
			if err != nil {
				t.Logf("SKIPPED: %v", err)
				continue
			}
			if n := close1(t, want, get().RGB); n > 0 {
				t.Logf("%s: %d of %d bytes are 1 level off", filepath.Base(name), n, len(want))
			}
			seen++
		}
	}
	if seen == 0 {
		t.Skip("SKIPPED: the golden data has no resized images")
	}
}

func TestGoldenSizesAgreeWithThoseOfPython(t *testing.T) {
	t.Parallel()
	g := readGolden(t)
	require.NotEmpty(t, g.SmartResize)
	for _, row := range g.SmartResize {
		h, w, err := imageproc.SmartResize(row[0], row[1], 28, row[2], row[3])
		if row[4] == 0 {
			require.ErrorIs(t, err, rewards.BadInput, "%v", row)
			continue
		}
		require.NoError(t, err)
		got := []int{h, w}
		require.Equal(t, row[4:], got, "%v", row)
	}
	for _, row := range g.Idefics3 {
		w, h := imageproc.LongestSize(imageproc.Idefics3{LongestEdge: row[2]}, row[1], row[0])
		got := []int{h, w}
		require.Equal(t, row[3:], got, "%v", row)
	}
	for op, rows := range map[string][][]int{imageproc.OpResizeShortest: g.Shortest, imageproc.OpResizeLongest: g.Longest} {
		require.NotEmpty(t, rows)
		for _, row := range rows {
			w, h, err := imageproc.TargetSize(imageproc.Step{Op: op, Size: row[2]}, row[1], row[0])
			if max(row[3], row[4]) > imageproc.MaxSide || min(row[3], row[4]) < 1 {
				require.ErrorIs(t, err, rewards.BadInput, "%s %v", op, row)
				continue
			}
			require.NoError(t, err)
			got := []int{h, w}
			require.Equal(t, row[3:], got, "%s %v", op, row)
		}
	}
}
