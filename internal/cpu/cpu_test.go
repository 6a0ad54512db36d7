package cpu_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/internal/cpu"
	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// computing is a scorer that takes a second of a CPU.
type computing struct{}

func (computing) Queues() {}

func (computing) Score(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
	ctx, done, err := cpu.Start(ctx)
	if err != nil {
		return rewards.Score{}, err
	}
	defer done()
	select {
	case <-time.After(time.Second):
		return rewards.Score{Value: 1}, nil
	case <-ctx.Done():
		return rewards.Score{}, ctx.Err()
	}
}

func manager(t *testing.T, timeout time.Duration) *rewards.Manager {
	t.Helper()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "k", Weight: 1, Timeout: timeout, Scorer: computing{}}}})
	require.NoError(t, err)
	return m
}

func TestAFloodOfOneTenantDelaysAnotherByWhatRunsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, m := cpu.With(t.Context(), fair.NewGate(2)), manager(t, 0)
		flood, leave := context.WithCancel(rewards.WithTenant(ctx, rewards.Tenant{Run: "flood"}))
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() { <-m.Run(flood, &rewards.Sample{ID: "f"}).Done() })
		}
		synctest.Wait()
		start := time.Now()
		r := m.Run(rewards.WithTenant(ctx, rewards.Tenant{Run: "small"}), &rewards.Sample{ID: "s"})
		assert.Equal(t, rewards.Scored, r.Result.Outcome)
		assert.Equal(t, 2*time.Second, time.Since(start))
		leave()
		all.Wait()
	})
}

func TestAWaitForACPUIsNoPartOfTheComponentsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, m := cpu.With(t.Context(), fair.NewGate(1)), manager(t, 1500*time.Millisecond)
		var all sync.WaitGroup
		var scored atomic.Int32
		for range 10 {
			all.Go(func() {
				r := m.Run(ctx, &rewards.Sample{ID: "s"})
				<-r.Done()
				if r.Result.Outcome == rewards.Scored {
					scored.Add(1)
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 10, scored.Load(), "the last waits for nine seconds")
	})
}

func TestWhoLeavesWhileItWaitsIsNobodysFault(t *testing.T) {
	t.Parallel()
	g := fair.NewGate(1)
	ctx := cpu.With(t.Context(), g)
	_, done, err := cpu.Take(ctx)
	require.NoError(t, err)
	defer done()
	brief, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, _, err = cpu.Start(brief)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	blame, permanent := rewards.BlameOf(err)
	assert.Equal(t, rewards.BlameNobody, blame)
	assert.False(t, permanent)
	assert.Zero(t, g.Waiting())
}

func TestALongComputationLetsOthersComputeBetweenItsSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := cpu.With(t.Context(), fair.NewGate(2))
		flood, leave := context.WithCancel(rewards.WithTenant(ctx, rewards.Tenant{Run: "flood"}))
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				work, done, err := cpu.Take(flood)
				if err != nil {
					return // it has left
				}
				defer done()
				for rewards.Yield(work) == nil {
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		small := rewards.WithTenant(ctx, rewards.Tenant{Run: "small"})
		for range 20 {
			start := time.Now()
			_, done, err := cpu.Take(small)
			require.NoError(t, err)
			assert.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
			time.Sleep(time.Millisecond)
			done()
			time.Sleep(time.Millisecond)
		}
		leave()
		all.Wait()
	})
}

func TestWhoWaitsAsideLeavesTheCPUToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := cpu.With(t.Context(), fair.NewGate(1))
		work, done, err := cpu.Take(ctx)
		require.NoError(t, err)
		defer done()
		require.NoError(t, rewards.Aside(work, func() {
			_, other, err := cpu.Take(ctx)
			assert.NoError(t, err)
			other()
		}))
		brief, cancel := context.WithTimeout(work, time.Second)
		defer cancel()
		var other func()
		require.ErrorIs(t, rewards.Aside(brief, func() { _, other, err = cpu.Take(ctx) }), context.DeadlineExceeded)
		require.NoError(t, err)
		other()
		assert.NoError(t, rewards.Aside(ctx, func() {}), "without a CPU")
	})
}
