package loop_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
)

// site is workers of which some fail, each in its own way.
type site struct {
	mu     sync.Mutex
	faults map[string]error // by worker; guarded by mu
	counts map[string]int   // attempts by worker; guarded by mu
	times  map[string][]time.Time
}

func newSite() *site {
	return &site{faults: map[string]error{}, counts: map[string]int{}, times: map[string][]time.Time{}}
}

// fail has a worker fail from now on; nil: it works.
func (s *site) fail(worker string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[worker] = err
	s.counts, s.times = map[string]int{}, map[string][]time.Time{}
}

func (s *site) count(worker string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[worker]
}

func (s *site) at(worker string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.times[worker])
}

// scorer takes so long for a sample on a worker that works, and no time on one that fails.
func (s *site) scorer(worker string, service time.Duration) rewards.ScorerFunc {
	return func(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
		s.mu.Lock()
		s.counts[worker]++
		s.times[worker] = append(s.times[worker], time.Now())
		err := s.faults[worker]
		s.mu.Unlock()
		if err != nil {
			return rewards.Score{}, err
		}
		return hashing(service)(ctx, sample)
	}
}

// profilesOf are the profile whose worker may fail, and one named sound that never does.
func (s *site) profilesOf(t *testing.T, service time.Duration) func(worker string) map[string]*rewards.Manager {
	t.Helper()
	return func(worker string) map[string]*rewards.Manager {
		return map[string]*rewards.Manager{
			"":      minutes(t, component(s.scorer(worker, service))),
			"sound": minutes(t, component(hashing(10*time.Millisecond))),
		}
	}
}

func minutes(t *testing.T, components ...rewards.Component) *rewards.Manager {
	t.Helper()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: components, Timeout: time.Minute})
	require.NoError(t, err)
	return m
}

var errWorkers = rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: the card is lost", rewards.Unavailable))

func (s *stage) submitTo(t *testing.T, reward, id string, timeout time.Duration) *loop.Future {
	t.Helper()
	sample := rig.Sample(id, 3)
	sample.Reward = reward
	return s.submitFor(t, "_run", sample, timeout)
}

func TestAWorkerThatBlamesItselfGetsNoMoreSamplesOfThatProfileAndComesBackByOne(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	on := newSite()
	of := on.profilesOf(t, 100*time.Millisecond)
	onStage(t, rig.Options{Workers: 4, Worker: rig.Settings{Places: 2}, Profiles: of(""), ProfilesOf: of}, func(t *testing.T, s *stage) {
		t.Helper()
		load := func(seconds int) (failed int) {
			until := time.Now().Add(time.Duration(seconds) * time.Second)
			var wg sync.WaitGroup
			var mu sync.Mutex
			for i := range 16 {
				wg.Go(func() {
					for n := 0; time.Now().Before(until); n++ {
						f, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_run", Sample: rig.Sample(fmt.Sprint(i, until.UnixNano(), n), 3)})
						if !assert.NoError(t, err) { //nolint:testifylint // not the test's goroutine
							return
						}
						if res, err := f.Wait(t.Context()); err != nil || res.Outcome != rewards.Scored {
							mu.Lock()
							failed++
							mu.Unlock()
						}
					}
				})
			}
			wg.Wait()
			return failed
		}
		on.fail("w0", errWorkers)
		opened := time.Now()
		require.Zero(t, load(40), "other workers score what one cannot")
		at := on.at("w0")
		require.LessOrEqual(t, len(at), 5+8+4+6, "five open it; the queue held a ticket for each of 8 places and 4 workers by then; one sample after each pause: %v", at)
		require.GreaterOrEqual(t, len(at), 5+3, "one sample tries it after 1, 3, 7, 15, 31 s")
		require.Len(t, s.Manager.Breakers(), 1)
		b := s.Manager.Breakers()[0]
		require.Equal(t, "w0", b.Worker)
		require.Contains(t, b.Reason, "the card is lost")
		require.False(t, b.Permanent)
		require.WithinDuration(t, opened, b.Since, 2*time.Second)
		served := map[string]bool{}
		for i := range 100 {
			served[result(t, s.submitTo(t, "sound", fmt.Sprint("sound", i), 0)).Worker] = true
		}
		require.True(t, served["w0"], "the breaker is of one profile")

		on.fail("w0", nil)
		load(60)
		require.Empty(t, s.Manager.Breakers())
		on.fail("w0", nil)
		load(10)
		require.InDelta(t, on.count("w1"), on.count("w0"), float64(on.count("w1"))/2, "it works like the others")
	})
}

