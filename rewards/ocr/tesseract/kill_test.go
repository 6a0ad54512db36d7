//go:build cgo && tesseract

package tesseract_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// Children are killed every 20 ms to 1 s while pictures are read; a picture
// whose two tries were both hit is asked for again, as rewards.Manager does.
func TestPicturesReadUnderKillsEqualTheUndisturbedReading(t *testing.T) {
	t.Parallel()
	nth := 2
	if testing.Short() {
		nth = 8
	}
	all := scenes(t, nth)
	r := newReader(t, tesseract.Config{Slots: 2})
	want := make([][]ocr.Line, len(all))
	readAll(t, 2, all, func(i int, s *scene) {
		lines, err := r.ReadText(t.Context(), s.px, 0)
		if err != nil {
			t.Errorf("%s: %v", s.ID, err)
		}
		want[i] = lines
	})

	over := make(chan struct{})
	var killer sync.WaitGroup
	var kills atomic.Int64
	killer.Go(func() {
		rng := rand.New(rand.NewPCG(5, 6))
		for {
			pause := time.NewTimer(20*time.Millisecond + time.Duration(rng.Int64N(int64(980*time.Millisecond))))
			select {
			case <-over:
				pause.Stop()
				return
			case <-pause.C:
			}
			if pids := r.Stats().PIDs; len(pids) > 0 && syscall.Kill(pids[rng.IntN(len(pids))], syscall.SIGKILL) == nil {
				kills.Add(1)
			}
		}
	})
	answers := make([]atomic.Int64, len(all))
	var asked atomic.Int64
	readAll(t, 4, all, func(i int, s *scene) {
		for {
			asked.Add(1)
			lines, err := r.ReadText(t.Context(), s.px, 0)
			if errors.Is(err, rewards.Crashed) {
				continue
			}
			answers[i].Add(1)
			if err != nil {
				t.Errorf("%s: %v", s.ID, err)
			} else if !equal(lines, want[i]) {
				t.Errorf("%s: read %v, undisturbed %v", s.ID, lines, want[i])
			}
			return
		}
	})
	close(over)
	killer.Wait()
	for i := range answers {
		require.Equal(t, int64(1), answers[i].Load())
	}
	require.Positive(t, kills.Load())
	t.Logf("%d pictures, %d kills, %d asked again, %+v", len(all), kills.Load(), asked.Load()-int64(len(all)), r.Stats())
}

func equal(a, b []ocr.Line) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A stopped process looks to its parent like a Tesseract that hangs.
func TestAHangingTesseractIsKilledAtTheDeadlineAndReplaced(t *testing.T) {
	t.Parallel()
	all := scenes(t, 128)
	r := newReader(t, tesseract.Config{Slots: 1})
	want, err := r.ReadText(t.Context(), all[0].px, 0)
	require.NoError(t, err)
	pid := r.Stats().PIDs[0]
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = r.ReadText(ctx, all[0].px, 0)
	require.ErrorIs(t, err, rewards.Timeout)
	require.Less(t, time.Since(began), 20*time.Second)
	got, err := r.ReadText(t.Context(), all[0].px, 0)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NotEqual(t, pid, r.Stats().PIDs[0])
	require.Equal(t, uint64(1), r.Stats().Timeouts)
}

func TestInlineIsolationRefusesAProcessWithoutTheThreadLimit(t *testing.T) {
	t.Parallel()
	r, err := tesseract.New(tesseract.Config{Slots: 1, Isolation: tesseract.Inline})
	require.NoError(t, err)
	defer r.Close()
	err = r.Warm(t.Context())
	if err == nil {
		t.Log("this test runs with OMP_THREAD_LIMIT=1, so inline is allowed")
		all := scenes(t, 128)
		_, err := r.ReadText(t.Context(), all[0].px, 0)
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, rewards.Unavailable)
	require.ErrorContains(t, err, "OMP_THREAD_LIMIT=1 must be in the environment before the process starts")
}
