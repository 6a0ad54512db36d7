package loop_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
)

// ledger books place time by run.
type ledger struct {
	mu   sync.Mutex
	time map[string]time.Duration
}

func (l *ledger) book(run string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.time[run] += d
}

func TestTwoRunsUnderLoadSharePlaceTimeByTheirWeights(t *testing.T) {
	t.Parallel()
	for name, times := range map[string][2]time.Duration{
		"with equal samples":                    {200 * time.Millisecond, 200 * time.Millisecond},
		"with the light run's samples slower":   {700 * time.Millisecond, 100 * time.Millisecond},
		"with the heavy run's samples slower":   {100 * time.Millisecond, 700 * time.Millisecond},
		"with samples that vary within one run": {0, 300 * time.Millisecond},
		"by speed":                              {200 * time.Millisecond, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			books := &ledger{time: map[string]time.Duration{}}
			takes := map[string]time.Duration{"_light": times[0], "_heavy": times[1]}
			score := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
				d := takes[s.Run]
				if d == 0 {
					d = time.Duration(50+idNumber(s.ID)%500) * time.Millisecond
				}
				if err := pause(ctx, d); err != nil {
					return rewards.Score{}, err
				}
				books.book(s.Run, d)
				return rewards.Score{Value: 1}, nil
			}
			cfg := loop.Config{Weights: map[string]float64{"_light": 1, "_heavy": 3}}
			if name == "by speed" {
				cfg.Dispatch.Policy = dispatch.SpeedWeighted
			}
			onStage(t, rig.Options{
				Workers: 4, Worker: rig.Settings{Places: 2}, Profiles: profiles(t, component(score)), Loop: cfg,
			}, func(t *testing.T, s *stage) {
				t.Helper()
				for i := range 3000 { // more than can be scored meanwhile: both are under load to the end
					for run := range takes {
						s.submit(t, run, rig.Sample(fmt.Sprint(run, i), 3))
					}
				}
				time.Sleep(40 * time.Second)
				books.mu.Lock()
				defer books.mu.Unlock()
				ratio := books.time["_heavy"].Seconds() / books.time["_light"].Seconds()
				t.Logf("place time %v, ratio %.3f", books.time, ratio)
				require.InEpsilon(t, 3.0, ratio, 0.05)
			})
		})
	}
}

func TestTheStepThatClosesFirstGoesFirst(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var order []string
	score := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		mu.Lock()
		order = append(order, s.ID)
		mu.Unlock()
		return hashing(100*time.Millisecond)(ctx, s)
	}
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(score))}, func(t *testing.T, s *stage) {
		t.Helper()
		var futures []*loop.Future
		submit := func(id string, step int64) {
			sample := rig.Sample(id, 3)
			sample.Step = step
			futures = append(futures, s.submit(t, "_run", sample))
		}
		submit("running", 1)
		time.Sleep(50 * time.Millisecond)
		submit("published", 2) // its ticket is out already when the others come
		time.Sleep(10 * time.Millisecond)
		for i := range 3 {
			submit(fmt.Sprint("new", i), 2)
		}
		for i := range 3 {
			submit(fmt.Sprint("old", i), 1)
		}
		for _, f := range futures {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
		rest := slices.DeleteFunc(order, func(id string) bool { return id == "running" || id == "published" })
		require.Equal(t, []string{"old0", "old1", "old2", "new0", "new1", "new2"}, rest)
	})
}

