package python_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// 2,000 calls are cancelled, each 0 to 2 ms after it was made; then 200 fresh ones finish
// and no place is lost.
func TestTwoThousandCancelledCallsLoseNoPlace(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]python.Options{
		"async":    {Name: "gentle", Concurrency: 64},
		"plain":    {Name: "quick"},
		"threaded": {Name: "threaded", Concurrency: 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.Path = "testdata/processes.py"
			s := scorer(t, python.Config{}, opts)
			warm(t, s)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			var calls sync.WaitGroup
			crowd := make(chan struct{}, 128)
			for range 2000 {
				crowd <- struct{}{}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(r.Int64N(int64(2*time.Millisecond))), nil)
				left, leave := context.WithCancel(t.Context())
				context.AfterFunc(ctx, leave) // cancelled, not late
				calls.Go(func() {
					defer func() { <-crowd }()
					defer cancel()
					if _, err := s.Score(left, asks("0.001")); err != nil {
						blame, _ := rewards.BlameOf(err)
						assert.Equal(t, rewards.BlameNobody, blame, "%v", err)
					}
				})
			}
			calls.Wait()
			require.Eventually(t, func() bool { return stats(s).Running == 0 && stats(s).Waiting == 0 }, time.Minute, time.Millisecond, "%+v", stats(s))
			for _, g := range together(t, s, make([]string, 200), "0.001") {
				require.NoError(t, g.err)
			}
			assert.Zero(t, stats(s).Restarts, "no process was lost either")
		})
	}
}

// A hanging call of a synchronous function keeps its place when its caller leaves, and
// gives it back with its process, which ends at the call's deadline.
func TestACancelledHangGivesItsPlaceBackAtItsDeadline(t *testing.T) {
	t.Parallel()
	s := scorer(t, python.Config{CallTimeout: 5 * time.Second}, python.Options{Path: "testdata/processes.py", Name: "threaded", Concurrency: 2})
	warm(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	left, begun := make(chan error, 1), filepath.Join(t.TempDir(), "begun")
	go func() {
		_, err := s.Score(ctx, asks("hang"+begun))
		left <- err
	}()
	require.Eventually(t, func() bool { return exists(begun) }, 10*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-left, rewards.Cancelled)
	assert.Equal(t, 1, stats(s).Running, "the thread hangs on")
	got, err := score(t, s, asks("wait0"))
	require.NoError(t, err, "the other thread is free")
	require.Eventually(t, func() bool { return stats(s).Running == 0 && stats(s).Restarts == 1 }, 20*time.Second, time.Millisecond)
	again, err := score(t, s, asks("wait0"))
	require.NoError(t, err)
	assert.NotEqual(t, got.Extra["pid"], again.Extra["pid"])
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// A thread cannot be ended: the process of a call that hangs is, and the calls beside it
// go to another.
func TestAHangInAThreadSendsTheCallsBesideItToAnotherProcess(t *testing.T) {
	t.Parallel()
	s := scorer(t, python.Config{}, python.Options{Path: "testdata/processes.py", Name: "threaded", Concurrency: 8})
	warm(t, s)
	pid := stats(s).PIDs[0]
	hang := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	go func() {
		_, err := s.Score(ctx, asks("hang"))
		hang <- err
	}()
	require.Eventually(t, func() bool { return stats(s).Running == 1 }, 10*time.Second, time.Millisecond)
	for _, g := range together(t, s, make([]string, 7), "wait1") {
		require.NoError(t, g.err)
		assert.NotEqual(t, int64(pid), g.score.Extra["pid"])
	}
	err := <-hang
	blame, _ := rewards.BlameOf(err)
	assert.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
	assert.Equal(t, rewards.BlameReward, blame)
	assert.Equal(t, uint64(1), stats(s).Timeouts)
	assert.Zero(t, stats(s).Crashes)
}
