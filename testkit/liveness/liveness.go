// Package liveness is the last phase of a test of faults: after the last fault, the samples of a
// new client must be scored.
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
	// Samples is the usual number of samples of the new client, if scoring them is fast.
	Samples = 200
	// Watchdog is the factor by which a real machine, which has other work, may exceed the bound.
	Watchdog = 3
	// overhead is what a deployment of any size is given beside the scoring.
	overhead = 5 * time.Second
)

// How long a fault may have an effect, by its kind.
const (
	// Death is the time for a process that was killed.
	Death = 10 * time.Second
	// Backoff is the time for a Python function whose process does not start.
	Backoff = 5 * time.Second
)

// Bound returns the time within which the samples of a new client must be scored: B = 2 × alone + 5
// s + R. alone is the time for the samples without any other load. r (R) is how long the last fault
// may have an effect.
func Bound(alone, r time.Duration) time.Duration { return 2*alone + overhead + r }

// Check sends n samples and fails the test unless each is scored within Watchdog × Bound. The test
// must not have used the client before. Check returns the results in the order of the samples.
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
