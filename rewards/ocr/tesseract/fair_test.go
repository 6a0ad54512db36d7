package tesseract_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// TestRealChildrenServeRunsByWeight holds the time that two runs of one profile, and runs of
// two profiles, have had Tesseract to their weights.
// The shares are those of times that a loaded machine stretches, so the bar is a quarter here;
// internal/subprocess and internal/fair hold five percent in fake time.
func TestRealChildrenServeRunsByWeight(t *testing.T) { //nolint:tparallel // its subtests measure the shares of one reader
	t.Parallel()
	if len(tesseract.Kinds()) == 0 {
		t.Skip("SKIPPED: this build starts a program for every picture, of which too few fit into a test")
	}
	r := newReader(t, tesseract.Config{})
	px := scenes(t, 16)[0].px
	for name, tenants := range map[string][2]rewards.Tenant{ //nolint:paralleltest // likewise
		"two runs of a profile": {{Profile: "p", Run: "one", Weight: 1}, {Profile: "p", Run: "three", Weight: 3}},
		"two profiles":          {{Profile: "p", Run: "r", Weight: 1}, {Profile: "q", Run: "r", Weight: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all sync.WaitGroup
			var had [2]atomic.Int64
			for i, tenant := range tenants {
				for range 6 {
					all.Go(func() {
						for ctx := rewards.WithTenant(ctx, tenant); ctx.Err() == nil; {
							turn, err := r.Turn(ctx)
							if err != nil {
								continue // it is over
							}
							start := time.Now()
							_, err = turn.ReadText(ctx, px, 0)
							turn.Done()
							if err == nil {
								had[i].Add(int64(time.Since(start)))
							}
						}
					})
				}
			}
			require.Eventually(t, func() bool { return had[0].Load()+had[1].Load() > int64(5*time.Second) }, time.Minute, 5*time.Millisecond)
			assert.InEpsilon(t, 3, float64(had[1].Load())/float64(had[0].Load()), .25)
			cancel()
			all.Wait()
		})
	}
}

func TestATurnThatIsGivenBackUnusedIsTheNexts(t *testing.T) {
	t.Parallel()
	r := newReader(t, tesseract.Config{Slots: 1})
	px := scenes(t, 16)[0].px
	for range 3 {
		turn, err := r.Turn(t.Context())
		require.NoError(t, err)
		turn.Done()
		turn.Done()
	}
	lines, err := r.ReadText(t.Context(), px, 0)
	require.NoError(t, err)
	assert.NotEmpty(t, lines)
	assert.Zero(t, r.Stats().Restarts)
}
