package subprocess_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

func TestARestartReplacesEveryChildAndLosesNoRequest(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 3})
	before := p.Stats().PIDs
	var callers sync.WaitGroup
	for range 30 {
		callers.Go(func() {
			px := []byte("pixels")
			if resp, err := p.Do(t.Context(), work("hash", px)); err != nil || string(resp.Body) != string(hash(px)) {
				t.Errorf("%q %v", resp.Body, err)
			}
		})
	}
	slow := make(chan error, 1)
	go func() {
		_, err := p.Do(t.Context(), work("slow:200ms"))
		slow <- err
	}()
	require.NoError(t, p.Restart(t.Context()))
	callers.Wait()
	require.NoError(t, <-slow, "what runs is let end")
	st := p.Stats()
	require.Len(t, st.PIDs, 3)
	require.False(t, slices.ContainsFunc(st.PIDs, func(pid int) bool { return slices.Contains(before, pid) }))
	require.EqualValues(t, 3, st.Restarts)
	require.Zero(t, st.Crashes)
}

func TestARestartEndsWithItsContextAndWithThePool(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	go func() { _, _ = p.Do(t.Context(), work("slow:1s")) }()
	require.Eventually(t, func() bool { return p.Stats().Busy == 1 }, 5*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Restart(ctx), subprocess.ErrTimeout)
	_ = p.Stop(t.Context())
	require.ErrorIs(t, p.Restart(t.Context()), subprocess.ErrUnavailable)
}

func TestAnInlineRestartBuildsEveryHandlerAnew(t *testing.T) {
	t.Parallel()
	var built atomic.Int64
	p, err := subprocess.NewInline(subprocess.Config{Slots: 2}, subprocess.Kind{Name: "test", New: func([]byte) (subprocess.Handler, error) {
		built.Add(1)
		return &hasher{}, nil
	}})
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	for range 4 {
		_, err := p.Do(t.Context(), work("hash"))
		require.NoError(t, err)
	}
	require.NoError(t, p.Restart(t.Context()))
	require.EqualValues(t, 4, built.Load())
	for range 2 { // each slot was idle longest in turn
		resp, err := p.Do(t.Context(), work("calls"))
		require.NoError(t, err)
		require.Equal(t, "1", string(resp.Body))
	}
	require.NoError(t, p.Stop(t.Context()))
	require.ErrorIs(t, p.Restart(t.Context()), subprocess.ErrUnavailable)
}
