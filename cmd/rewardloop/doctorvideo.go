package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color/palette"
	"image/gif"
	"time"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
)

// videos decodes a clip of two frames with the ffmpeg that the configuration means, in the confinement that serve has.
func (x *exam) videos(ctx context.Context) check {
	c := check{Name: "ffmpeg", State: stateOK}
	if x.cfg.Pool.Decode.FFmpeg == media.FFmpegOff {
		c.Detail = "pool.decode.ffmpeg is off: files of videos and FLAC are refused"
		return c
	}
	const advice = "mp4, webm, gif and flac files need ffmpeg; on Debian: apt-get install ffmpeg"
	path, err := x.cfg.Pool.Decode.FFmpegPath()
	if err == nil && path == "" {
		c.State, c.Detail, c.Advice = stateWarn, "ffmpeg is not on PATH", advice
		return c
	}
	begun := time.Now()
	if err == nil {
		err = x.decodeClip(ctx)
	}
	if err != nil {
		c.State, c.Detail, c.Advice = stateMissing, path+": "+err.Error(), advice+", or set pool.decode.ffmpeg to another program"
		return c
	}
	c.Detail = fmt.Sprintf("%s decoded a clip of 2 frames in %d ms", path, time.Since(begun).Milliseconds())
	return c
}

func (x *exam) decodeClip(ctx context.Context) error {
	clip := gif.GIF{Delay: []int{10, 10}}
	for range 2 {
		clip.Image = append(clip.Image, image.NewPaletted(image.Rect(0, 0, 16, 16), palette.Plan9))
	}
	var file bytes.Buffer
	if err := gif.EncodeAll(&file, &clip); err != nil {
		return err
	}
	decoder, err := node.NewDecoder(x.cfg.Pool.Decode)
	if err != nil {
		return err
	}
	m := &rewards.Media{Kind: rewards.Video, Encoding: rewards.GIF, DType: "U8", Shape: []int{file.Len()}, Data: file.Bytes()}
	m.SetDecoder(decoder)
	defer m.Forget()
	px, err := m.Pixels(ctx)
	if err != nil {
		return err
	}
	if px.Count != 2 || px.Width != 16 || px.Height != 16 {
		return fmt.Errorf("a clip of 2 frames of 16 × 16 pixels was decoded to %d of %d × %d", px.Count, px.Width, px.Height)
	}
	return nil
}
