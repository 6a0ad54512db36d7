package slot_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/slot"
)

type handlerFunc func(slot.Call) ([]byte, error)

func (f handlerFunc) Handle(c slot.Call) ([]byte, error) { return f(c) }

func newInline(t *testing.T, slots int, f handlerFunc) *slot.Inline {
	t.Helper()
	p, err := slot.NewInline(slot.Config{Slots: slots}, slot.Kind{
		Name: "test",
		New:  func([]byte) (slot.Handler, error) { return f, nil },
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
	require.ErrorIs(t, err, slot.ErrHandler)
	require.NoError(t, p.Stop(t.Context()))
	require.NoError(t, p.Stop(t.Context()))
	_, err = p.Do(t.Context(), work("hash"))
	require.ErrorIs(t, err, slot.ErrUnavailable)
}

func TestInlineCatchesAPanicAndReturnsAtTheDeadline(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := newInline(t, 1, func(c slot.Call) ([]byte, error) {
		if string(c.Meta) == "panic" {
			panic("oh no")
		}
		<-release
		return nil, errors.New("late")
	})
	_, err := p.Do(t.Context(), work("panic"))
	require.ErrorIs(t, err, slot.ErrCrashed)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = p.Do(ctx, work("hang"))
	require.ErrorIs(t, err, slot.ErrTimeout)
	_, err = p.Do(ctx, work("hang"))
	require.ErrorIs(t, err, slot.ErrTimeout, "its slot is still taken")
	close(release)
	require.NoError(t, p.Stop(t.Context()))
	require.Equal(t, uint64(1), p.Stats().Crashes)
}
