package workers_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// counting is a source that notes when leases are extended, and of which queues tickets are
// asked for.
type counting struct {
	workers.Source

	mu       sync.Mutex
	extended []time.Time     // guarded by mu
	asked    map[string]bool // guarded by mu
}

func (c *counting) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	c.mu.Lock()
	c.asked[queue] = true
	c.mu.Unlock()
	got, err := c.Source.Take(ctx, queue, n)
	for i, l := range got {
		got[i] = &countedLease{l, c}
	}
	return got, err
}

type countedLease struct {
	workers.Lease
	c *counting
}

func (l *countedLease) Extend(ctx context.Context) error {
	l.c.mu.Lock()
	l.c.extended = append(l.c.extended, time.Now())
	l.c.mu.Unlock()
	return l.Lease.Extend(ctx)
}

// onCounting runs a test in fake time with one worker of four places that extends leases every
// 5 s, and serves the profiles of which each sample takes so long.
func onCounting(t *testing.T, serves map[string]time.Duration, test func(t *testing.T, r *rig.Rig, c *counting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		queue := memqueue.New(1, 15*time.Second)
		defer queue.Close()
		c := &counting{Source: queue.NewSource("w0"), asked: map[string]bool{}}
		all := map[string]*rewards.Manager{}
		for name, took := range serves {
			m, err := rewards.NewManager(rewards.ManagerConfig{Timeout: time.Hour, Components: []rewards.Component{{
				Key: "one", Weight: 1, Required: true,
				Scorer: rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
					return rewards.Score{Value: 1}, pause(ctx, took)
				}),
			}}})
			require.NoError(t, err)
			all[name] = m
		}
		r := rig.New(t, rig.Options{
			Workers: 1, Worker: rig.Settings{Places: 4, Heartbeat: 5 * time.Second}, Queue: queue, Profiles: all,
			Source: func(string) workers.Source { return c },
		})
		defer r.Stop()
		test(t, r, c)
	})
}

func TestALeaseIsExtendedWhenItIsAsOldAsAHeartbeatAndNotBefore(t *testing.T) {
	t.Parallel()
	onCounting(t, map[string]time.Duration{"": 13 * time.Second}, func(t *testing.T, r *rig.Rig, c *counting) {
		t.Helper()
		time.Sleep(4700 * time.Millisecond) // just before what would be the worker's own beat
		begin := time.Now()
		require.Equal(t, rewards.Scored, result(t, submit(t, r, "x")).Outcome)
		require.Len(t, c.extended, 2)
		for i, at := range c.extended {
			age := at.Sub(begin)
			if i > 0 {
				age = at.Sub(c.extended[i-1])
			}
			require.GreaterOrEqual(t, age, 5*time.Second)
			require.LessOrEqual(t, age, 6*time.Second)
		}
	})
}

func TestASampleThatIsAnsweredWithinAHeartbeatCostsNoExtension(t *testing.T) {
	t.Parallel()
	onCounting(t, map[string]time.Duration{"": 4900 * time.Millisecond}, func(t *testing.T, r *rig.Rig, c *counting) {
		t.Helper()
		for range 5 {
			require.Equal(t, rewards.Scored, result(t, submit(t, r, time.Now().String())).Outcome)
		}
		require.Empty(t, c.extended)
	})
}

func TestAWorkerTakesFromTheQueueOfEachProfileAndSaysSo(t *testing.T) {
	t.Parallel()
	onCounting(t, map[string]time.Duration{"": time.Second, "Ocr": time.Second}, func(t *testing.T, r *rig.Rig, c *counting) {
		t.Helper()
		synctest.Wait()
		c.mu.Lock()
		require.Equal(t, map[string]bool{"_": true, "_4fcr": true}, c.asked)
		c.mu.Unlock()
		f := submit(t, r, "x")
		time.Sleep(500 * time.Millisecond)
		gateway := r.Manager.Gateway()
		require.Equal(t, []wire.ProfileInfo{
			{Queue: "_", Capacity: 4, Narrow: 4, Used: map[string]int{gateway: 1}}, {Name: "Ocr", Queue: "_4fcr", Capacity: 4, Narrow: 4},
		}, r.Workers[0].Info().Profiles)
		result(t, f)
	})
}
