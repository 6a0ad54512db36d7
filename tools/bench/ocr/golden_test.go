package main

import (
	"bufio"
	"context"
	"encoding/json"
	"image/jpeg"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr"
)

// TestMain lets the test's own children be what they are asked to be.
func TestMain(m *testing.M) {
	if code, child := subprocess.Main(os.Args[1:], ort.Kinds()...); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// missing skips a test that cannot run here, loudly, or fails it where it has to.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("REQUIRE_ORT") == "1" {
		require.NoError(t, err, "REQUIRE_ORT=1")
	}
	t.Skipf("SKIPPED: %v", err)
}

// goldenPictures are every nth of testdata/golden/ocr, or of the folder named by
// REWARDLOOP_GOLDEN.
func goldenPictures(t *testing.T, step int) []picture {
	t.Helper()
	dir := os.Getenv("REWARDLOOP_GOLDEN")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "testdata", "golden")
	}
	dir = filepath.Join(dir, "ocr")
	f, err := os.Open(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		t.Skipf("SKIPPED: the golden data has no pictures: %v", err)
	}
	defer f.Close()
	var out []picture
	for i, sc := 0, bufio.NewScanner(f); sc.Scan(); i++ {
		if i%step != 0 {
			continue
		}
		var row struct{ Image, Prompt, Rendered string }
		require.NoError(t, json.Unmarshal(sc.Bytes(), &row))
		img, err := os.Open(filepath.Join(dir, row.Image))
		require.NoError(t, err)
		decoded, err := jpeg.Decode(img)
		require.NoError(t, err)
		require.NoError(t, img.Close())
		out = append(out, picture{File: row.Image, Kind: golden, Prompt: row.Prompt, Rendered: row.Rendered, px: media.ToRGB(decoded)})
	}
	require.NotEmpty(t, out)
	return out
}

// TestGoldenPicturesAreReadAsTheyAreWritten reads pictures with real models on the
// pool of production, in both modes and from several goroutines.
func TestGoldenPicturesAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it runs models")
	}
	s := settings{model: ocr.DefaultModel}
	if err := s.find(); err != nil {
		missing(t, err)
	}
	e, err := open(s.det, s.rec, t.TempDir())
	if err != nil {
		missing(t, err)
	}
	defer func() { require.NoError(t, e.close()) }()
	pictures := goldenPictures(t, 8)
	for _, mode := range []ppocr.Mode{ppocr.Parity, ppocr.Fast} {
		o, err := newOurs(t.Context(), ppocr.Config{Mode: mode}, e)
		require.NoError(t, err)
		defer func() { require.NoError(t, o.reader.Close()) }()
		_, lines, err := o.read(t.Context(), pictures)
		require.NoError(t, err)
		var f fidelity
		for i, p := range pictures {
			require.NoError(t, f.add(p, lines[i]))
		}
		t.Logf("%s: %d of %d rewards exact, mean error %.4f", mode, f.exact, f.pictures, f.mean())
		assert.Equal(t, len(pictures), f.pictures, "%s", mode)
		assert.LessOrEqual(t, f.mean(), .03, "%s", mode)
		assert.GreaterOrEqual(t, f.share(), .9, "%s", mode)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = o.read(ctx, pictures[:1])
		require.ErrorIs(t, err, context.Canceled)
	}
}

// TestFoldedModelsReadAsTheirSources compares what the same pictures give.
func TestFoldedModelsReadAsTheirSources(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it runs models")
	}
	s := settings{model: ocr.DefaultModel}
	if err := s.find(); err != nil {
		missing(t, err)
	}
	pictures := goldenPictures(t, 16)
	var read [2][][]line
	for i, folder := range []string{"", t.TempDir()} {
		e, err := open(s.det, s.rec, folder)
		if err != nil {
			missing(t, err)
		}
		o, err := newOurs(t.Context(), ppocr.Config{}, e)
		require.NoError(t, err)
		_, read[i], err = o.read(t.Context(), pictures)
		require.NoError(t, err)
		require.NoError(t, o.reader.Close())
		require.NoError(t, e.close())
	}
	var all tally
	for i, p := range pictures {
		require.NoError(t, all.add(p, read[0][i], read[1][i]))
	}
	assert.Positive(t, all.lines)
	assert.Equal(t, all.lines, all.texts)
	assert.Equal(t, all.lines, all.corners)
}
