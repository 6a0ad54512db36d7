//go:build linux

package main_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	main "github.com/rewardloop/rewardloop/cmd/rewardloop"
	"github.com/rewardloop/rewardloop/testkit/fleet"
	"github.com/rewardloop/rewardloop/testkit/liveness"
)

// durableFleets are one process, and a gateway with the broker inside and two workers.
func durableFleets(t *testing.T, test func(t *testing.T, f *fleet.Fleet, gateway *fleet.Process)) {
	t.Helper()
	slow := fleet.Config{Binary: main.Binary(t), Durable: true, ScoreLeast: 200 * time.Millisecond, ScoreMost: 600 * time.Millisecond}
	t.Run("one process", func(t *testing.T) {
		t.Parallel()
		f := fleet.New(t, slow)
		test(t, f, f.Alone("alone"))
	})
	t.Run("workers elsewhere", func(t *testing.T) {
		t.Parallel()
		f := fleet.New(t, slow)
		g := f.Gateway("g1", nil)
		f.Worker("w1", nil)
		f.Worker("w2", nil)
		test(t, f, g)
	})
}

// A client that comes back gets every result once; what had its result before the kill
// was not scored again.
func TestADurableGatewayKilledTwiceAnswersOnceAndScoresNothingTwiceThatHadItsResult(t *testing.T) {
	t.Parallel()
	durableFleets(t, func(t *testing.T, f *fleet.Fleet, gateway *fleet.Process) {
		t.Helper()
		run := f.Load(fleet.Load{Samples: 240, Bytes: 64 << 10, PerSecond: 30}, gateway)
		written := map[string]int{} // how often it was scored until the kill
		for _, n := range []int{50, 120} {
			run.Reached(n)
			answered := run.Answered()
			run.Reached(n + 10) // a result is on disk milliseconds after it was sent
			for _, id := range answered {
				written[id] = f.Scored(id)
			}
			gateway.Kill9()
			gateway.Start()
			require.Contains(t, gateway.Log(), "samples were restored from the spool")
		}
		report := run.Wait()
		t.Log(report)
		report.Check(t)
		for id, n := range written {
			assert.Equal(t, n, f.Scored(id), "sample %s was scored again", id)
		}
		assert.GreaterOrEqual(t, len(written), 120)
		f.Lives(liveness.Death, gateway)
	})
}

// A client that is gone for good: what was acknowledged is scored all the same.
func TestADurableGatewayScoresWhatItAcknowledgedAlthoughTheClientNeverComesBack(t *testing.T) {
	t.Parallel()
	durableFleets(t, func(t *testing.T, f *fleet.Fleet, gateway *fleet.Process) {
		t.Helper()
		const samples = 100
		run := f.Load(fleet.Load{Samples: samples, Bytes: 64 << 10, PerSecond: 400}, gateway)
		f.Await("every sample is acknowledged", func() bool { return len(run.Acknowledged()) == samples })
		run.Leave()
		gateway.Kill9()
		scored := func() (n int) {
			for _, id := range run.Acknowledged() {
				if f.Scored(id) > 0 {
					n++
				}
			}
			return n
		}
		before := scored()
		require.Less(t, before, samples, "the scorer was too fast for this test")
		gateway.Start()
		f.Await("every sample is scored", func() bool { return scored() == samples })
		t.Logf("%d of %d samples were scored in the first life", before, samples)
		f.Lives(liveness.Death, gateway)
	})
}
