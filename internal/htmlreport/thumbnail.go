package htmlreport

import (
	"context"
	"encoding/base64"
	"fmt"
	"html/template"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// Strip contains the pictures of a sample, or some frames of its video, as small JPEG files.
type Strip struct {
	JPEGs [][]byte
	// Video means that the pictures are frames of a video. Of is the total number of pictures or
	// frames.
	Video bool
	Of    int
	// Lost is the reason why there are no pictures.
	Lost string
}

// The size of a picture that stands alone, of one of several, and how many these are at most.
const (
	sideAlone  = 384
	sideOfMany = 192
	maxStrip   = 6
	quality    = 80
)

// Pictures returns a strip of the media of a sample, with some frames from the first to the last
// for a video. If a medium cannot be decoded, the strip contains the reason.
func Pictures(ctx context.Context, decoder rewards.Decoder, all []*rewards.Media) Strip {
	var s Strip
	var shown []*rewards.Media
	for _, m := range all {
		if m.Kind == rewards.Audio {
			continue
		}
		if m.Kind == rewards.Video && m.Encoding == rewards.Frames {
			s.Video = true
			s.Of += len(m.Frames)
			n := min(len(m.Frames), maxStrip)
			for i := range n {
				at := 0
				if n > 1 {
					at = i * (len(m.Frames) - 1) / (n - 1)
				}
				shown = append(shown, &rewards.Media{Kind: rewards.Image, Encoding: rewards.Frames, DType: "U8", Frames: m.Frames[at : at+1]})
			}
			continue
		}
		s.Of++
		shown = append(shown, m)
	}
	if chooser, ok := decoder.(rewards.Chooser); ok && len(shown) == 1 && s.Of == 1 && shown[0].Encoding.OfVideo() {
		return s.film(ctx, chooser, shown[0])
	}
	side := sideAlone
	if len(shown) > 1 {
		side = sideOfMany
	}
	for _, m := range shown[:min(len(shown), maxStrip)] {
		jpeg, err := thumbnail(ctx, decoder, m, side)
		if err != nil {
			s.Lost = fmt.Sprintf("The picture cannot be shown: %v", err)
			return s
		}
		s.JPEGs = append(s.JPEGs, jpeg)
	}
	return s
}

// film shows some frames of a video's file.
func (s Strip) film(ctx context.Context, decoder rewards.Chooser, m *rewards.Media) Strip {
	p, err := decoder.DecodeFrames(ctx, m, rewards.EvenFrames(maxStrip))
	if err != nil {
		s.Lost = fmt.Sprintf("The video cannot be shown: %v", err)
		return s
	}
	if p.Keeper != nil {
		defer p.Keeper.Release()
	}
	s.Video, s.Of = true, p.Total
	for i := range p.Count {
		jpeg, err := small(p, i, sideOfMany)
		if err != nil {
			s.Lost = fmt.Sprintf("The video cannot be shown: %v", err)
			return s
		}
		s.JPEGs = append(s.JPEGs, jpeg)
	}
	return s
}

// thumbnail is a picture of which no side is longer than side, as a JPEG file.
func thumbnail(ctx context.Context, decoder rewards.Decoder, m *rewards.Media, side int) ([]byte, error) {
	p, err := decoder.Decode(ctx, m)
	if err != nil {
		return nil, err
	}
	if p.Keeper != nil {
		defer p.Keeper.Release()
	}
	return small(p, 0, side)
}

// small is a frame of which no side is longer than side, as a JPEG file.
func small(p *rewards.Pixels, frame, side int) ([]byte, error) {
	width, height := media.Fit(p.Width, p.Height, side)
	return media.EncodeJPEG(media.Resize(&rewards.Pixels{Width: p.Width, Height: p.Height, Count: 1, RGB: p.Frame(frame)}, width, height, media.Lanczos), 0, quality)
}

// jpegURL is a JPEG file inside of the page. It is made of pixels here, so that it is one.
func jpegURL(jpeg []byte) template.URL {
	return template.URL("data:image/jpeg;base64," + base64.StdEncoding.EncodeToString(jpeg)) //nolint:gosec // base64 has no character to escape
}
