package loop_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/rig"
)

// A sample whose bytes were booked just before the gateway stopped must not be
// accepted after it: nobody would ever answer it.
func TestASampleThatMeetsTheStopIsRefusedOrAnswered(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			queue := memqueue.New(seed, time.Second)
			m, err := loop.New(loop.Options{Queue: queue, Presence: queue})
			require.NoError(t, err)
			m.Start(t.Context())
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					f, err := m.Submit(t.Context(), loop.Submission{Run: "_r", Sample: rig.Sample(string(rune('a'+i)), 3*4096)})
					if err != nil {
						require.ErrorIs(t, err, rewards.Draining)
						return
					}
					<-f.Done()
				})
			}
			wg.Go(m.Stop)
			wg.Wait()
			require.Zero(t, m.InFlight())
		})
	}
}
