package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// The video that is timed: frames and their side.
const (
	videoFrames = 16
	videoSide   = 512
)

// film makes a raw THWC video of golden pictures of 512x512, and a sample of it.
func film(pictures []picture) (*rewards.Sample, error) {
	var data []byte
	frames := 0
	pictures = slices.Concat(pictures, pictures) // a quick run has fewer than a video has frames
	for _, p := range pictures {
		if p.Kind == golden && p.px.Width == videoSide && p.px.Height == videoSide && frames < videoFrames {
			data = append(data, p.px.Frame(0)...)
			frames++
		}
	}
	if frames < videoFrames {
		return nil, fmt.Errorf("only %d golden pictures of %d pixels square, a video has %d frames", frames, videoSide, videoFrames)
	}
	decoder, err := media.New(media.Config{})
	if err != nil {
		return nil, err
	}
	m := &rewards.Media{
		Kind: rewards.Video, Layout: rewards.THWC, Encoding: rewards.Raw, DType: "U8",
		Shape: []int{frames, videoSide, videoSide, 3}, Data: data,
	}
	m.SetDecoder(decoder)
	return &rewards.Sample{ID: "film", Prompt: `A sign that says "Opal Bookshop"`, Media: []*rewards.Media{m}}, nil
}

// watch scores the video as often as there are repetitions, every frame of it, one
// video at a time, and returns frames a second.
func (b *bench) watch(ctx context.Context, pictures []picture, repetitions int) ([]float64, error) {
	sample, err := film(pictures)
	if err != nil {
		return nil, err
	}
	o, err := ocr.Preset(ocr.FlowGRPOVideo)
	if err != nil {
		return nil, err
	}
	o.FrameInterval = 1
	scorer, err := ocr.New(b.fast.reader, o)
	if err != nil {
		return nil, err
	}
	var rates []float64
	for range repetitions {
		begin := time.Now()
		score, err := scorer.Score(ctx, sample)
		if err != nil {
			return nil, err
		}
		if score.Details["frames_read"] != videoFrames {
			return nil, errors.New("not every frame was read")
		}
		rates = append(rates, videoFrames/time.Since(begin).Seconds())
	}
	return rates, nil
}