// The samples of a reward that always fails, on every worker: nothing pauses, nothing is
// tried again, and no other profile feels it.
func TestARewardThatAlwaysFailsPausesNothing(t *testing.T) {
	t.Parallel()
	raises := func(string) map[string]*rewards.Manager {
		return map[string]*rewards.Manager{
			"": minutes(t, component(func(context.Context, *rewards.Sample) (rewards.Score, error) {
				// In no time at all one worker may answer 32 before another answers any: it
				// would pause until it can be compared, and its sample be tried again.
				<-time.After(10 * time.Millisecond)
				return rewards.Score{}, fmt.Errorf("%w: ValueError: boom", rewards.Internal)
			})),
			"sound": minutes(t, component(hashing(10*time.Millisecond))),
		}
	}
	onStage(t, rig.Options{Workers: 3, Worker: rig.Settings{Places: 4}, Profiles: raises(""), ProfilesOf: raises}, func(t *testing.T, s *stage) {
		t.Helper()
		start := time.Now()
		var bad, good []*loop.Future
		for i := range 500 {
			bad = append(bad, s.submitTo(t, "", fmt.Sprint("bad", i), 0))
			if i < 200 {
				good = append(good, s.submitTo(t, "sound", fmt.Sprint("good", i), 0))
			}
		}
		for _, f := range good {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
		for _, f := range bad {
			res := result(t, f)
			require.Equal(t, rewards.Failed, res.Outcome)
			require.Len(t, res.Errors, 1)
			require.Equal(t, rewards.BlameReward, res.Errors[0].Blame)
			require.Equal(t, 1, res.Attempts)
		}
		require.Less(t, time.Since(start), 5*time.Second)
		require.Empty(t, s.Manager.Breakers())
	})
}

// One of three workers fails every sample, and says that it is the reward's fault: it has
// another version of a module. What it may cost is the answers that it takes to know.
func TestAWorkerThatFailsEverythingIsToldByComparison(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]time.Duration{"fast": 10 * time.Millisecond, "slow": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := newSite()
			of := on.profilesOf(t, service)
			onStage(t, rig.Options{Workers: 3, Worker: rig.Settings{Places: 4}, Profiles: of(""), ProfilesOf: of}, func(t *testing.T, s *stage) {
				t.Helper()
				on.fail("w1", fmt.Errorf("%w: KeyError: 'v2'", rewards.Internal))
				var all []*loop.Future
				for i := range 600 {
					all = append(all, s.submit(t, "_run", rig.Sample(fmt.Sprint(i), 3)))
				}
				failed := 0
				for _, f := range all {
					if res := result(t, f); res.Outcome != rewards.Scored {
						failed++
						require.Equal(t, "w1", res.Worker)
					}
				}
				require.LessOrEqual(t, failed, 32+4, "those that it takes to know, and those that the worker then holds")
				require.Positive(t, failed)
				require.Len(t, s.Manager.Breakers(), 1)
				require.Contains(t, s.Manager.Breakers()[0].Reason, "KeyError")
				on.fail("w1", nil)
				require.Eventually(t, func() bool {
					result(t, s.submit(t, "_run", rig.Sample(time.Now().String(), 3)))
					return len(s.Manager.Breakers()) == 0
				}, time.Hour, 100*time.Millisecond, "a sample that it scores brings it back")
			})
		})
	}
}

// A reward that fails everywhere after it has worked: the first worker to have failed 32
// times is suspected for a moment only, until the others do no better.
func TestWhatFailsOnEveryWorkerSuspectsNone(t *testing.T) {
	t.Parallel()
	on := newSite()
	of := on.profilesOf(t, 10*time.Millisecond)
	onStage(t, rig.Options{Workers: 3, Worker: rig.Settings{Places: 4}, Profiles: of(""), ProfilesOf: of}, func(t *testing.T, s *stage) {
		t.Helper()
		batch := func(n int) map[rewards.Outcome]int {
			var all []*loop.Future
			for i := range n {
				all = append(all, s.submit(t, "_run", rig.Sample(fmt.Sprint(time.Now().UnixNano(), i), 3)))
			}
			out := map[rewards.Outcome]int{}
			for _, f := range all {
				out[result(t, f).Outcome]++
			}
			return out
		}
		require.Equal(t, 300, batch(300)[rewards.Scored])
		for _, w := range []string{"w0", "w1", "w2"} {
			on.fail(w, fmt.Errorf("%w: the engine is away", rewards.Unavailable))
		}
		start := time.Now()
		require.Equal(t, 500, batch(500)[rewards.Failed])
		require.Less(t, time.Since(start), 10*time.Second)
		require.Empty(t, s.Manager.Breakers(), "none is worse than the others")
		for _, w := range []string{"w0", "w1", "w2"} {
			on.fail(w, nil)
		}
		start = time.Now()
		require.Equal(t, 300, batch(300)[rewards.Scored])
		require.Less(t, time.Since(start), 2*time.Second)
	})
}

