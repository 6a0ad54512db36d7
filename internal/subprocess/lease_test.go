package subprocess_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// taker is what a Pool and an Inline have in common.
type taker interface {
	Take(ctx context.Context, t fair.Tenant) (subprocess.Lease, error)
	Stats() subprocess.Stats
}

// inline starts an Inline and stops it when the test ends.
func inline(t *testing.T, slots int) *subprocess.Inline {
	t.Helper()
	p := newInline(t, slots, func(c subprocess.Call) ([]byte, error) { return new(hasher).Handle(c) })
	t.Cleanup(func() { assert.NoError(t, p.Stop(context.WithoutCancel(t.Context()))) })
	return p
}

// flood has callers of a tenant ask for children until ctx ends, and adds up the
// time that these worked.
func flood(ctx context.Context, all *sync.WaitGroup, p taker, t fair.Tenant, callers int, meta string) *atomic.Int64 {
	var served atomic.Int64
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := p.Take(ctx, t)
				if err != nil {
					continue
				}
				if resp, err := l.Do(ctx, subprocess.Request{Name: t.Run, Meta: []byte(meta)}); err == nil {
					served.Add(int64(resp.Ran))
				}
			}
		})
	}
	return &served
}

func TestChildrenServeTenantsByWeight(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]taker{"children": newPool(t, subprocess.Config{}), "inline": inline(t, 2)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var all sync.WaitGroup
			one := flood(ctx, &all, p, fair.Tenant{Profile: "p", Run: "one", Weight: 1}, 20, "slow:20ms")
			three := flood(ctx, &all, p, fair.Tenant{Profile: "p", Run: "three", Weight: 3}, 6, "slow:10ms")
			require.Eventually(t, func() bool { return one.Load()+three.Load() > int64(4*time.Second) }, time.Minute, 5*time.Millisecond)
			// The time of a turn has parts that served does not count, and on a busy machine those are
			// a fifth of a call of 10 ms. By the number of calls the ratio would be 6, without weights 1.
			assert.InDelta(t, 3, float64(three.Load())/float64(one.Load()), 1)
			cancel()
			all.Wait()
		})
	}
}

func TestATenantWhoseCallersLeaveAtOnceHasNoMoreOfTheChildrenThanItsShare(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	fine := flood(ctx, &all, p, fair.Tenant{Run: "fine"}, 4, "slow:1ms")
	var left atomic.Int64 // each keeps its child busy for 20 ms, for nobody
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				brief, leave := context.WithCancel(ctx)
				if l, err := p.Take(brief, fair.Tenant{Run: "leaves"}); err == nil {
					time.AfterFunc(time.Millisecond, leave)
					_, _ = l.Do(brief, subprocess.Request{Name: "leaves", Meta: []byte("slow:20ms")})
					left.Add(1)
				}
				leave()
			}
		})
	}
	require.Eventually(t, func() bool { return left.Load() > 100 }, time.Minute, 5*time.Millisecond)
	// Each has one of the two children; what was abandoned counts to its end.
	assert.Greater(t, fine.Load(), int64(time.Second), "of the 2 s that the others had")
	cancel()
	all.Wait()
}

func TestALeaseThatIsReleasedCostsTheChildNothing(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]taker{"children": newPool(t, subprocess.Config{Slots: 1}), "inline": inline(t, 1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 3 {
				l, err := p.Take(t.Context(), fair.Tenant{})
				require.NoError(t, err)
				brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				_, err = p.Take(brief, fair.Tenant{})
				cancel()
				require.ErrorIs(t, err, subprocess.ErrWaiting)
				l.Release()
				l.Release()
			}
			l, err := p.Take(t.Context(), fair.Tenant{})
			require.NoError(t, err)
			resp, err := l.Do(t.Context(), subprocess.Request{Pixels: [][]byte{[]byte("abc")}})
			require.NoError(t, err)
			assert.Equal(t, hash([]byte("abc")), resp.Body)
			l.Release()
			assert.Zero(t, p.Stats().Busy)
			assert.Zero(t, p.Stats().Restarts)
		})
	}
}

func TestAChildThatDiesWhileItsHolderMakesReadyIsReplacedAndCostsNoAttempt(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	l, err := p.Take(t.Context(), fair.Tenant{})
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(p.Stats().PIDs[0], syscall.SIGKILL))
	resp, err := l.Do(t.Context(), subprocess.Request{Pixels: [][]byte{[]byte("abc")}})
	require.NoError(t, err)
	assert.Equal(t, hash([]byte("abc")), resp.Body)
	assert.Zero(t, p.Stats().Quarantined)
}

func TestAHolderThatMakesReadyForEverDoesNotKeepThePoolFromStopping(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	p, err := subprocess.New(subprocess.Config{Kind: "hash", Slots: 2})
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	l, err := p.Take(t.Context(), fair.Tenant{})
	require.NoError(t, err)
	over, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.Error(t, p.Stop(over), "it was waited for until then")
	_, err = l.Do(t.Context(), subprocess.Request{Name: "late"})
	require.ErrorIs(t, err, subprocess.ErrUnavailable)
	_, err = p.Take(t.Context(), fair.Tenant{})
	require.ErrorIs(t, err, subprocess.ErrUnavailable)
	l.Release()
	assert.Empty(t, p.Stats().PIDs, fmt.Sprint(p.Stats()))
}
