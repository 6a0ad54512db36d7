// Package liveness is the phase that closes a test of faults: after the last one, a client
// that nobody has seen before is served.
package liveness

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

const (
	// Samples is how many the fresh client sends, where they do not take long.
	Samples = 200
	// Watchdog is how many times the bound a real machine may take, which has other work.
	Watchdog = 3
	// overhead is what a deployment of any size is given beside the scoring.
	overhead = 5 * time.Second
)

// For how long a fault may be felt, by its kind.
const (
	// Death is that of a process.
	Death = 10 * time.Second
	// Backoff is that of a Python function whose process does not start.
	Backoff = 5 * time.Second
)

// Bound is within what time the samples of a fresh client end: B = 2 × alone + 5 s + R. Alone
// is how long they take where nothing else is going on, R how long the last fault may be felt.
func Bound(alone, r time.Duration) time.Duration { return 2*alone + overhead + r }

// Check sends n samples and fails the test unless each is scored within Watchdog × Bound. The
// client is one that the test has not used before. It returns the results in their order.
func Check(t testing.TB, c *client.Client, n int, alone, r time.Duration, sample func(i int) *rewards.Sample) []*wire.Result {
	t.Helper()
	bound := Bound(alone, r)
	ctx, cancel := context.WithTimeout(t.Context(), Watchdog*bound)
	defer cancel()
	begun := time.Now()
	futures, results := make([]*client.Future, n), make([]*wire.Result, n)
	for i := range futures {
		var err error
		futures[i], err = c.Submit(ctx, sample(i), 0)
		require.NoError(t, err, "sample %d of a fresh client, %v after the first", i, time.Since(begun))
	}
	for i, f := range futures {
		var err error
		results[i], err = f.Wait(ctx)
		require.NoError(t, err, "sample %d of a fresh client has no result after %v; the bound is %v", i, time.Since(begun), bound)
		require.Equal(t, rewards.Scored, results[i].Outcome, "sample %d of a fresh client: %v", i, results[i].Errors)
	}
	t.Logf("%d samples of a fresh client: %v, bound %v", n, time.Since(begun), bound)
	return results
}
