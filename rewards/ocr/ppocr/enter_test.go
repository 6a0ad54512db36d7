package ppocr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/ppocr"
)

// bounded is a detector for which one frame is made ready at a time.
type bounded struct {
	inferer

	gate *fair.Gate
}

func (b bounded) Enter(ctx context.Context) (func(), error) {
	turn, err := b.gate.Acquire(ctx, fair.Tenant{})
	return turn.Release, err
}

func TestAFrameIsMadeReadyOnlyWithLeaveOfTheDetectorsDevice(t *testing.T) {
	t.Parallel()
	gate := fair.NewGate(1)
	m := models()
	m.Det = bounded{words, gate}
	r, err := ppocr.New(asIs, m)
	require.NoError(t, err)
	first, err := r.Turn(t.Context())
	require.NoError(t, err)
	brief, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = r.Turn(brief)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	lines, err := first.ReadText(t.Context(), bars(200, 150, 3), 0)
	require.NoError(t, err)
	require.Len(t, lines, 3)
	waits := make(chan error, 1)
	go func() {
		_, err := r.Turn(t.Context())
		waits <- err
	}()
	require.Eventually(t, func() bool { return gate.Waiting() == 1 }, 20*time.Second, time.Millisecond)
	require.NoError(t, r.Close())
	require.ErrorIs(t, <-waits, rewards.Unavailable, "the reader is closed")
	first.Done()
	first.Done()
	require.Zero(t, gate.Waiting())
}