func TestTwoProfilesShareOnePool(t *testing.T) {
	t.Parallel()
	fixed := func(v float64) rewards.Component {
		return component(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{Value: v}, pause(ctx, 50*time.Millisecond)
		})
	}
	ocr := fixed(2)
	ocr.Key = "ocr"
	both := map[string]*rewards.Manager{"": profile(t, fixed(1)), "ocr": profile(t, ocr, rewards.Component{Key: "second", Weight: 10, Scorer: fixed(4).Scorer})}
	onStage(t, rig.Options{Workers: 3, Profiles: both}, func(t *testing.T, s *stage) {
		t.Helper()
		futures := map[string][]*loop.Future{}
		for i := range 60 {
			sample := rig.Sample(fmt.Sprint(i), 3)
			if i%2 == 1 {
				sample.Reward = "ocr"
			}
			futures[sample.Reward] = append(futures[sample.Reward], s.submit(t, "_run", sample))
		}
		served := map[string]map[string]bool{"": {}, "ocr": {}}
		for reward, list := range futures {
			for _, f := range list {
				res := result(t, f)
				require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
				require.InDelta(t, map[string]float64{"": 1, "ocr": 42}[reward], *res.RewardScore, 0)
				served[reward][res.Worker] = true
			}
		}
		require.Len(t, served[""], 3, "every worker serves both")
		require.Len(t, served["ocr"], 3)
		sample := rig.Sample("x", 3)
		sample.Reward = "none"
		_, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_run", Sample: sample})
		require.ErrorIs(t, err, loop.ErrRefused)
		require.ErrorIs(t, err, rewards.UnknownReward)
	})
}

func TestAFailedSampleGoesToAnotherWorkerEachTime(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	tried := map[string][]string{}
	failing := func(worker string) map[string]*rewards.Manager {
		return profiles(t, component(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			mu.Lock()
			defer mu.Unlock()
			tried[s.ID] = append(tried[s.ID], worker)
			return rewards.Score{}, rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: %s has no card", rewards.Unavailable, worker))
		}))
	}
	onStage(t, rig.Options{
		Workers: 4, Profiles: failing(""), ProfilesOf: failing, Worker: rig.Settings{Places: 8}, Loop: loop.Config{MaxAttempts: 4, Breaker: loop.Breaker{Failures: 1000}},
	}, func(t *testing.T, s *stage) {
		t.Helper()
		for i := range 20 {
			res := result(t, s.submit(t, "_run", rig.Sample(fmt.Sprint(i), 3)))
			require.Equal(t, rewards.Failed, res.Outcome)
			require.Nil(t, res.RewardScore)
			require.Equal(t, 4, res.Attempts)
			require.Len(t, res.Errors, 4, "every attempt's failure is told")
			require.Equal(t, rewards.Unavailable, res.Errors[0].Class)
			mu.Lock()
			list := tried[fmt.Sprint(i)]
			require.Len(t, list, 4, "max_attempts")
			require.Len(t, slices.Compact(slices.Sorted(slices.Values(list))), 4, "a worker was given a sample that it had failed: %v", list)
			mu.Unlock()
		}
	})
}

func TestAFailureThatWouldMeetTheNextWorkerTooIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"no target":           fmt.Errorf("%w: no target", rewards.BadInput),
		"NaN":                 nil,
		"exception":           fmt.Errorf("%w: ValueError", rewards.Internal),
		"panic":               fmt.Errorf("%w: nil map", rewards.Panicked),
		"time-out":            fmt.Errorf("%w: 2 s", rewards.Timeout),
		"crash":               fmt.Errorf("%w: os._exit", rewards.Crashed),
		"engine away":         fmt.Errorf("%w: connection refused", rewards.Unavailable),
		"key refused":         rewards.Permanent(rewards.BlameDependency, fmt.Errorf("%w: 401", rewards.Unavailable)),
		"time in a queue":     rewards.Blamed(rewards.BlameNobody, fmt.Errorf("%w: no process was free", rewards.Timeout)),
		"crash of the sample": rewards.Blamed(rewards.BlameSample, fmt.Errorf("%w: the child died twice", rewards.Crashed)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			score := func(context.Context, *rewards.Sample) (rewards.Score, error) {
				return rewards.Score{Value: nan()}, err
			}
			onStage(t, rig.Options{Workers: 2, Profiles: profiles(t, component(score))}, func(t *testing.T, s *stage) {
				t.Helper()
				for i := range 20 {
					start := time.Now()
					res := result(t, s.submit(t, "_run", rig.Sample(fmt.Sprint(i), 3)))
					require.Equal(t, rewards.Failed, res.Outcome)
					require.Equal(t, 1, res.Attempts)
					require.Len(t, res.Errors, 1)
					require.NotEqual(t, rewards.BlameWorker, res.Errors[0].Blame)
					require.Less(t, time.Since(start), time.Second, "nothing pauses")
				}
				require.Empty(t, s.Manager.Breakers())
			})
		})
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

