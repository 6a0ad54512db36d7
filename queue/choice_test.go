package queue_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/queue"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/workers"
)

// The worker of each sample must be a draw among the idle ones: 1,000 samples at 100/s on 8
// workers. A plain pull queue serves idle workers in a fixed cycle, which the counts do
// not show and the pairs of successive workers do: χ² of 6,000 at 55 degrees of freedom,
// where a draw has 55 ± 10. Pairs of the same worker are looked at by themselves: on a
// busy machine there are fewer of them, for a worker that is not back in time is not idle.
func TestIdleWorkersAreChosenAtRandom(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes 12 s of real time; run without -short")
	}
	t.Run("InOneProcess", func(t *testing.T) { // one hub draws
		t.Parallel()
		f, source := open(t, queue.Config{})
		chosenAtRandom(t, f, func(worker string) workers.Source { return source(t, worker) })
	})
	t.Run("EachInItsOwn", func(t *testing.T) { // the server does
		t.Parallel()
		f, _ := open(t, queue.Config{Listen: "127.0.0.1:0"})
		chosenAtRandom(t, f, func(worker string) workers.Source {
			return connect(t, join(t, queue.Config{URLs: []string{"nats://" + f.Address()}, Name: worker}), worker)
		})
	})
}

func chosenAtRandom(t *testing.T, f *queue.Queue, source func(worker string) workers.Source) {
	t.Helper()
	const pool, samples, rate = 8, 1000, 100
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{
		Key: "one", Weight: 1, Required: true,
		Scorer: rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{Value: 1}, nil }),
	}}})
	require.NoError(t, err)
	r := rig.New(t, rig.Options{
		Workers: pool, Worker: rig.Settings{Places: 1}, Queue: f, Profiles: map[string]*rewards.Manager{"": m}, Source: source,
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
	same := 0
	for w := range counts {
		same += pairs[[2]string{w, w}]
	}
	assert.LessOrEqual(t, float64(same), mean+4*sigma, "one of %d pairs is of the same worker twice", pool)
	const others = pool * (pool - 1)
	expected := float64(samples-1-same) / others
	chi := 0.0
	for first := range counts {
		for second := range counts {
			if n := float64(pairs[[2]string{first, second}]); first != second {
				chi += (n - expected) * (n - expected) / expected
			}
		}
	}
	t.Logf("counts %v, %d of %d the same twice, χ² of the other pairs %.0f at %d degrees of freedom", counts, same, samples, chi, others-1)
	assert.Less(t, chi, 120.0)
}