func TestAProfileThatNoWorkerCanEverScoreFailsAtOnceUntilOneIsRestarted(t *testing.T) {
	t.Parallel()
	on := newSite()
	of := on.profilesOf(t, 10*time.Millisecond)
	onStage(t, rig.Options{Workers: 3, Profiles: of(""), ProfilesOf: of}, func(t *testing.T, s *stage) {
		t.Helper()
		for _, w := range s.Workers {
			on.fail(w.ID, rewards.Permanent(rewards.BlameWorker, fmt.Errorf("%w: no module named cv2", rewards.Unavailable)))
		}
		start := time.Now()
		var all []*loop.Future
		for i := range 40 {
			all = append(all, s.submit(t, "_run", rig.Sample(fmt.Sprint(i), 3)))
		}
		for _, f := range all {
			res := result(t, f)
			require.Equal(t, rewards.Failed, res.Outcome)
			require.Contains(t, res.Errors[0].Message, "no module named cv2")
			require.Equal(t, rewards.BlameWorker, res.Errors[0].Blame)
			require.True(t, res.Errors[0].Permanent)
		}
		require.Less(t, time.Since(start), 2*time.Second)
		// Each worker fails once, and again for tickets that were published before its answer was read: 3 to 15 calls in all, and 22
		// have been seen where other processes took both CPUs. Without breakers there would be 120.
		require.Less(t, on.count("w0")+on.count("w1")+on.count("w2"), 40, "fewer calls than samples: most fail without a call")
		require.Equal(t, rewards.Scored, result(t, s.submitTo(t, "sound", "s", 0)).Outcome)

		w := s.Workers[0]
		on.fail(w.ID, nil)
		w.Stop()
		s.queue.Kill(w.ID)
		s.Replace(w.ID)
		time.Sleep(3 * time.Second) // until it is known
		require.Equal(t, rewards.Scored, result(t, s.submit(t, "_run", rig.Sample("fresh", 3))).Outcome)
	})
}

func TestSamplesWaitVisiblyForAWorkerThatMayComeBackAndAreToldInTime(t *testing.T) {
	t.Parallel()
	on := newSite()
	of := on.profilesOf(t, 10*time.Millisecond)
	onStage(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 4}, Profiles: of(""), ProfilesOf: of}, func(t *testing.T, s *stage) {
		t.Helper()
		on.fail("w0", errWorkers)
		start := time.Now()
		var short, long []*loop.Future
		for i := range 20 {
			short = append(short, s.submitTo(t, "", fmt.Sprint("short", i), 20*time.Second))
			long = append(long, s.submitTo(t, "", fmt.Sprint("long", i), 10*time.Minute))
		}
		time.Sleep(10 * time.Second)
		list, n := s.Manager.Pending(100)
		require.GreaterOrEqual(t, n, 38)
		waits := 0
		for _, p := range list {
			if p.Stage == "queued" {
				waits++
				require.Contains(t, p.Waits, "the card is lost")
				require.Contains(t, p.Waits, "no worker serves")
			}
		}
		require.GreaterOrEqual(t, waits, 38)
		for i := range 20 {
			require.Equal(t, rewards.Scored, result(t, s.submitTo(t, "sound", fmt.Sprint("sound", i), time.Minute)).Outcome)
		}
		for _, f := range short {
			res := result(t, f)
			require.Equal(t, rewards.Failed, res.Outcome, "%v", res.Errors)
			require.Equal(t, rewards.Unavailable, res.Errors[0].Class)
			require.Equal(t, rewards.BlameWorker, res.Errors[0].Blame)
			require.Contains(t, res.Errors[0].Message, "the card is lost")
		}
		require.InDelta(t, 18, time.Since(start).Seconds(), 1, "a tenth of its time before the deadline")
		on.fail("w0", nil)
		for _, f := range long {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
		require.Less(t, time.Since(start), 60*time.Second)
	})
}

func TestAFailureIsListedOnceHoweverManyWorkersMetIt(t *testing.T) {
	t.Parallel()
	on := newSite()
	of := on.profilesOf(t, 10*time.Millisecond)
	onStage(t, rig.Options{Workers: 4, Profiles: of(""), ProfilesOf: of}, func(t *testing.T, s *stage) {
		t.Helper()
		for _, w := range s.Workers {
			on.fail(w.ID, errWorkers)
		}
		res := result(t, s.submit(t, "_run", rig.Sample("x", 3)))
		require.Equal(t, rewards.Failed, res.Outcome)
		require.Equal(t, 3, res.Attempts, "max_attempts")
		require.Len(t, res.Errors, 1, "%v", res.Errors)
		require.Equal(t, 3, res.Errors[0].Attempts)
	})
}
