package subprocess_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// lost is a canary that children answer until it is set.
func lost(gone *atomic.Bool) *subprocess.Canary {
	return &subprocess.Canary{Request: work("hash"), Check: func([]byte) error {
		if gone.Load() {
			return errors.New("the device is lost")
		}
		return nil
	}}
}

func TestWhoIsToBlameForADeadChildIsSeenByItsReplacement(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		event       string
		order       string
		spoil       bool // no child answers the canary any more once the second has begun
		host        bool
		quarantined int
	}{
		{event: "crashed twice, and the next child is well", order: "segv", quarantined: 1},
		{event: "spoilt twice by its own account, and the next child is well", order: "fatal", quarantined: 1},
		{event: "crashed twice, and the next child fails the canary", order: "segv", spoil: true, host: true},
		{event: "SIGKILL that is not ours", order: "kill", host: true},
	} {
		t.Run(tt.event, func(t *testing.T) {
			t.Parallel()
			var gone atomic.Bool
			p := newPool(t, subprocess.Config{Slots: 2, Canary: lost(&gone), BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond})
			var began atomic.Int64
			req := work(tt.order, []byte("x"))
			req.Began = func() {
				if began.Add(1) == 2 {
					gone.Store(tt.spoil)
				}
			}
			_, err := p.Do(t.Context(), req)
			require.ErrorIs(t, err, subprocess.ErrCrashed)
			assert.Equal(t, tt.host, errors.Is(err, subprocess.ErrHost), "%v", err)
			assert.Equal(t, tt.quarantined, p.Stats().Quarantined)
			assert.EqualValues(t, 2, began.Load(), "each child that takes it is reported")
		})
	}
}

func TestAnInlineHandlerThatCannotBeReplacedIsTheHostsFault(t *testing.T) {
	t.Parallel()
	for _, spoil := range []bool{false, true} {
		var gone atomic.Bool
		h := (&hasher{}).Handle
		p, err := subprocess.NewInline(subprocess.Config{Slots: 1, Canary: lost(&gone)}, subprocess.Kind{Name: "test", New: func([]byte) (subprocess.Handler, error) {
			return handlerFunc(func(c subprocess.Call) ([]byte, error) {
				if string(c.Meta) == "fatal" {
					gone.Store(spoil)
				}
				return h(c)
			}), nil
		}})
		require.NoError(t, err)
		require.NoError(t, p.Start(t.Context()))
		_, err = p.Do(t.Context(), work("fatal"))
		assert.Equal(t, spoil, errors.Is(err, subprocess.ErrHost) || errors.Is(err, subprocess.ErrUnavailable), "%v", err)
		require.NoError(t, p.Stop(t.Context()))
	}
}

func TestAWaitForAChildIsToldFromItsWork(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1, RequestTimeout: time.Second}) // and then the child is killed
	busy, leave := context.WithCancel(t.Context())
	begun := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		req := work("hang")
		req.Began = func() { close(begun) }
		_, _ = p.Do(busy, req)
	}()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	req := work("hash")
	req.Began = func() { t.Error("no child took it") }
	_, err := p.Do(ctx, req)
	require.ErrorIs(t, err, subprocess.ErrTimeout)
	require.ErrorIs(t, err, subprocess.ErrWaiting)
	leave()
	<-done

	q := newPool(t, subprocess.Config{Slots: 1, RequestTimeout: 50 * time.Millisecond})
	_, err = q.Do(t.Context(), work("hang"))
	require.ErrorIs(t, err, subprocess.ErrTimeout)
	require.NotErrorIs(t, err, subprocess.ErrWaiting)
	ctx, over := context.WithTimeout(t.Context(), 0)
	defer over()
	_, err = q.Do(ctx, work("hash"))
	require.ErrorIs(t, err, subprocess.ErrWaiting)
}
