package subprocess_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// probed is a canary that counts how often it is answered, wrongly while lost is set.
type probed struct {
	asked atomic.Int64
	lost  atomic.Bool
}

func (p *probed) canary() *subprocess.Canary {
	return &subprocess.Canary{Request: work("hash"), Check: func([]byte) error {
		p.asked.Add(1)
		if p.lost.Load() {
			return errors.New("the device is lost")
		}
		return nil
	}}
}

// card is a device on which everything is suspicious but numbers.
func card() *subprocess.Device {
	return &subprocess.Device{Name: "cuda:0", Suspect: func(class string) bool { return class != "numbers" }, Failures: 4, Rest: 300 * time.Millisecond}
}

// newCard starts the one child of a device.
func newCard(t *testing.T, p *probed, cfg subprocess.Config) *subprocess.Pool {
	t.Helper()
	cfg.Slots, cfg.Canary = 1, p.canary()
	if cfg.Device == nil {
		cfg.Device = card()
	}
	cfg.BackoffMin, cfg.BackoffMax = time.Millisecond, 10*time.Millisecond
	return newPool(t, cfg)
}

func TestAnIdleChildOfADeviceAnswersTheCanaryAndIsReplacedOnceItDoesNot(t *testing.T) {
	t.Parallel()
	var canary probed
	p := newCard(t, &canary, subprocess.Config{PingEvery: 50 * time.Millisecond})
	first := p.Stats().PIDs
	require.Eventually(t, func() bool { return canary.asked.Load() > 3 }, 20*time.Second, time.Millisecond)
	require.Equal(t, first, p.Stats().PIDs)
	canary.lost.Store(true)
	require.Eventually(t, func() bool { return p.Stats().Crashes == 1 }, 20*time.Second, time.Millisecond)
	canary.lost.Store(false)
	resp, err := p.Do(t.Context(), work("hash", []byte("x")))
	require.NoError(t, err)
	require.Equal(t, string(hash([]byte("x"))), string(resp.Body))
	require.NotEqual(t, first, p.Stats().PIDs)
	require.Contains(t, p.Stats().LastError, "the device is lost")
}

func TestAfterASuspiciousErrorAChildAnswersTheCanaryBeforeItsNextRequest(t *testing.T) {
	t.Parallel()
	var canary probed
	device := card()
	device.Suspect = func(class string) bool { return class == "memory" }
	p := newCard(t, &canary, subprocess.Config{Device: device})
	require.EqualValues(t, 1, canary.asked.Load(), "at its start")
	_, err := p.Do(t.Context(), work("error"))
	require.ErrorIs(t, err, subprocess.ErrHandler)
	_, err = p.Do(t.Context(), work("hash"))
	require.NoError(t, err)
	require.EqualValues(t, 1, canary.asked.Load(), "an input that was refused says nothing of the device")
	_, err = p.Do(t.Context(), work("classed"))
	require.ErrorIs(t, err, subprocess.ErrHandler)
	_, err = p.Do(t.Context(), work("hash"))
	require.NoError(t, err)
	require.EqualValues(t, 2, canary.asked.Load())
	require.Zero(t, p.Stats().Crashes)

	canary.lost.Store(true)
	_, err = p.Do(t.Context(), work("classed"))
	require.ErrorIs(t, err, subprocess.ErrHandler, "the answer is the caller's all the same")
	require.Eventually(t, func() bool { return p.Stats().Crashes == 1 }, 20*time.Second, time.Millisecond)
}

// quarantined waits for the quarantine to begin.
func quarantined(t *testing.T, p *subprocess.Pool) *subprocess.Quarantine {
	t.Helper()
	require.Eventually(t, func() bool { return p.Stats().Quarantine != nil }, 20*time.Second, time.Millisecond)
	return p.Stats().Quarantine
}

// answers asks until a request is answered.
func answers(t *testing.T, p *subprocess.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := p.Do(t.Context(), work("hash", []byte("well")))
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
}

func TestADeviceWhoseChildrenKeepFailingIsNotUsedForAWhileAndSaysWhyAndUntilWhen(t *testing.T) {
	t.Parallel()
	var canary probed
	device := card()
	device.Rest, device.RestMax = time.Second, time.Hour
	p := newCard(t, &canary, subprocess.Config{Device: device})
	_, err := p.Do(t.Context(), work("fatal", []byte("a"))) // two children
	require.ErrorIs(t, err, subprocess.ErrCrashed)
	require.Nil(t, p.Stats().Quarantine)
	_, err = p.Do(t.Context(), work("fatal", []byte("b"))) // two more, and nothing was answered in between
	require.ErrorIs(t, err, subprocess.ErrCrashed)
	require.ErrorIs(t, err, subprocess.ErrHost, "the device is to blame, and not this input")
	require.ErrorContains(t, err, "cuda:0 is in quarantine until")

	q := quarantined(t, p)
	require.WithinDuration(t, time.Now().Add(time.Second), q.Until, time.Second)
	require.Contains(t, q.Why, "failed 4 times within 10m0s")
	require.Contains(t, q.Why, "error 700 for good")
	require.Zero(t, p.Stats().Alive)
	asked, began := canary.asked.Load(), time.Now()
	_, err = p.Do(t.Context(), work("hash"))
	require.ErrorIs(t, err, subprocess.ErrUnavailable)
	require.ErrorContains(t, err, "cuda:0 is in quarantine until")
	require.NotErrorIs(t, err, subprocess.ErrHandler)
	require.Less(t, time.Since(began), 10*time.Second, "it is refused at once")

	answers(t, p)
	require.False(t, time.Now().Before(q.Until), "no child was started before")
	require.Equal(t, asked+1, canary.asked.Load(), "it was tried again with one canary")
	require.Nil(t, p.Stats().Quarantine)

	_, err = p.Do(t.Context(), work("fatal", []byte("c"))) // one failure is enough now
	require.Error(t, err)
	again := quarantined(t, p)
	require.Greater(t, time.Until(again.Until), 500*time.Millisecond)
	require.Contains(t, again.Why, "failed 4 times")
}

