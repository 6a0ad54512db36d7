package preference_test

import (
	"context"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/slot"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/preference"
)

// TestMain makes the test binary its own child process.
func TestMain(m *testing.M) {
	if code, child := slot.Main(os.Args[1:], ort.Kinds()...); child {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// root is the repository's, seen from here.
var root = filepath.Join("..", "..")

// folder is that of a tiny model.
func folder(tb testing.TB, name string) string {
	tb.Helper()
	dir := filepath.Join(root, "testdata", "models", name)
	if _, err := os.Stat(filepath.Join(dir, preference.SidecarFile)); err != nil {
		tb.Skipf("SKIPPED: no tiny model: %v; models/export/tiny_preference.py makes it", err)
	}
	return dir
}

// library finds ONNX Runtime. Without it the test is skipped, or fails where REQUIRE_ORT=1
// says that it has to be there.
func library(tb testing.TB) ort.Library {
	tb.Helper()
	configured := ""
	if os.Getenv(ort.LibraryEnv) == "" {
		if dir := filepath.Join(root, ".cache", "ort", "1.29.0"); exists(dir) { // the clone's own copy
			configured = dir
		}
	}
	lib, err := ort.Find(configured)
	if err != nil && os.Getenv("REQUIRE_ORT") == "1" {
		tb.Fatalf("REQUIRE_ORT=1: %v", err)
	}
	if err != nil {
		tb.Skipf("SKIPPED: %v", err)
	}
	return lib
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// pooled are the models of a pool.
type pooled struct{ *pool.Pool }

func (p pooled) Net(m infer.Model) (infer.Net, error) { return p.Model(m, pool.ModelOptions{}) }

// runtime opens a pool on the CPU with ONNX Runtime.
func runtime(tb testing.TB, isolation ort.Isolation) pooled {
	tb.Helper()
	opener, err := ort.NewOpener(ort.Config{Library: library(tb).Path, Slots: 1, Isolation: isolation})
	require.NoError(tb, err)
	p, err := pool.New(pool.Config{}, opener)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, p.Close(context.Background())) })
	return pooled{p}
}

// decoded hands out pixels that are there already.
type decoded struct{ px *rewards.Pixels }

func (d decoded) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) { return d.px, nil }

// shown is a picture, or a video if it has several frames, as a sample carries it.
func shown(px *rewards.Pixels) *rewards.Media {
	m := &rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw, DType: "U8", Layout: rewards.THWC}
	if px.Count > 1 {
		m.Kind = rewards.Video
	}
	m.SetDecoder(decoded{px})
	return m
}

// plain is a picture of one shade, or a video of several.
func plain(shades ...byte) *rewards.Pixels {
	const side = 40
	px := &rewards.Pixels{Width: side, Height: side, Count: len(shades)}
	for _, s := range shades {
		for i := range side * side * 3 {
			px.RGB = append(px.RGB, s+byte(i%5))
		}
	}
	return px
}

// golden is the picture of a PNG among the golden images, decoded once for all tests.
func golden(tb testing.TB, name string) *rewards.Pixels {
	tb.Helper()
	dir := filepath.Join(root, "testdata", "golden")
	if d := os.Getenv("REWARDLOOP_GOLDEN"); d != "" {
		dir = d
	}
	path := filepath.Join(dir, "images", name)
	if !exists(path) {
		tb.Skipf("SKIPPED: no golden pictures: %s is not there", path)
	}
	once, _ := pictures.LoadOrStore(path, sync.OnceValues(func() (*rewards.Pixels, error) { return decode(path) }))
	px, err := once.(func() (*rewards.Pixels, error))()
	require.NoError(tb, err)
	return px
}

// pictures are the golden ones that were decoded, by path.
var pictures sync.Map

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
	return pixels(img), nil
}

func pixels(img image.Image) *rewards.Pixels {
	b := img.Bounds()
	px := &rewards.Pixels{Width: b.Dx(), Height: b.Dy(), Count: 1, RGB: make([]byte, 0, b.Dx()*b.Dy()*3)}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, bl, _ := img.At(x, y).RGBA()
			px.RGB = append(px.RGB, byte(r>>8), byte(g>>8), byte(bl>>8))
		}
	}
	return px
}

func sample(prompt string, px ...*rewards.Pixels) *rewards.Sample {
	s := &rewards.Sample{ID: "s1", Prompt: prompt}
	for _, p := range px {
		s.Media = append(s.Media, shown(p))
	}
	return s
}

// scorer makes one that finds its model's folder by path.
func scorer(tb testing.TB, nets infer.Nets, name, options string) rewards.Scorer {
	tb.Helper()
	s, err := preference.Build(preference.Specs(preference.Deps{Nets: nets}), name, options)
	require.NoError(tb, err)
	return s
}
