//go:build cgo && tesseract

package tesseract_test

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr/tesseract"
)

// noise is a picture that takes Tesseract a while.
func noise() *rewards.Pixels {
	rng := rand.New(rand.NewPCG(1, 2))
	px := &rewards.Pixels{Width: 800, Height: 800, Count: 1, RGB: make([]byte, 800*800*3)}
	for i := range px.RGB {
		px.RGB[i] = byte(rng.Uint32())
	}
	return px
}

// strike sends a signal to the first so many children that read.
func strike(t *testing.T, r *tesseract.Reader, times int, signal syscall.Signal) {
	t.Helper()
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		last := 0
		for times > 0 {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
			}
			s := r.Stats()
			if s.Busy == 0 || len(s.PIDs) != 1 || s.PIDs[0] == last {
				continue
			}
			last = s.PIDs[0]
			_ = syscall.Kill(last, signal)
			times--
		}
	}()
	t.Cleanup(func() { close(over); <-done })
}

func TestTheBlameForAChildIsByTheTable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	for _, tt := range []struct {
		event  string
		signal syscall.Signal
		times  int
		class  rewards.Class
		blame  rewards.Blame
	}{
		{"child crashed once: once more elsewhere", syscall.SIGSEGV, 1, "", ""},
		{"child crashed twice", syscall.SIGSEGV, 2, rewards.Crashed, rewards.BlameSample},
		{"SIGKILL that is not ours", syscall.SIGKILL, 2, rewards.Crashed, rewards.BlameWorker},
		{"timeout while executing", syscall.SIGSTOP, 1, rewards.Timeout, rewards.BlameReward},
	} {
		t.Run(tt.event, func(t *testing.T) {
			t.Parallel()
			cfg := tesseract.Config{Slots: 1}
			if tt.signal == syscall.SIGSTOP {
				cfg.Timeout = time.Second
			}
			r := newReader(t, cfg)
			strike(t, r, tt.times, tt.signal)
			_, err := r.ReadText(t.Context(), noise(), 0)
			blame, permanent := rewards.BlameOf(err)
			assert.Equal(t, tt.class, rewards.ClassOf(err), "%v", err)
			assert.Equal(t, tt.blame, blame, "%v", err)
			assert.False(t, permanent)
		})
	}
	t.Run("timeout while queued for a child", func(t *testing.T) {
		t.Parallel()
		r := newReader(t, tesseract.Config{Slots: 1, Timeout: 2 * time.Second})
		strike(t, r, 1, syscall.SIGSTOP)
		first := make(chan struct{})
		go func() {
			defer close(first)
			_, _ = r.ReadText(t.Context(), noise(), 0)
		}()
		require.Eventually(t, func() bool { return r.Stats().Busy == 1 }, 10*time.Second, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := r.ReadText(ctx, noise(), 0)
		<-first
		blame, _ := rewards.BlameOf(err)
		assert.Equal(t, rewards.Timeout, rewards.ClassOf(err), "%v", err)
		assert.Equal(t, rewards.BlameNobody, blame, "%v", err)
	})
	t.Run("a language that is missing on this worker", func(t *testing.T) {
		t.Parallel()
		r, err := tesseract.New(tesseract.Config{Slots: 1, Language: "xxx"})
		require.NoError(t, err)
		defer r.Close()
		err = r.Warm(t.Context())
		blame, permanent := rewards.BlameOf(err)
		assert.Equal(t, rewards.Unavailable, rewards.ClassOf(err), "%v", err)
		assert.Equal(t, rewards.BlameWorker, blame, "%v", err)
		assert.True(t, permanent)
	})
	t.Run("bad input", func(t *testing.T) {
		t.Parallel()
		r := newReader(t, tesseract.Config{Slots: 1, MaxPixels: 1 << 14})
		_, err := r.ReadText(t.Context(), noise(), 0)
		blame, _ := rewards.BlameOf(err)
		assert.Equal(t, rewards.BadInput, rewards.ClassOf(err), "%v", err)
		assert.Equal(t, rewards.BlameSample, blame)
	})
	t.Run("the reader is closed: the worker ends", func(t *testing.T) {
		t.Parallel()
		r := newReader(t, tesseract.Config{Slots: 1})
		require.NoError(t, r.Close())
		_, err := r.ReadText(t.Context(), noise(), 0)
		blame, permanent := rewards.BlameOf(err)
		assert.Equal(t, rewards.Unavailable, rewards.ClassOf(err), "%v", err)
		assert.Equal(t, rewards.BlameWorker, blame)
		assert.False(t, permanent)
	})
}
