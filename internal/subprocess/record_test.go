package subprocess

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestADeviceRestsLongerEachTimeAndIsForgivenAfterAWhile(t *testing.T) {
	t.Parallel()
	r := &record{device: Device{Name: "cuda:0"}.withDefaults()}
	now, why := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), errors.New("error 700")
	fail := func(after time.Duration) time.Duration {
		now = now.Add(after)
		return r.failed(why, now)
	}
	for range 4 {
		require.Zero(t, fail(time.Second))
	}
	require.Equal(t, 30*time.Second, fail(time.Second))
	require.EqualError(t, r.err(), "cuda:0 is in quarantine until 03:04:40 UTC: child processes failed 5 times within 10m0s, the last time: error 700")
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		require.Equal(t, want, fail(6*time.Minute), "the first failure after a quarantine begins the next")
	}
	for range 4 {
		require.Zero(t, fail(16*time.Minute), "old failures do not count")
	}
	require.Zero(t, fail(3*time.Minute))
	require.Zero(t, fail(3*time.Minute))
	r.excuse(2)
	r.worked()
	for range 3 {
		require.Zero(t, fail(0))
	}
	require.Equal(t, 30*time.Second, fail(0), "after the time without failures the first quarantine is short again")
}
