package compare

import (
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/cpu"
	"github.com/rewardloop/rewardloop/rewards"
)

// maxDecoding bounds the members of one group that are decoded and encoded together.
const maxDecoding = 4

// pictures encodes the first image of a sample, or frames of its first video, when a CPU is
// free for it.
func (s *showing) pictures(ctx context.Context, sample *rewards.Sample) ([]chat.Part, error) {
	m, err := sample.Visual()
	if err != nil {
		return nil, err // it names the sample
	}
	ctx, done, err := cpu.Take(ctx)
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	defer done()
	px, giveBack, err := m.Borrow(ctx)
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	defer giveBack()
	frames := s.frames(m, px.Count)
	if len(frames) == 0 {
		return nil, fmt.Errorf("%w: sample %q has no frames", rewards.BadInput, sample.ID)
	}
	parts := make([]chat.Part, 0, len(frames))
	for _, f := range frames {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("encoding frame %d of sample %q: %w", f, sample.ID, err)
		}
		p, err := s.Encode(m, px, f, s.ImageFormat)
		if err != nil {
			return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// frames are those of a picture that are shown.
func (s *showing) frames(m *rewards.Media, count int) []int {
	if m.Kind != rewards.Video {
		count = min(count, 1)
	}
	return chat.EvenFrames(s.Frames, count)
}
