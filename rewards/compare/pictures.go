package compare

import (
	"context"
	"fmt"
	"net/http"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// maxDecoding bounds the members of one group that are decoded and encoded together.
const maxDecoding = 4

// pictures encodes the first image of a sample, or frames of its first video.
func (s *showing) pictures(ctx context.Context, sample *rewards.Sample) ([]chat.Part, error) {
	m, err := sample.Visual()
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the sample
	}
	px, err := m.Pixels(ctx)
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	frames := s.frames(m, px.Count)
	if len(frames) == 0 {
		return nil, fmt.Errorf("%w: sample %q has no frames", rewards.BadInput, sample.ID)
	}
	parts := make([]chat.Part, 0, len(frames))
	for _, f := range frames {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("encoding frame %d of sample %q: %w", f, sample.ID, err)
		}
		p, err := s.encode(m, px, f)
		if err != nil {
			return nil, fmt.Errorf("encoding frame %d of sample %q: %w", f, sample.ID, err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// frames are those at floor(i·count/n), each once.
func (s *showing) frames(m *rewards.Media, count int) []int {
	if m.Kind != rewards.Video {
		count = min(count, 1)
	}
	var frames []int
	for i := range min(s.Frames, count) {
		frames = append(frames, i*count/min(s.Frames, count))
	}
	return frames
}

func (s *showing) encode(m *rewards.Media, px *rewards.Pixels, frame int) (chat.Part, error) {
	if s.ImageFormat == formatAsIs {
		if data, mime := original(m, frame); mime != "" {
			return chat.Part{Image: data, MIME: mime}, nil
		}
	}
	one := &rewards.Pixels{Width: px.Width, Height: px.Height, Count: 1, RGB: px.Frame(frame)}
	if n := s.Resize; n > 0 {
		one = media.Resize(one, n, n, media.Bicubic)
	}
	if s.ImageFormat == formatJPEG {
		data, err := media.EncodeJPEG(one, 0, s.JPEGQuality)
		return chat.Part{Image: data, MIME: "image/jpeg"}, err //nolint:wrapcheck // pictures says which frame
	}
	data, err := media.EncodePNG(one, 0)
	return chat.Part{Image: data, MIME: "image/png"}, err //nolint:wrapcheck // pictures says which frame
}

// original is the frame in the bytes it came in, if it came encoded. It was decoded
// before, so it is what it says.
func original(m *rewards.Media, frame int) (data []byte, mime string) {
	switch {
	case m.Encoding == rewards.Frames && frame < len(m.Frames):
		data = m.Frames[frame]
	case m.Encoding != rewards.Raw && frame == 0:
		data = m.Data
	}
	switch mime = http.DetectContentType(data); mime {
	case "image/png", "image/jpeg", "image/webp":
		return data, mime
	}
	return nil, ""
}
