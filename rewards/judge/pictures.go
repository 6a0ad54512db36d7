package judge

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// choice says which frames of the sample's picture are shown; the zero value: none.
type choice struct {
	// every shows each nth frame in a question of its own.
	every int
	// together shows this many frames, evenly spread, in one question.
	together int
}

// maxFrames bounds the frames of one sample that are shown: at an interval of 4 a
// video of a minute.
const maxFrames = 384

// groups returns the frames of each question for a picture of count frames.
func (c choice) groups(count int) ([][]int, error) {
	var groups [][]int
	switch {
	case c.together > 0:
		// floor(i·N/n), each frame once, as UnifiedReward's read_video_frames picks them.
		var frames []int
		for i := range c.together {
			if f := i * count / c.together; len(frames) == 0 || f != frames[len(frames)-1] {
				frames = append(frames, f)
			}
		}
		groups = [][]int{frames}
	case c.every > 0:
		for f := 0; f < count; f += c.every {
			groups = append(groups, []int{f})
		}
	}
	if len(groups) > maxFrames {
		return nil, fmt.Errorf("%w: %d of %d frames would be shown, at most %d are; raise frame_interval", rewards.BadInput, len(groups), count, maxFrames)
	}
	return groups, nil
}

// view is the picture of a sample, from which frames are encoded at most once each.
type view struct {
	media   *rewards.Media
	pixels  *rewards.Pixels
	options Pictures
	video   bool

	mu     sync.Mutex
	frames map[frameKey]func() (chat.Part, error) // guarded by mu
}

type frameKey struct {
	frame  int
	format string
}

// look decodes the sample's picture.
func (p Pictures) look(ctx context.Context, s *rewards.Sample) (*view, error) {
	m, err := s.Visual()
	if err != nil {
		return nil, err
	}
	px, err := m.Pixels(ctx)
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	if px.Count < 1 {
		return nil, fmt.Errorf("%w: sample %q has no frames", rewards.BadInput, s.ID)
	}
	return &view{media: m, pixels: px, options: p, video: m.Kind == rewards.Video, frames: map[frameKey]func() (chat.Part, error){}}, nil
}

// count is the number of frames there are to show.
func (v *view) count() int {
	if !v.video {
		return 1
	}
	return v.pixels.Count
}

// parts encodes the frames of a question.
func (v *view) parts(ctx context.Context, frames []int) ([]chat.Part, error) {
	format := v.options.ImageFormat
	if format == formatAuto {
		format = formatPNG
		if len(frames) > 1 {
			format = formatJPEG
		}
	}
	parts := make([]chat.Part, 0, len(frames)+1)
	for _, f := range frames {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("encoding frame %d: %w", f, err)
		}
		p, err := v.part(f, format)
		if err != nil {
			return nil, fmt.Errorf("encoding frame %d: %w", f, err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// part encodes a frame, or takes what another question has encoded.
func (v *view) part(frame int, format string) (chat.Part, error) {
	v.mu.Lock()
	k := frameKey{frame, format}
	once, ok := v.frames[k]
	if !ok {
		once = sync.OnceValues(func() (chat.Part, error) { return v.encode(frame, format) })
		v.frames[k] = once
	}
	v.mu.Unlock()
	return once()
}

func (v *view) encode(frame int, format string) (chat.Part, error) {
	if format == formatAsIs {
		if data, mime := v.original(frame); mime != "" {
			return chat.Part{Image: data, MIME: mime}, nil
		}
		format = formatPNG
	}
	px := &rewards.Pixels{Width: v.pixels.Width, Height: v.pixels.Height, Count: 1, RGB: v.pixels.Frame(frame)}
	if n := v.options.Resize; n > 0 {
		px = media.Resize(px, n, n, media.Bicubic)
	}
	if format == formatJPEG {
		data, err := media.EncodeJPEG(px, 0, v.options.JPEGQuality)
		return chat.Part{Image: data, MIME: "image/jpeg"}, err //nolint:wrapcheck // parts says which frame
	}
	data, err := media.EncodePNG(px, 0)
	return chat.Part{Image: data, MIME: "image/png"}, err //nolint:wrapcheck // parts says which frame
}

// original is the frame in the bytes it came in, if it came encoded. It was decoded
// before (look), so it is what it says.
func (v *view) original(frame int) (data []byte, mime string) {
	switch {
	case v.media.Encoding == rewards.Frames && frame < len(v.media.Frames):
		data = v.media.Frames[frame]
	case v.media.Encoding != rewards.Raw && frame == 0:
		data = v.media.Data
	}
	switch mime = http.DetectContentType(data); mime {
	case "image/png", "image/jpeg", "image/webp":
		return data, mime
	}
	return nil, ""
}
