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
	v, giveBack, err := m.BorrowFrames(ctx, s.Frames)
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	defer giveBack()
	if len(v.At) > maxFrames {
		return nil, fmt.Errorf("%w: %d frames of sample %q are selected, want at most %d", rewards.BadInput, len(v.At), sample.ID, maxFrames)
	}
	parts := make([]chat.Part, 0, len(v.At))
	for _, f := range v.At {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("encoding frame %d of sample %q: %w", f, sample.ID, err)
		}
		p, err := s.Encode(m, v.Pixels, f, s.ImageFormat)
		if err != nil {
			return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}
