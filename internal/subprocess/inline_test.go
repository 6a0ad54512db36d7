package subprocess_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

type handlerFunc func(subprocess.Call) ([]byte, error)

func (f handlerFunc) Handle(c subprocess.Call) ([]byte, error) { return f(c) }

func newInline(t *testing.T, slots int, f handlerFunc) *subprocess.Inline {
	t.Helper()
	p, err := subprocess.NewInline(subprocess.Config{Slots: slots}, subprocess.Kind{
		Name: "test",
		New:  func([]byte) (subprocess.Handler, error) { return f, nil },
	})
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	return p
}

func TestInlineAnswersLikeAPool(t *testing.T) {
	t.Parallel()
	p := newInline(t, 2, (&hasher{}).Handle)
	px := []byte("pixels")
	resp, err := p.Do(t.Context(), work("hash", px))
	require.NoError(t, err)
	require.Equal(t, string(hash(px)), string(resp.Body))
	_, err = p.Do(t.Context(), work("error"))
	require.ErrorIs(t, err, subprocess.ErrHandler)
	require.NoError(t, p.Stop(t.Context()))
	require.NoError(t, p.Stop(t.Context()))
	_, err = p.Do(t.Context(), work("hash"))
	require.ErrorIs(t, err, subprocess.ErrUnavailable)
}

func TestInlineCatchesAPanicAndReturnsAtTheDeadline(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := newInline(t, 1, func(c subprocess.Call) ([]byte, error) {
		if string(c.Meta) == "panic" {
			panic("oh no")
		}
		<-release
		return nil, errors.New("late")
	})
	_, err := p.Do(t.Context(), work("panic"))
	require.ErrorIs(t, err, subprocess.ErrCrashed)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = p.Do(ctx, work("hang"))
	require.ErrorIs(t, err, subprocess.ErrTimeout)
	_, err = p.Do(ctx, work("hang"))
	require.ErrorIs(t, err, subprocess.ErrTimeout, "its slot is still taken")
	close(release)
	require.NoError(t, p.Stop(t.Context()))
	require.Equal(t, uint64(1), p.Stats().Crashes)
}

// asError returns what the parent knows of a handler's error.
func asError(t *testing.T, err error) *subprocess.Error {
	t.Helper()
	var e *subprocess.Error
	require.ErrorAs(t, err, &e)
	return e
}

// runner is what Pool and Inline have in common.
type runner interface {
	Do(ctx context.Context, req subprocess.Request) (subprocess.Response, error)
	Stats() subprocess.Stats
}

// both runs a test with children and without.
func both(t *testing.T, test func(t *testing.T, p runner)) {
	t.Helper()
	t.Run("process", func(t *testing.T) {
		t.Parallel()
		test(t, newPool(t, subprocess.Config{Slots: 1}))
	})
	t.Run("inline", func(t *testing.T) {
		t.Parallel()
		p := newInline(t, 1, (&hasher{}).Handle)
		t.Cleanup(func() { require.NoError(t, p.Stop(context.WithoutCancel(t.Context()))) })
		test(t, p)
	})
}

func TestTheClassOfAHandlersErrorArrives(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p runner) {
		t.Helper()
		_, err := p.Do(t.Context(), work("classed"))
		require.ErrorIs(t, err, subprocess.ErrHandler)
		e := asError(t, err)
		require.Equal(t, subprocess.Error{Class: "memory", Message: "further out: no room"}, *e)
		_, err = p.Do(t.Context(), work("error"))
		require.Equal(t, subprocess.Error{Message: "no such luck"}, *asError(t, err))
		require.Zero(t, p.Stats().Crashes)
	})
}

func TestAHandlerThatIsSpoiltTwiceFailsTheRequestByNameAndIsReplaced(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p runner) {
		t.Helper()
		_, err := p.Do(t.Context(), work("fatal", []byte{1}))
		require.ErrorIs(t, err, subprocess.ErrCrashed)
		require.ErrorContains(t, err, "sample fatal")
		require.Equal(t, subprocess.Error{Class: "fault", Message: "further out: error 700 for good"}, *asError(t, err))
		require.Equal(t, uint64(2), p.Stats().Crashes)
		require.Equal(t, 1, p.Stats().Quarantined)
		_, err = p.Do(t.Context(), work("fatal", []byte{1}))
		require.ErrorContains(t, err, "quarantine")
		require.Equal(t, "fault", asError(t, err).Class, "the reason is remembered")
		require.Equal(t, uint64(2), p.Stats().Crashes, "no third dies of it")
		resp, err := p.Do(t.Context(), work("hash", []byte{1}))
		require.NoError(t, err)
		require.Equal(t, string(hash([]byte{1})), string(resp.Body))
	})
}