// A worker dies while it scores; the next one fails. The dead one still stands in
// the table as an attempt and must not be waited for.
func TestASampleIsTriedAgainAlthoughADeadWorkerHeldIt(t *testing.T) {
	t.Parallel()
	var s *stage
	tries := 0
	score := func(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
		tries++ // one sample at a time
		switch tries {
		case 1:
			for _, w := range s.Workers {
				if w.Info().Busy > 0 {
					w.Kill()
					s.queue.Kill(w.ID)
				}
			}
			return rewards.Score{}, pause(ctx, time.Hour)
		case 2:
			return rewards.Score{}, rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: for now", rewards.Unavailable))
		}
		return hashing(0)(ctx, sample)
	}
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{component(score)}, Timeout: time.Minute})
	require.NoError(t, err)
	onStage(t, rig.Options{Workers: 3, Profiles: map[string]*rewards.Manager{"": m}}, func(t *testing.T, on *stage) {
		t.Helper()
		s = on
		start := time.Now()
		res := result(t, s.submit(t, "_run", rig.Sample("x", 3)))
		require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
		require.Equal(t, 3, res.Attempts)
		require.Less(t, time.Since(start), 2*lease, "it waited for the dead worker")
	})
}

func TestALeaseIsExtendedForAsLongAsTheScorerMayTake(t *testing.T) {
	t.Parallel()
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{component(hashing(20 * time.Second))}, Timeout: time.Minute})
	require.NoError(t, err)
	onStage(t, rig.Options{Workers: 2, Profiles: map[string]*rewards.Manager{"": m}}, func(t *testing.T, s *stage) {
		t.Helper()
		res := result(t, s.submit(t, "_run", rig.Sample("x", 3)))
		require.Equal(t, rewards.Scored, res.Outcome)
		require.Equal(t, 1, res.Attempts, "its lease has lapsed although its worker lives")
	})
}

func TestASampleWithoutAnAnswerIsExpiredAndSaysWhere(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 2, Profiles: profiles(t, component(hanging))}, func(t *testing.T, s *stage) {
		t.Helper()
		for i := range 50 { // never "lost": the worker's clock and the gateway's go off at the same moment
			start := time.Now()
			res := result(t, s.submitFor(t, "_run", rig.Sample(fmt.Sprint(i), 3), time.Second))
			require.Equal(t, rewards.OutcomeExpired, res.Outcome)
			require.Equal(t, rewards.Expired, res.Errors[0].Class)
			require.Contains(t, res.Errors[0].Message, "running")
			require.Equal(t, time.Second, time.Since(start))
		}
	})
	onStage(t, rig.Options{Workers: 0, Profiles: profiles(t, component(hanging))}, func(t *testing.T, s *stage) {
		t.Helper()
		res := result(t, s.submitFor(t, "_run", rig.Sample("nobody", 3), time.Second))
		require.Equal(t, rewards.Failed, res.Outcome, "a little before its deadline")
		require.Equal(t, rewards.Unavailable, res.Errors[0].Class)
		require.Contains(t, res.Errors[0].Message, "no worker serves")
	})
}

func TestASampleWhoseWorkersKeepVanishingIsLost(t *testing.T) {
	t.Parallel()
	var s *stage
	score := func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
		for _, w := range s.Workers {
			if w.Info().Busy > 0 {
				w.Kill()
				s.queue.Kill(w.ID)
			}
		}
		return rewards.Score{}, pause(ctx, time.Hour)
	}
	onStage(t, rig.Options{Workers: 5, Profiles: profiles(t, component(score))}, func(t *testing.T, on *stage) {
		t.Helper()
		s = on
		res := result(t, s.submit(t, "_run", rig.Sample("x", 3)))
		require.Equal(t, rewards.OutcomeWorkerLost, res.Outcome)
		require.Equal(t, rewards.Lost, res.Errors[0].Class)
		require.Equal(t, 3, res.Attempts)
		require.Nil(t, res.RewardScore)
	})
}

