package plot_test

import (
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// texts reads an SVG file as XML and returns what is written in it.
func texts(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var out []string
	for d := xml.NewDecoder(f); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		if s, ok := tok.(xml.CharData); ok && strings.TrimSpace(string(s)) != "" {
			out = append(out, strings.TrimSpace(string(s)))
		}
	}
}

// drawn writes a picture as SVG and as PNG, and returns what is written in the first.
func drawn(t *testing.T, write func(file string) error) []string {
	t.Helper()
	dir := t.TempDir()
	svg, raster := filepath.Join(dir, "p.svg"), filepath.Join(dir, "p.png")
	require.NoError(t, write(svg))
	require.NoError(t, write(raster))
	f, err := os.Open(raster)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	_, err = png.Decode(f)
	require.NoError(t, err)
	again := filepath.Join(dir, "again.svg")
	require.NoError(t, write(again))
	first, err := os.ReadFile(svg)
	require.NoError(t, err)
	second, err := os.ReadFile(again)
	require.NoError(t, err)
	require.Equal(t, string(first), string(second), "the same data gives the same bytes")
	return texts(t, svg)
}
