package fabric_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/fabric"
	"github.com/rewardloop/rewardloop/internal/testkit/rig"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/workers"
)

// The worker of each sample must be a draw among the idle ones: 4,000 samples at
// 100/s on 8 workers. A plain pull queue serves idle workers in a fixed cycle, which
// the counts do not show and the pairs of successive workers do: χ² above 10,000
// at 63 degrees of freedom, about 63 at random.
func TestIdleWorkersAreChosenAtRandom(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes 40 s of real time; run without -short")
	}
	const pool, samples, rate = 8, 4000, 100
	f, source := open(t, fabric.Config{})
	m, err := rewards.NewManager(rewards.ManagerConfig{Terms: []rewards.Term{{
		Key: "one", Weight: 1, Required: true,
		Scorer: rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{Value: 1}, nil }),
	}}})
	require.NoError(t, err)
	r := rig.New(t, rig.Options{
		Workers: pool, Worker: workers.Config{Slots: 1}, Engine: f, Profiles: map[string]*rewards.Manager{"": m},
		Source: func(worker string) workers.Source { return source(t, worker) },
	})
	defer r.Stop()
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	futures := make([]*loop.Future, samples)
	for i := range futures {
		<-tick.C
		futures[i], err = r.Manager.Submit(t.Context(), loop.Submission{Run: "_choice", Sample: rig.Sample(fmt.Sprint(i), 3)})
		require.NoError(t, err)
	}
	counts, pairs := map[string]int{}, map[[2]string]int{}
	before := ""
	for i, future := range futures {
		res, err := future.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, rewards.Scored, res.Outcome, i)
		counts[res.Worker]++
		if before != "" {
			pairs[[2]string{before, res.Worker}]++
		}
		before = res.Worker
	}
	const mean = float64(samples) / pool
	sigma := math.Sqrt(mean * (1 - 1.0/pool))
	assert.Len(t, counts, pool)
	for w, n := range counts {
		assert.InDelta(t, mean, n, 4*sigma, w)
	}
	expected := float64(samples-1) / (pool * pool)
	chi := float64(pool*pool-len(pairs)) * expected
	for _, n := range pairs {
		chi += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	t.Logf("counts %v, χ² of successive pairs %.0f at %d degrees of freedom", counts, chi, pool*pool-1)
	assert.Less(t, chi, 400.0)
}
