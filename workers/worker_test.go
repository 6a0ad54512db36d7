package workers_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// inBubble runs a test on a rig over the queue in memory, in fake time.
func inBubble(t *testing.T, o rig.Options, test func(t *testing.T, r *rig.Rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := memqueue.New(1, 15*time.Second)
		o.Queue = e
		o.Source = func(worker string) workers.Source { return e.NewSource(worker) }
		r := rig.New(t, o)
		defer func() {
			r.Stop()
			e.Close()
			time.Sleep(10 * time.Minute) // scorers that overran return
			if !t.Failed() {
				require.Zero(t, r.Buffers.Live(), "bytes of frames that nobody released")
			}
		}()
		test(t, r)
	})
}

func profiles(t *testing.T, f rewards.ScorerFunc, more ...rewards.Component) map[string]*rewards.Manager {
	t.Helper()
	return profilesFor(t, 2*time.Second, f, more...)
}

func profilesFor(t *testing.T, timeout time.Duration, f rewards.ScorerFunc, more ...rewards.Component) map[string]*rewards.Manager {
	t.Helper()
	components := append([]rewards.Component{{Key: "hash", Weight: 1, Required: true, Scorer: f}}, more...)
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: components, Timeout: timeout})
	require.NoError(t, err)
	return map[string]*rewards.Manager{"": m}
}

func submit(t *testing.T, r *rig.Rig, id string) *loop.Future {
	t.Helper()
	f, err := r.Manager.Submit(t.Context(), loop.Submission{Run: "_run", Sample: rig.Sample(id, 300)})
	require.NoError(t, err)
	return f
}

func result(t *testing.T, f *loop.Future) *wire.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	res, err := f.Wait(ctx)
	require.NoError(t, err)
	return res
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A scorer that ignores its deadline keeps its bytes: it must read its own pixels,
// never those of a sample that has the buffer next, nor the poison of a free one.
func TestAScorerThatOverrunsStillSeesItsOwnPixels(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string][2]float64{}
	score := func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		before := rig.Hash(s)
		if s.ID[0] == 'o' {
			time.Sleep(time.Minute) // long after the sample's answer
			mu.Lock()
			seen[s.ID] = [2]float64{before, rig.Hash(s)}
			mu.Unlock()
		}
		return rewards.Score{Value: before}, nil
	}
	inBubble(t, rig.Options{
		Workers: 2, Worker: rig.Settings{Places: 6, MaxAbandoned: 5}, Profiles: profiles(t, score), Loop: loop.Config{MaxAttempts: 1},
	}, func(t *testing.T, r *rig.Rig) {
		t.Helper()
		var overrun []*loop.Future
		for i := range 8 {
			overrun = append(overrun, submit(t, r, fmt.Sprint("o", i)))
		}
		for _, f := range overrun {
			res := result(t, f)
			require.Equal(t, rewards.Failed, res.Outcome)
			require.Equal(t, rewards.Timeout, res.Errors[0].Class)
		}
		require.Positive(t, r.Buffers.Live())
		for i := range 300 { // buffers come and go meanwhile
			require.Equal(t, rewards.Scored, result(t, submit(t, r, fmt.Sprint("x", i))).Outcome)
		}
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, seen, 8)
		for id, h := range seen {
			want := rig.Hash(rig.Sample(id, 300))
			require.InDelta(t, want, h[0], 0, id)
			require.InDelta(t, want, h[1], 0, "%s lost its pixels", id)
		}
		require.Zero(t, r.Buffers.Live())
	})
}

func TestAWorkerWithTooManyAbandonedScorersIsSickUntilTheyReturn(t *testing.T) {
	t.Parallel()
	score := func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		if s.ID[0] == 'o' {
			time.Sleep(time.Minute)
		}
		return rewards.Score{Value: 1}, nil
	}
	inBubble(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 4, MaxAbandoned: 2}, Profiles: profiles(t, score), Loop: loop.Config{MaxAttempts: 1},
	}, func(t *testing.T, r *rig.Rig) {
		t.Helper()
		w := r.Workers[0]
		for i := range 2 {
			require.Equal(t, rewards.Timeout, result(t, submit(t, r, fmt.Sprint("o", i))).Errors[0].Class)
		}
		time.Sleep(time.Second)
		require.Equal(t, wire.WorkerReady, w.Info().State, "two are allowed")
		require.Equal(t, 2, w.Info().Busy, "their places are taken")
		require.Equal(t, rewards.Scored, result(t, submit(t, r, "x0")).Outcome)
		third := time.Now()
		require.Equal(t, rewards.Timeout, result(t, submit(t, r, "o2")).Errors[0].Class)
		time.Sleep(time.Second)
		require.Equal(t, wire.WorkerSick, w.Info().State)
		waiting := submit(t, r, "x1")
		time.Sleep(10 * time.Second)
		require.Equal(t, wire.WorkerSick, w.Info().State)
		res := result(t, waiting) // the first of them return
		require.Equal(t, rewards.Scored, res.Outcome)
		require.Equal(t, wire.WorkerReady, w.Info().State)
		require.Less(t, time.Since(third), time.Minute+time.Second, "the first two were there before the third")
	})
}

