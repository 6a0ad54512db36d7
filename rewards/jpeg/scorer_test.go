package jpeg_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/jpeg"
)

// pixelsOf is a decoder that has the pixels already.
type pixelsOf struct {
	px  *rewards.Pixels
	err error
}

func (d pixelsOf) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	return d.px, d.err
}

func sampleOf(d pixelsOf) *rewards.Sample {
	m := &rewards.Media{Kind: rewards.Image}
	m.SetDecoder(d)
	return &rewards.Sample{ID: "s1", Media: []*rewards.Media{m}}
}

func scorer(t *testing.T, name, options string) rewards.Scorer {
	t.Helper()
	s, err := registry().Build(name, json.RawMessage(options))
	require.NoError(t, err)
	return s
}

func registry() *rewards.Registry {
	var r rewards.Registry
	for _, s := range jpeg.Specs() {
		r.Register(s)
	}
	return &r
}

// The scores are computed in the reference's order, so even the last bit of the
// doubles is held.
func TestGoldenScoresEqualFlowGRPO(t *testing.T) {
	t.Parallel()
	dir := goldenImages(t)
	smooth, detailed := scorer(t, "jpeg_compressibility", ""), scorer(t, "jpeg_incompressibility", "")
	for _, row := range readLines[goldenRow](t, filepath.Join(dir, "index.jsonl")) {
		s := sampleOf(pixelsOf{px: &rewards.Pixels{
			Width: row.Width, Height: row.Height, Count: 1, RGB: readPNG(t, filepath.Join(dir, row.Image)),
		}})
		got, err := smooth.Score(t.Context(), s)
		require.NoError(t, err)
		assert.Equal(t, math.Float64bits(row.Compressibility), math.Float64bits(got.Value), row.Image)
		got, err = detailed.Score(t.Context(), s)
		require.NoError(t, err)
		assert.Equal(t, math.Float64bits(row.Incompressibility), math.Float64bits(got.Value), row.Image)
		assert.Equal(t, map[string]any{"jpeg_bytes": row.Bytes}, got.Details)
		assert.Empty(t, got.Extra)
	}
}

func TestScorersTakeTheScaleThatWasConfigured(t *testing.T) {
	t.Parallel()
	rgb := picture("blobs", 3, 40, 30)
	bytes := func(quality int) float64 {
		n, err := jpeg.Size(rgb, 40, 30, quality)
		require.NoError(t, err)
		return float64(n)
	}
	for _, c := range []struct {
		name, options string
		want          float64
	}{
		{"jpeg_compressibility", ``, -bytes(95) / 1000 / 500},
		{"jpeg_compressibility", `{}`, -bytes(95) / 1000 / 500},
		{"jpeg_compressibility", `{"preset":"verl_omni"}`, -bytes(95) / 1000 / 500},
		{"jpeg_compressibility", `{"preset":"ddpo_pytorch"}`, -bytes(95) / 1000},
		{"jpeg_compressibility", `{"divisor":8,"quality":60}`, -bytes(60) / 1000 / 8},
		{"jpeg_incompressibility", ``, bytes(95) / 1000},
		{"jpeg_incompressibility", `{"quality":50,"divisor":0.5}`, bytes(50) / 1000 / 0.5},
	} {
		got, err := scorer(t, c.name, c.options).Score(t.Context(),
			sampleOf(pixelsOf{px: &rewards.Pixels{Width: 40, Height: 30, Count: 1, RGB: rgb}}))
		require.NoError(t, err)
		assert.InDelta(t, c.want, got.Value, 1e-15, "%s %s", c.name, c.options)
	}
}

func TestOptionsAreRefusedWithEveryFaultNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, options string
		says          []string
	}{
		{"jpeg_compressibility", `{"quality":0,"divisor":-1}`, []string{"quality is 0", "divisor is -1"}},
		{"jpeg_compressibility", `{"quality":101,"preset":"dalle"}`, []string{"quality is 101", `unknown preset "dalle"`, "ddpo_pytorch"}},
		{"jpeg_compressibility", `{"preset":"verl_omni","divisor":0}`, []string{"keep one", "divisor is 0"}},
		{"jpeg_incompressibility", `{"divisor":0}`, []string{"divisor is 0"}},
		{"jpeg_incompressibility", `{"preset":"flow_grpo"}`, []string{"unknown option"}},
		{"jpeg_incompressibility", `{"quality":"95"}`, []string{"options"}},
	} {
		_, err := registry().Build(c.name, json.RawMessage(c.options))
		require.Error(t, err, c.options)
		for _, part := range c.says {
			require.ErrorContains(t, err, part, c.options)
		}
	}
	_, err := jpeg.New(jpeg.Config{Quality: -1, Divisor: math.NaN()})
	require.ErrorContains(t, err, "quality is -1")
	assert.ErrorContains(t, err, "divisor is NaN")
}

func TestEverySpecDocumentsItsOptions(t *testing.T) {
	t.Parallel()
	for _, s := range jpeg.Specs() {
		assert.NotEmpty(t, s.Summary)
		for _, o := range s.Options {
			assert.NotEmpty(t, o.Doc, "%s %s", s.Name, o.Name)
		}
	}
}

func TestAVideoIsScoredByItsFirstFrame(t *testing.T) {
	t.Parallel()
	first, second := picture("blobs", 3, 24, 24), picture("noise", 4, 24, 24)
	s, err := jpeg.New(jpeg.Config{})
	require.NoError(t, err)
	still, err := s.Score(t.Context(), sampleOf(pixelsOf{px: &rewards.Pixels{Width: 24, Height: 24, Count: 1, RGB: first}}))
	require.NoError(t, err)
	video, err := s.Score(t.Context(), sampleOf(pixelsOf{px: &rewards.Pixels{
		Width: 24, Height: 24, Count: 2, RGB: append(append([]byte{}, first...), second...),
	}}))
	require.NoError(t, err)
	assert.Equal(t, still, video)
}

func TestASampleThatNobodyCanMeasureIsABadInput(t *testing.T) {
	t.Parallel()
	s, err := jpeg.New(jpeg.Config{})
	require.NoError(t, err)
	for name, sample := range map[string]*rewards.Sample{
		"text only":   {ID: "s1"},
		"no frame":    sampleOf(pixelsOf{px: &rewards.Pixels{Width: 8, Height: 8}}),
		"no width":    sampleOf(pixelsOf{px: &rewards.Pixels{Height: 8, Count: 1}}),
		"too long":    sampleOf(pixelsOf{px: &rewards.Pixels{Width: 65501, Height: 1, Count: 1, RGB: make([]byte, 3*65501)}}),
		"undecodable": sampleOf(pixelsOf{err: errors.Join(rewards.BadInput, errors.New("not a picture"))}),
	} {
		_, err := s.Score(t.Context(), sample)
		require.Error(t, err, name)
		assert.Equal(t, rewards.BadInput, rewards.ClassOf(err), name)
		assert.ErrorContains(t, err, `"s1"`, name)
	}
}

// A 100-megapixel picture takes about two seconds; a cancelled sample must not
// keep its core that long.
func TestACancelledSampleStopsBetweenTwoRows(t *testing.T) {
	t.Parallel()
	s, err := jpeg.New(jpeg.Config{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	sample := sampleOf(pixelsOf{px: &rewards.Pixels{Width: 64, Height: 64, Count: 1, RGB: picture("noise", 1, 64, 64)}})
	_, err = sample.Media[0].Pixels(ctx)
	require.NoError(t, err)
	cancel()
	_, err = s.Score(ctx, sample)
	assert.Equal(t, rewards.Cancelled, rewards.ClassOf(err))
}
