package judge

import (
	"context"
	"fmt"
	"sync"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/cpu"
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

// view is the picture of a sample, from which frames are encoded at most once each. It has
// the pixels only while it encodes: a question may wait long for its engine.
type view struct {
	media   *rewards.Media
	n       int // frames
	options chat.Pictures
	video   bool

	mu     sync.Mutex
	frames map[frameKey]func() (chat.Part, error) // guarded by mu
}

type frameKey struct {
	frame  int
	format string
}

// look decodes a picture of the sample, when a CPU is free for it.
func look(ctx context.Context, p chat.Pictures, s *rewards.Sample, m *rewards.Media) (*view, error) {
	v := &view{media: m, options: p, video: m.Kind == rewards.Video, frames: map[frameKey]func() (chat.Part, error){}}
	err := v.with(ctx, func(px *rewards.Pixels) error {
		v.n = px.Count
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	if v.n < 1 {
		return nil, fmt.Errorf("%w: sample %q has no frames", rewards.BadInput, s.ID)
	}
	return v, nil
}

// with has a CPU do something with the pixels.
func (v *view) with(ctx context.Context, do func(px *rewards.Pixels) error) error {
	ctx, done, err := cpu.Take(ctx)
	if err != nil {
		return err
	}
	defer done()
	px, giveBack, err := v.media.Borrow(ctx)
	if err != nil {
		return err
	}
	defer giveBack()
	return do(px)
}

// count is the number of frames there are to show.
func (v *view) count() int {
	if !v.video {
		return 1
	}
	return v.n
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
		p, err := v.part(ctx, f, format)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// part encodes a frame, or takes what another question has encoded. The contexts of the
// questions end together.
func (v *view) part(ctx context.Context, frame int, format string) (chat.Part, error) {
	v.mu.Lock()
	k := frameKey{frame, format}
	once, ok := v.frames[k]
	if !ok {
		once = sync.OnceValues(func() (part chat.Part, err error) {
			err = v.with(ctx, func(px *rewards.Pixels) error {
				part, err = v.options.Encode(v.media, px, frame, format)
				return err
			})
			return part, err
		})
		v.frames[k] = once
	}
	v.mu.Unlock()
	return once()
}