func TestEveryOutcomeHasTheSameKeys(t *testing.T) {
	t.Parallel()
	extra := func(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
		if sample.ID == "failed" {
			return rewards.Score{}, rewards.BadInput
		}
		if sample.ID != "scored" {
			return hanging(ctx, sample)
		}
		return rewards.Score{Value: 1, Extra: map[string]any{"length": 3, "text": "abc"}}, nil
	}
	onStage(t, rig.Options{Workers: 2, Worker: rig.Settings{Places: 4}, Profiles: profiles(t, component(extra))}, func(t *testing.T, s *stage) {
		t.Helper()
		scored := result(t, s.submit(t, "_run", rig.Sample("scored", 3)))
		require.Equal(t, rewards.Scored, scored.Outcome)
		keys := slices.Sorted(maps.Keys(scored.ExtraInfo))
		require.Contains(t, keys, "reward/hash/length")
		cancelled := s.submit(t, "_run", rig.Sample("cancelled", 3))
		cancelled.Cancel("not wanted")
		for outcome, f := range map[rewards.Outcome]*loop.Future{
			rewards.Failed:           s.submit(t, "_run", rig.Sample("failed", 3)),
			rewards.OutcomeExpired:   s.submitFor(t, "_run", rig.Sample("expired", 3), time.Second),
			rewards.OutcomeCancelled: cancelled,
		} {
			res := result(t, f)
			require.Equal(t, outcome, res.Outcome)
			require.Equal(t, keys, slices.Sorted(maps.Keys(res.ExtraInfo)), outcome)
			require.Equal(t, false, res.ExtraInfo["rewardloop/valid"])
			require.Nil(t, res.ExtraInfo["reward/hash"], "absence is not zero")
			require.Nil(t, res.ExtraInfo["reward/hash/length"])
			require.Empty(t, res.ExtraInfo["reward/hash/text"])
		}
		for _, w := range s.Workers {
			w.Kill()
		}
	})
}

func TestALateResultIsDroppedAndDoesNotAnswerTwice(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 0, Profiles: profiles(t, component(hanging))}, func(t *testing.T, s *stage) {
		t.Helper()
		f := s.submit(t, "_run", rig.Sample("x", 3))
		a, b := s.stub(t, "a"), s.stub(t, "b")
		first := a.claim(t)
		time.Sleep(lease + 100*time.Millisecond)
		second := b.claim(t) // the lease has lapsed
		require.Equal(t, first.Key(), second.Key())
		a.fail(t, first, rewards.Unavailable) // says nothing: b is at it
		require.Empty(t, f.Peek())
		b.answer(t, second, 2)
		res := result(t, f)
		require.InDelta(t, 2.0, *res.RewardScore, 0)
		a.answer(t, first, 1)
		b.answer(t, second, 3)
		require.InDelta(t, 2.0, *result(t, f).RewardScore, 0, "the first result stays")
		a.release()
		b.release()
	})
}

func TestAFailureOfAnEarlierAttemptSaysNothingAboutTheNext(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{
		Workers: 0, Profiles: profiles(t, component(hanging)), Loop: loop.Config{ClaimTimeout: 2 * time.Second},
	}, func(t *testing.T, s *stage) {
		t.Helper()
		f := s.submit(t, "_run", rig.Sample("x", 3))
		a := s.stub(t, "a")
		first := a.claim(t)
		time.Sleep(2100 * time.Millisecond) // claimed for too long: another attempt
		second := a.claim(t)
		require.Equal(t, 2, second.Attempt)
		a.fail(t, first, rewards.BadInput)
		require.Empty(t, f.Peek(), "the failure of attempt 1 ended attempt 2")
		a.answer(t, second, 2)
		require.Equal(t, rewards.Scored, result(t, f).Outcome)
		a.release()
	})
}

func TestTicketsThatTheQueueLosesOrRefusesAreSentAgain(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 2, Profiles: profiles(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		var futures []*loop.Future
		for i := range 10 {
			futures = append(futures, s.submit(t, "_run", rig.Sample(fmt.Sprint(i), 3)))
		}
		time.Sleep(500 * time.Millisecond)
		s.queue.Lose()
		s.queue.RefusePublish(errors.New("away"))
		time.Sleep(2 * time.Second)
		s.queue.RefusePublish(nil)
		start := time.Now()
		for _, f := range futures {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
		require.Less(t, time.Since(start), 15*time.Second)
	})
}
