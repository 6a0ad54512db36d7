package fair_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/fair"
)

// flood sends calls of a cost through a gate as fast as so many callers can, until ctx ends,
// and counts the time that they have had.
func flood(ctx context.Context, all *sync.WaitGroup, g *fair.Gate, t fair.Tenant, callers int, cost time.Duration) *atomic.Int64 {
	var had atomic.Int64
	for range callers {
		all.Go(func() {
			for {
				turn, err := g.Acquire(ctx, t)
				if err != nil {
					return
				}
				time.Sleep(cost)
				turn.Release()
				had.Add(int64(cost))
			}
		})
	}
	return &had
}

func TestAGateGivesItsExecutorsByWeight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		g := fair.NewGate(2)
		var all sync.WaitGroup
		one := flood(ctx, &all, g, run("one", 1), 100, time.Second)
		three := flood(ctx, &all, g, run("three", 3), 10, 50*time.Millisecond)
		all.Wait()
		assert.InEpsilon(t, 3, float64(three.Load())/float64(one.Load()), .05)
		assert.InEpsilon(t, 40*time.Minute, float64(three.Load()+one.Load()), .01, "no executor was idle")
	})
}

func TestATenantThatCancelsAtOnceTakesNothingFromAnotherAndLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		g := fair.NewGate(2)
		var all sync.WaitGroup
		fine := flood(ctx, &all, g, run("fine", 1), 10, 100*time.Millisecond)
		for range 50 {
			all.Go(func() {
				for ctx.Err() == nil {
					brief, leave := context.WithTimeout(ctx, time.Millisecond)
					if turn, err := g.Acquire(brief, run("cancels", 1)); err == nil {
						turn.Release()
					}
					leave()
				}
			})
		}
		all.Wait()
		assert.InEpsilon(t, 4*time.Second, float64(fine.Load()), .1)
		assert.Zero(t, g.Waiting())
		for range 2 { // both executors are there
			turn, err := g.Acquire(t.Context(), run("after", 1))
			require.NoError(t, err)
			defer turn.Release()
		}
	})
}

func TestATenantThatHangsKeepsItsShareOfExecutorsAndNoMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		g := fair.NewGate(4)
		var all sync.WaitGroup
		fine := flood(ctx, &all, g, run("fine", 1), 20, 10*time.Millisecond)
		synctest.Wait() // it has all four; before it came, the other would have got them for good
		for range 20 {
			all.Go(func() {
				if turn, err := g.Acquire(ctx, run("hangs", 1)); err == nil {
					defer turn.Release()
					<-ctx.Done()
				}
			})
		}
		all.Wait()
		assert.InEpsilon(t, 2*time.Minute, float64(fine.Load()), .05, "two of the four executors")
	})
}

func TestATurnCanBeReleasedTwiceAndWhileItWaits(t *testing.T) {
	t.Parallel()
	g := fair.NewGate(1)
	has := g.Join(run("r", 1))
	<-has.Granted()
	waits, next := g.Join(run("r", 1)), g.Join(run("r", 1))
	waits.Release()
	waits.Release()
	has.Release()
	has.Release()
	<-next.Granted()
	select {
	case <-waits.Granted():
		assert.Fail(t, "a turn that was given up came")
	default:
	}
	next.Release()
	fair.Turn{}.Release()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := g.Acquire(gone, run("r", 1))
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, g.Waiting())
}

func TestNoMoreCallsRunThanAGateHasExecutors(t *testing.T) {
	t.Parallel()
	g := fair.NewGate(3)
	var all sync.WaitGroup
	var now, most atomic.Int64
	for i := range 64 {
		all.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if i%8 == 0 {
					go cancel()
				}
				if turn, err := g.Acquire(ctx, run(string(rune('a'+i%5)), float64(1+i%3))); err == nil {
					n := now.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					now.Add(-1)
					turn.Release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	assert.LessOrEqual(t, most.Load(), int64(3))
	assert.Zero(t, g.Waiting())
}
