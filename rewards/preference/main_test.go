package preference_test

import (
	"context"
	"image/png"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/preference"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

func TestMain(m *testing.M) { onnx.Main(m) }

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
	if _, err := os.Stat(path); err != nil {
		tb.Skipf("SKIPPED: no golden pictures: %v", err)
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
	return media.ToRGB(img), nil
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
