//go:build !linux

package ffmpeg

import (
	"context"
	"fmt"
	"io"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// Play implements media.Player. On this system Play always fails with rewards.UnsupportedEncoding.
func (*Runner) Play(context.Context, media.Playing, func(out io.Reader) error) error {
	return rewards.Permanent(rewards.BlameWorker, fmt.Errorf("%w: decoding with ffmpeg needs Linux", rewards.UnsupportedEncoding))
}
