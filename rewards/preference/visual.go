package preference

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/rewards"
)

const (
	// maxFrames bounds the frames of one sample that are scored: at an interval of 4 a
	// video of a minute.
	maxFrames = 384
	// abreast is how many frames of one sample are prepared or with the model at a time:
	// the largest batch of the pool's default.
	abreast = 32
)

// visual is a sample's picture and which of its frames are scored.
type visual struct {
	pixels *rewards.Pixels
	frames []int
}

// look decodes a picture and picks its frames. The pixels stay with the call of the component:
// it waits for nothing any more but the runs of its models.
func (o sampling) look(ctx context.Context, s *rewards.Sample, m *rewards.Media) (visual, error) {
	v, err := m.PixelsOf(ctx, o.choice())
	if err != nil {
		return visual{}, fmt.Errorf("sample %q: %w", s.ID, err)
	}
	if n := len(v.At); n > maxFrames {
		return visual{}, fmt.Errorf("%w: %d frames of sample %q are selected, want at most %d; choose fewer with frames or frame_interval", rewards.BadInput, n, s.ID, maxFrames)
	}
	return visual{pixels: v.Pixels, frames: v.At}, nil
}

// each calls do for every frame, several at a time, so that they share batches. The first
// failure ends the others: a video is scored whole or not at all.
func (v visual) each(ctx context.Context, do func(ctx context.Context, i, frame int) error) error {
	if len(v.frames) == 1 {
		return rewards.Guard(func() error { return do(ctx, 0, v.frames[0]) })
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(abreast)
	for i, frame := range v.frames {
		g.Go(func() error {
			err := ctx.Err()
			if err == nil {
				err = rewards.Guard(func() error { return do(ctx, i, frame) })
			}
			if err != nil {
				return fmt.Errorf("frame %d: %w", frame, err)
			}
			return nil
		})
	}
	return g.Wait() //nolint:wrapcheck // the frames' own
}

// item names a frame in errors of the model.
func item(s *rewards.Sample, frame int) string {
	if frame == 0 {
		return s.ID
	}
	return fmt.Sprintf("%s frame %d", s.ID, frame)
}

// mean is that of some numbers, at least one.
func mean(all []float64) float64 {
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	return sum / float64(len(all))
}
