package main

import (
	"bytes"
	"context"
	"image"
	stdjpeg "image/jpeg"
	"math"
	"math/rand/v2"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/jpeg"
)

// jpegSize is the reward that needs no model: what a picture's JPEG would weigh.
func jpegSize() Suite {
	return Suite{
		Name: "jpeg",
		About: "The size counter behind the rewards jpeg_compressibility and jpeg_incompressibility on one 512×512 picture with one " +
			"goroutine, against the encoder of the standard library at the same quality.",
		Experiments: []Experiment{{
			Name: "jpeg512", Setup: newJPEGTrial, Calibrations: []string{"bare_per_s"},
			Rows: []Row{
				{Name: "time", Unit: "ms", Value: reading("ours_ms"), Beside: []string{"bare_ms", othersCores}},
				{Name: "ratio", Value: ratio("ours_per_s", "bare_per_s")},
			},
		}},
	}
}

type jpegTrial struct {
	scorer  *jpeg.Scorer
	sample  *rewards.Sample
	picture *image.RGBA
	buf     bytes.Buffer
	lasting time.Duration
	profile string
}

func newJPEGTrial(_ context.Context, o Options) (Trial, error) {
	s, err := jpeg.New(jpeg.Config{})
	if err != nil {
		return nil, err
	}
	t := &jpegTrial{scorer: s, picture: picture(512), lasting: o.Lasting, profile: o.Profile}
	rgb := make([]byte, 0, 3*512*512)
	for i := 0; i < len(t.picture.Pix); i += 4 {
		rgb = append(rgb, t.picture.Pix[i:i+3]...)
	}
	m := &rewards.Media{Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{512, 512, 3}, Data: rgb}
	m.SetDecoder(pixels(rgb))
	t.sample = &rewards.Sample{ID: "picture", Media: []*rewards.Media{m}}
	return t, nil
}

// pixels is a decoder that has its answer ready.
type pixels []byte

// Decode implements rewards.Decoder.
func (p pixels) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	return &rewards.Pixels{Width: 512, Height: 512, Count: 1, RGB: p}, nil
}

// picture is smooth with some grain, as a generated one is.
func picture(side int) *image.RGBA {
	rng := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // a picture, not a secret
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	for y := range side {
		for x := range side {
			at := img.PixOffset(x, y)
			for c := range 3 {
				v := 128 + 70*math.Sin(float64(x*(c+1))/40) + 40*math.Cos(float64(y)/25) + 8*rng.NormFloat64()
				img.Pix[at+c] = uint8(min(max(v, 0), 255))
			}
			img.Pix[at+3] = 255
		}
	}
	return img
}

// Measure implements Trial.
func (t *jpegTrial) Measure(ctx context.Context, rep int) (Readings, error) {
	r := Readings{}
	ours := func() error {
		_, err := t.scorer.Score(ctx, t.sample)
		return err
	}
	bare := func() error {
		t.buf.Reset()
		return stdjpeg.Encode(&t.buf, t.picture, &stdjpeg.Options{Quality: 95})
	}
	measure := func(side string, f func() error) error {
		n, start, before := 0, time.Now(), used()
		for time.Since(start) < t.lasting {
			if err := f(); err != nil {
				return err
			}
			n++
		}
		r[side+"_ms"] = time.Since(start).Seconds() * 1e3 / float64(n)
		r[side+"_per_s"] = 1e3 / r[side+"_ms"]
		r[othersCores] = max(r[othersCores], outcome{took: time.Since(start), used: used().since(before)}.others())
		return nil
	}
	err := profiled(t.profile, "jpeg512", rep, func() error { return measure("ours", ours) })
	if err == nil {
		err = measure("bare", bare)
	}
	return r, err
}

// Close implements Trial.
func (t *jpegTrial) Close() error { return nil }