// A required component fails and the others' context ends: they need a moment to return,
// which is not overrunning.
func TestAScorerThatReturnsWhenItsContextEndsIsNotAbandoned(t *testing.T) {
	t.Parallel()
	slow := rewards.Component{Key: "slow", Weight: 1, Required: true, Scorer: rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond) // a connection is being closed
		return rewards.Score{}, ctx.Err()
	})}
	bad := func(context.Context, *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{}, rewards.BadInput
	}
	inBubble(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 4, MaxAbandoned: 1}, Profiles: profiles(t, bad, slow),
	}, func(t *testing.T, r *rig.Rig) {
		t.Helper()
		for n := range 20 {
			var futures []*loop.Future
			for i := range 4 {
				futures = append(futures, submit(t, r, fmt.Sprint(n, "-", i)))
			}
			for _, f := range futures {
				require.Equal(t, rewards.BadInput, result(t, f).Errors[0].Class)
				require.Equal(t, wire.WorkerReady, r.Workers[0].Info().State)
			}
		}
	})
}

func TestADrainedWorkerAnswersWhatItHasAndTakesNoMore(t *testing.T) {
	t.Parallel()
	score := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: rig.Hash(s)}, pause(ctx, time.Second)
	}
	inBubble(t, rig.Options{Workers: 2, Worker: rig.Settings{Places: 2}, Profiles: profiles(t, score)}, func(t *testing.T, r *rig.Rig) {
		t.Helper()
		var futures []*loop.Future
		for i := range 12 {
			futures = append(futures, submit(t, r, fmt.Sprint(i)))
		}
		time.Sleep(500 * time.Millisecond)
		w := r.Workers[0]
		var wg sync.WaitGroup
		for range 3 { // all of them return
			wg.Go(func() { assert.NoError(t, w.Drain(t.Context())) })
		}
		wg.Wait()
		require.Equal(t, wire.WorkerDraining, w.Info().State)
		require.EqualValues(t, 2, w.Info().Scored)
		for _, f := range futures {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
		require.EqualValues(t, 2, w.Info().Scored)
		require.EqualValues(t, 10, r.Workers[1].Info().Scored)
	})
}

func TestDrainDoesNotWaitForScorersThatOverran(t *testing.T) {
	t.Parallel()
	score := func(context.Context, *rewards.Sample) (rewards.Score, error) {
		time.Sleep(5 * time.Minute)
		return rewards.Score{}, nil
	}
	inBubble(t, rig.Options{Workers: 1, Profiles: profiles(t, score), Loop: loop.Config{MaxAttempts: 1}}, func(t *testing.T, r *rig.Rig) {
		t.Helper()
		f := submit(t, r, "x")
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, r.Workers[0].Drain(t.Context()))
		require.Less(t, time.Since(start), 3*time.Second)
		require.Equal(t, rewards.Timeout, result(t, f).Errors[0].Class)
	})
}

func TestAStoppedWorkerGivesItsSamplesToAnother(t *testing.T) {
	t.Parallel()
	score := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: rig.Hash(s)}, pause(ctx, time.Second)
	}
	inBubble(t, rig.Options{Workers: 2, Worker: rig.Settings{Places: 2}, Profiles: profiles(t, score)}, func(t *testing.T, r *rig.Rig) {
		t.Helper()
		var futures []*loop.Future
		for i := range 4 {
			futures = append(futures, submit(t, r, fmt.Sprint(i)))
		}
		time.Sleep(500 * time.Millisecond)
		start := time.Now()
		r.Workers[0].Stop()
		r.Workers[0].Stop()
		require.Less(t, time.Since(start), 100*time.Millisecond, "its scorers heed their context")
		for _, f := range futures {
			res := result(t, f)
			require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
			require.Equal(t, "w1", res.Worker)
		}
		require.Less(t, time.Since(start), 3*time.Second, "no lease had to lapse")
	})
}

func TestAConfigurationReportsAllItsFaults(t *testing.T) {
	t.Parallel()
	err := workers.Config{Index: -1, MaxAbandoned: -1, Heartbeat: -1}.WithDefaults().Validate()
	for _, want := range []string{"id", "worker -1 of 1", "max_abandoned", "heartbeat"} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, workers.Config{ID: "w"}.WithDefaults().Validate())
}

func TestASickWorkerTakesNothingWhileAnotherWorks(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	counts := map[string]int{}
	of := func(worker string) map[string]*rewards.Manager {
		return profiles(t, func(context.Context, *rewards.Sample) (rewards.Score, error) {
			mu.Lock()
			counts[worker]++
			mu.Unlock()
			if worker == "w0" {
				time.Sleep(5 * time.Minute)
			}
			return rewards.Score{Value: 1}, nil
		})
	}
	inBubble(t, rig.Options{
		Workers: 2, Worker: rig.Settings{Places: 4, MaxAbandoned: 2}, Profiles: of(""), ProfilesOf: of,
	}, func(t *testing.T, r *rig.Rig) {
		t.Helper()
		for i := 0; r.Workers[0].Info().State != wire.WorkerSick; i++ {
			require.Less(t, i, 100)
			if res := result(t, submit(t, r, fmt.Sprint("a", i))); res.Outcome != rewards.Scored {
				require.Equal(t, "w0", res.Worker)
				require.Equal(t, rewards.Timeout, res.Errors[0].Class)
			}
			time.Sleep(200 * time.Millisecond)
		}
		mu.Lock()
		clear(counts)
		mu.Unlock()
		for i := range 50 {
			require.Equal(t, rewards.Scored, result(t, submit(t, r, fmt.Sprint("b", i))).Outcome)
		}
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, map[string]int{"w1": 50}, counts)
	})
}