func TestAHandlerThatIsSpoiltOnceCostsTheRequestNothing(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p runner) {
		t.Helper()
		px := []byte("pixels")
		resp, err := p.Do(t.Context(), work("fatalonce:"+t.TempDir()+"/flag", px))
		require.NoError(t, err)
		require.Equal(t, string(hash(px)), string(resp.Body))
		require.Equal(t, uint64(1), p.Stats().Crashes)
		require.Contains(t, p.Stats().LastError, "spoilt once")
	})
}

func TestAnAnswerMayBeAsLongAsTheBoundAndNoLonger(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p runner) {
		t.Helper()
		resp, err := p.Do(t.Context(), work("large"))
		require.NoError(t, err)
		require.Len(t, resp.Body, subprocess.MaxAnswer)
		require.Equal(t, byte(7), resp.Body[subprocess.MaxAnswer-1])
		_, err = p.Do(t.Context(), work("huge"))
		require.ErrorIs(t, err, subprocess.ErrHandler)
		require.Equal(t, subprocess.TooLong, asError(t, err).Class)
	})
}

func TestAHandlerKnowsItsDeadlineRunsOnOneThreadAndSeesAlignedPixels(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, p runner) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		resp, err := p.Do(ctx, work("budget"))
		require.NoError(t, err)
		ms, err := strconv.Atoi(string(resp.Body))
		require.NoError(t, err)
		require.True(t, ms > 10_000 && ms <= 20_000, "%d ms", ms)
		var seen []string
		for n := range 20 {
			resp, err := p.Do(t.Context(), work("thread", make([]byte, 1+n*37)))
			require.NoError(t, err)
			seen = append(seen, string(resp.Body))
		}
		require.Len(t, slices.Compact(seen), 1, "thread and offset: %v", seen)
		require.True(t, strings.HasSuffix(seen[0], " 0"), seen[0])
	})
}

type closing struct {
	handlerFunc
	closed *atomic.Int64
}

func (c closing) Close() error { c.closed.Add(1); return nil }

func TestInlineClosesTheHandlersItEndsAndReplaces(t *testing.T) {
	t.Parallel()
	var closed, made atomic.Int64
	p, err := subprocess.NewInline(subprocess.Config{Slots: 2}, subprocess.Kind{Name: "test", New: func([]byte) (subprocess.Handler, error) {
		made.Add(1)
		return closing{(&hasher{}).Handle, &closed}, nil
	}})
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	_, err = p.Do(t.Context(), work("fatal"))
	require.ErrorIs(t, err, subprocess.ErrCrashed)
	require.NoError(t, p.Stop(t.Context()))
	require.Equal(t, made.Load(), closed.Load())
	require.Equal(t, int64(4), made.Load(), "the last one shows whose fault it was")
}

func TestAnInlineThatDoesNotStartLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	p, err := subprocess.NewInline(subprocess.Config{Slots: 2}, subprocess.Kind{Name: "test", New: func([]byte) (subprocess.Handler, error) {
		return nil, subprocess.Classed("model", errors.New("no model"))
	}})
	require.NoError(t, err)
	err = p.Start(t.Context())
	require.ErrorIs(t, err, subprocess.ErrUnavailable)
	require.Equal(t, "model", asError(t, err).Class)
	_, err = p.Do(t.Context(), work("hash"))
	require.ErrorIs(t, err, subprocess.ErrUnavailable)
}

func TestAHandlerThatOutlivesTheStopIsClosedWhenItHasReturned(t *testing.T) {
	t.Parallel()
	var closed atomic.Int64
	began, release := make(chan struct{}), make(chan struct{})
	p, err := subprocess.NewInline(subprocess.Config{Slots: 2}, subprocess.Kind{Name: "test", New: func([]byte) (subprocess.Handler, error) {
		return closing{func(subprocess.Call) ([]byte, error) {
			close(began)
			<-release
			return nil, nil
		}, &closed}, nil
	}})
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.Do(ctx, work("hang"))
		done <- err
	}()
	<-began
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.ErrorIs(t, p.Stop(ctx), subprocess.ErrTimeout)
	close(release)
	require.Eventually(t, func() bool { return closed.Load() == 2 }, 10*time.Second, time.Millisecond, "and no goroutine is left of it: TestMain")
}

func TestAnInlineThatWasNotStartedRefuses(t *testing.T) {
	t.Parallel()
	p, err := subprocess.NewInline(subprocess.Config{}, subprocess.Kind{Name: "test"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = p.Do(ctx, work("hash"))
	require.ErrorIs(t, err, subprocess.ErrUnavailable)
}
