package remote

import (
	"bytes"
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/cpu"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// pictures turns the visual media of a sample into files.
type pictures struct {
	format  rewards.Encoding // JPEG or PNG
	quality int
	video   string // refuse, first_frame or frames
	frames  rewards.FrameChoice
	source  int // place of an edit's source; 0: no edit
}

func newPictures(o *options) pictures {
	return pictures{format: rewards.Encoding(o.ImageFormat), quality: o.Quality, video: o.Video, frames: o.Frames, source: o.SourceImage}
}

// mime is the media type of the files.
func (p pictures) mime() string { return "image/" + string(p.format) }

// maxRequest bounds what the pictures of one sample take, in bytes: a long video of
// large frames belongs into a scorer on this machine.
const maxRequest = 128 << 20

// into fills the item with the sample's result: a picture, or the frames of a
// video, and with the picture an edit began from.
func (p pictures) into(ctx context.Context, it *item, s *rewards.Sample) error {
	result, err := s.Visual()
	if err != nil {
		return err
	}
	if p.source > 0 {
		m, err := visual(s, p.source)
		if err != nil {
			return err
		}
		if it.source, err = p.one(ctx, m, 0); err != nil {
			return err
		}
	}
	if result.Kind == rewards.Video && p.video == "frames" {
		it.frames, err = p.all(ctx, result)
		return err
	}
	if result.Kind == rewards.Video && p.video != "first_frame" {
		return fmt.Errorf("%w: the sample is a video, which the service does not accept; write video: first_frame to send the first frame", rewards.BadInput)
	}
	it.picture, err = p.one(ctx, result, 0)
	return err
}

// visual is the i-th image or video of a sample.
func visual(s *rewards.Sample, i int) (*rewards.Media, error) {
	n := 0
	for _, m := range s.Media {
		if m.Kind != rewards.Image && m.Kind != rewards.Video {
			continue
		}
		if n == i {
			return m, nil
		}
		n++
	}
	return nil, fmt.Errorf("%w: the sample has %d pictures, but source_image is %d", rewards.BadInput, n, i)
}

// one is one frame as a file. What came as a file of the format is sent as it came.
func (p pictures) one(ctx context.Context, m *rewards.Media, frame int) ([]byte, error) {
	switch {
	case m.Encoding == p.format:
		if p.fits(m.Data) {
			return bytes.Clone(m.Data), nil
		}
	case m.Encoding == rewards.Frames && frame < len(m.Frames) && p.fits(m.Frames[frame]):
		return bytes.Clone(m.Frames[frame]), nil
	}
	var file []byte
	err := decoded(ctx, m, p.choice(m), func(v rewards.View) (err error) {
		file, err = p.encode(v.Pixels, v.Places([]int{frame})[0])
		return err
	})
	return file, err
}

// choice is which frames of a media are sent.
func (p pictures) choice(m *rewards.Media) rewards.FrameChoice {
	if m.Kind == rewards.Video && p.video == "frames" {
		return p.frames
	}
	return rewards.FirstFrame()
}

// decoded has a CPU do something with the pixels of a picture.
func decoded(ctx context.Context, m *rewards.Media, frames rewards.FrameChoice, do func(v rewards.View) error) error {
	ctx, done, err := cpu.Take(ctx)
	if err != nil {
		return fmt.Errorf("pixels: %w", err)
	}
	defer done()
	v, giveBack, err := m.BorrowFrames(ctx, frames)
	if err != nil {
		return fmt.Errorf("pixels: %w", err)
	}
	defer giveBack()
	return do(v)
}

// all are the frames of a video as files.
func (p pictures) all(ctx context.Context, m *rewards.Media) ([][]byte, error) {
	var out [][]byte
	total := 0
	frames, err := p.frames.Of(len(m.Frames), m.FPS)
	if m.Encoding != rewards.Frames {
		err = decoded(ctx, m, p.frames, func(v rewards.View) error {
			frames = v.Number
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	n := len(frames)
	for _, i := range frames {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("encoding frame %d of %d as a picture file: %w", i, n, err)
		}
		file, err := p.one(ctx, m, i)
		if err != nil {
			return nil, err
		}
		if total += len(file); total > maxRequest {
			return nil, fmt.Errorf("%w: %d of %d frames have more than %d bytes when encoded", rewards.BadInput, len(out)+1, n, maxRequest)
		}
		out = append(out, file)
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: the video has no frames", rewards.BadInput)
	}
	return out, nil
}

// fits reports whether data begins as a file of the format does.
func (p pictures) fits(data []byte) bool {
	if p.format == rewards.JPEG {
		return bytes.HasPrefix(data, []byte{0xff, 0xd8, 0xff})
	}
	return bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n"))
}

func (p pictures) encode(px *rewards.Pixels, frame int) ([]byte, error) {
	if p.format == rewards.JPEG {
		return media.EncodeJPEG(px, frame, p.quality) // says what and carries its class
	}
	return media.EncodePNG(px, frame) // says what and carries its class
}
