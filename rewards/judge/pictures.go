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
	shown  bool
	frames rewards.FrameChoice
	// together shows them in one question; else each has a question of its own.
	together bool
}

// each shows every frame of a choice in a question of its own.
func each(frames rewards.FrameChoice) choice { return choice{shown: true, frames: frames} }

// together shows the frames of a choice in one question.
func together(frames rewards.FrameChoice) choice { return choice{true, frames, true} }

// maxFrames bounds the frames of one sample that are shown: at an interval of 4 a
// video of a minute.
const maxFrames = 384

// groups returns the frames of each question, by their numbers.
func (c choice) groups(frames []int) ([][]int, error) {
	if len(frames) > maxFrames {
		return nil, fmt.Errorf("%w: %d frames selected, want at most %d; select fewer with frames or frame_interval", rewards.BadInput, len(frames), maxFrames)
	}
	if c.together {
		return [][]int{frames}, nil
	}
	groups := make([][]int, len(frames))
	for i, f := range frames {
		groups[i] = []int{f}
	}
	return groups, nil
}

// view is the picture of a sample, from which frames are encoded at most once each. It has
// the pixels only while it encodes: a question may wait long for its engine.
type view struct {
	media   *rewards.Media
	choice  rewards.FrameChoice
	numbers []int       // of the frames that are chosen
	places  map[int]int // of a frame in the pixels, by its number
	options chat.Pictures

	mu     sync.Mutex
	frames map[frameKey]func() (chat.Part, error) // guarded by mu
}

type frameKey struct {
	frame  int
	format string
}

// look decodes a picture of the sample, when a CPU is free for it.
func look(ctx context.Context, p chat.Pictures, s *rewards.Sample, m *rewards.Media, frames rewards.FrameChoice) (*view, error) {
	v := &view{media: m, options: p, choice: frames, places: map[int]int{}, frames: map[frameKey]func() (chat.Part, error){}}
	err := v.with(ctx, func(px rewards.View) error {
		v.numbers = px.Number
		for i, n := range px.Number {
			v.places[n] = px.At[i]
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	return v, nil
}

// with has a CPU do something with the pixels.
func (v *view) with(ctx context.Context, do func(px rewards.View) error) error {
	ctx, done, err := cpu.Take(ctx)
	if err != nil {
		return err
	}
	defer done()
	px, giveBack, err := v.media.BorrowFrames(ctx, v.choice)
	if err != nil {
		return err
	}
	defer giveBack()
	return do(px)
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
			err = v.with(ctx, func(px rewards.View) error {
				part, err = v.options.Encode(v.media, px.Pixels, v.places[frame], format)
				return err
			})
			return part, err
		})
		v.frames[k] = once
	}
	v.mu.Unlock()
	return once()
}