func TestADeviceThatDoesNotStartAnyMoreRestsAndComesBack(t *testing.T) {
	t.Parallel()
	var canary probed
	p := newCard(t, &canary, subprocess.Config{})
	canary.lost.Store(true)
	require.NoError(t, syscall.Kill(p.Stats().PIDs[0], syscall.SIGKILL))
	q := quarantined(t, p)
	require.Contains(t, q.Why, "the device is lost")
	canary.lost.Store(false)
	answers(t, p)
	require.Nil(t, p.Stats().Quarantine)
}

func TestInputsThatKillAndChildrenKilledFromOutsidePutNoDeviceIntoQuarantine(t *testing.T) {
	t.Parallel()
	var canary probed
	p := newCard(t, &canary, subprocess.Config{})
	for i := range 3 { // of which two would be enough
		_, err := p.Do(t.Context(), work("segv", []byte{byte(i)}))
		require.ErrorIs(t, err, subprocess.ErrCrashed)
		require.NotErrorIs(t, err, subprocess.ErrHost)
		_, err = p.Do(t.Context(), work("hash", []byte{byte(i)}))
		require.NoError(t, err, "the device answers others")
	}
	for i := range 3 {
		_, err := p.Do(t.Context(), work("nan", []byte{byte(i)}))
		require.ErrorIs(t, err, subprocess.ErrCrashed)
	}
	for range 3 {
		_, err := p.Do(t.Context(), work("kill"))
		require.ErrorIs(t, err, subprocess.ErrHost)
	}
	require.Nil(t, p.Stats().Quarantine)
	require.EqualValues(t, 18, p.Stats().Crashes)
}

func TestHangsPutADeviceIntoQuarantine(t *testing.T) {
	t.Parallel()
	var canary probed
	p := newCard(t, &canary, subprocess.Config{RequestTimeout: 50 * time.Millisecond})
	for range 4 {
		_, err := p.Do(t.Context(), work("hang"))
		require.ErrorIs(t, err, subprocess.ErrTimeout)
	}
	require.Contains(t, quarantined(t, p).Why, "deadline")
	answers(t, p)
}

func TestAWrongAnswerCostsItsChildAndTheRequestIsTriedAgain(t *testing.T) {
	t.Parallel()
	p := newPool(t, subprocess.Config{Slots: 1})
	first := p.Stats().PIDs
	req := work("hash", []byte("x"))
	tries := 0
	req.Check = func([]byte) error {
		if tries++; tries == 1 {
			return errors.New("garbage")
		}
		return nil
	}
	resp, err := p.Do(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, string(hash([]byte("x"))), string(resp.Body))
	require.NotEqual(t, first, p.Stats().PIDs)
	require.Contains(t, p.Stats().LastError, "a wrong answer: garbage")

	req.Check = func([]byte) error { return errors.New("garbage") }
	_, err = p.Do(t.Context(), req)
	require.ErrorIs(t, err, subprocess.ErrCrashed)

	inline, err := subprocess.NewInline(subprocess.Config{Slots: 1}, kinds()[0])
	require.NoError(t, err)
	require.NoError(t, inline.Start(t.Context()))
	_, err = inline.Do(t.Context(), req)
	require.ErrorIs(t, err, subprocess.ErrCrashed)
	require.NoError(t, inline.Stop(t.Context()))
}

func TestStopEndsAQuarantine(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts child processes")
	}
	var canary probed
	device := card()
	device.Rest, device.RestMax = time.Hour, time.Hour
	canary.lost.Store(false)
	p, err := subprocess.New(subprocess.Config{Kind: "hash", Slots: 1, Canary: canary.canary(), Device: device, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	canary.lost.Store(true)
	require.NoError(t, syscall.Kill(p.Stats().PIDs[0], syscall.SIGKILL))
	quarantined(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, p.Stop(ctx))
}

func TestADeviceNamesItsFaults(t *testing.T) {
	t.Parallel()
	_, err := subprocess.New(subprocess.Config{Kind: "hash", Slots: 2, Device: &subprocess.Device{Name: "cuda:0", Failures: 3, Rest: time.Hour}})
	for _, says := range []string{`device "cuda:0" with 2 slots, want one, a canary`, "after 3 failures, want more than 3", "quarantine from 1h0m0s to 5m0s"} {
		require.ErrorContains(t, err, says)
	}
	_, err = subprocess.New(subprocess.Config{Kind: "hash", Slots: 1, Device: &subprocess.Device{Suspect: func(string) bool { return true }}, Canary: lost(&atomic.Bool{})})
	require.NoError(t, err)
}
