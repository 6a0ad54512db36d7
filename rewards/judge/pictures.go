package judge

import (
	"context"
	"fmt"
	"sync"

	"github.com/rewardloop/rewardloop/internal/chat"
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
		groups = [][]int{chat.EvenFrames(c.together, count)}
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
	options chat.Pictures
	video   bool

	mu     sync.Mutex
	frames map[frameKey]func() (chat.Part, error) // guarded by mu
}

type frameKey struct {
	frame  int
	format string
}

// look decodes the sample's picture.
func look(ctx context.Context, p chat.Pictures, s *rewards.Sample) (*view, error) {
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
	if format == chat.FormatAuto {
		format = chat.FormatPNG
		if len(frames) > 1 {
			format = chat.FormatJPEG
		}
	}
	parts := make([]chat.Part, 0, len(frames)+1)
	for _, f := range frames {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("encoding frame %d: %w", f, err)
		}
		p, err := v.part(f, format)
		if err != nil {
			return nil, err
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
		once = sync.OnceValues(func() (chat.Part, error) { return v.options.Encode(v.media, v.pixels, frame, format) })
		v.frames[k] = once
	}
	v.mu.Unlock()
	return once()
}
