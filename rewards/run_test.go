package rewards_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func TestComponentsRunAtTheSameTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const k = 5
		var components []rewards.Component
		for i := range k {
			components = append(components, component(fmt.Sprintf("t%d", i), slow(3*time.Second, float64(i))))
		}
		start := time.Now()
		r := score(t, manager(t, components...), alone)
		assert.Equal(t, 3*time.Second, time.Since(start), "not %d times that", k)
		assert.Equal(t, rewards.Scored, r.Outcome)
		assert.InDelta(t, 0+1+2+3+4, r.Score, 0)
		for _, tr := range r.Components {
			assert.Equal(t, 3*time.Second, tr.Took)
		}
	})
}

func TestSamplesRunAtTheSameTimeAndKeepTheirOwnScores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		step := func(s *rewards.Sample) float64 { return float64(s.Step) }
		m := manager(t,
			component("odd", bySample(func(s *rewards.Sample) (rewards.Score, error) {
				if s.Step%7 == 0 {
					panic("every seventh")
				}
				<-time.After(time.Duration(100-s.Step) * time.Millisecond)
				return rewards.Score{Value: step(s)}, nil
			})),
			rewards.Component{Key: "ten", Weight: 10, Scorer: bySample(func(s *rewards.Sample) (rewards.Score, error) {
				return rewards.Score{Value: step(s), Extra: map[string]any{"id": s.ID}}, nil
			})},
		)
		start := time.Now()
		results := make([]rewards.Result, 100)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { results[i] = score(t, m, rewards.Sample{ID: strconv.Itoa(i), Step: int64(i)}) })
		}
		wg.Wait()
		assert.Equal(t, 99*time.Millisecond, time.Since(start), "as long as the slowest, sample 1")
		for i, r := range results {
			assert.Equal(t, strconv.Itoa(i), r.Extra["reward/ten/id"])
			if i%7 == 0 {
				assert.Equal(t, rewards.Failed, r.Outcome, "sample %d", i)
				continue
			}
			assert.Equal(t, rewards.Scored, r.Outcome, "sample %d", i)
			assert.InDelta(t, 11*float64(i), r.Score, 0)
		}
	})
}

// A nil pointer that is an error: calling its method panics.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// badError panics while its class is looked for.
type badError struct{}

func (badError) Error() string { return "bad" }
func (badError) As(any) bool   { panic("boom in As") }

func TestAPanicInAScorerIsAFailureOfItsComponentAlone(t *testing.T) {
	t.Parallel()
	panics := map[string]struct {
		scorer rewards.ScorerFunc
		says   string
	}{
		"a string": {func(context.Context, *rewards.Sample) (rewards.Score, error) { panic("boom") }, "boom"},
		"an error": {func(context.Context, *rewards.Sample) (rewards.Score, error) { panic(errors.New("boom")) }, "boom"},
		"the runtime's": {func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{Value: float64(s.Media[3].FPS)}, nil
		}, "index out of range"},
		"in the method of the error it returned": {func(context.Context, *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{}, (*nilError)(nil)
		}, "nil pointer"},
		"while the class of its error is looked for": {func(context.Context, *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{}, badError{}
		}, "boom in As"},
	}
	for name, p := range panics {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := manager(t, on("zero", "bad", p.scorer), component("good", slow(time.Second, 2)))
				for range 2 { // the manager is as good as before
					r := score(t, m, alone)
					assert.Equal(t, rewards.Scored, r.Outcome)
					assert.InDelta(t, 2, r.Score, 0)
					require.Len(t, r.Errors, 1)
					assert.Equal(t, "bad", r.Errors[0].Component)
					assert.Equal(t, rewards.Panicked, r.Errors[0].Class)
					assert.Equal(t, 1, r.Errors[0].Attempts, "it would only be repeated")
					assert.Contains(t, r.Errors[0].Message, p.says)
					assert.Contains(t, r.Errors[0].Message, "goroutine", "the stack")
				}
			})
		})
	}
}

func TestAScorerThatEndsItsGoroutineIsAFailedComponent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := manager(t, required("bad", bySample(func(*rewards.Sample) (rewards.Score, error) {
			runtime.Goexit() // what t.FailNow does
			return rewards.Score{}, nil
		})), component("good", constant(1)))
		start := time.Now()
		r := score(t, m, alone) // Done closes as well
		assert.Equal(t, rewards.Failed, r.Outcome)
		assert.Equal(t, rewards.Panicked, r.Class())
		assert.Zero(t, time.Since(start), "its deadline is not waited for")
	})
}

func TestARequiredComponentDecidesAtOnceAndCancelsTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ended := make(chan time.Duration, 1)
		m := manager(t,
			component("quick", constant(1)),
			on("zero", "weak", broken(rewards.Internal)),
			component("long", rewards.ScorerFunc(func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
				<-ctx.Done()
				ended <- time.Since(start)
				return rewards.Score{}, ctx.Err()
			})),
			required("judge", rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
				<-time.After(2 * time.Second)
				return rewards.Score{}, fmt.Errorf("%w: no target", rewards.BadInput)
			})),
		)
		run := m.Run(t.Context(), &alone)
		assert.Equal(t, 2*time.Second, time.Since(start))
		<-run.Done()
		assert.Equal(t, 2*time.Second, <-ended)

		r := run.Result
		assert.Equal(t, rewards.Failed, r.Outcome)
		assert.Nil(t, r.Pending)
		require.Len(t, r.Errors, 2)
		assert.Equal(t, "judge", r.Errors[0].Component, "the failure that decided comes first")
		assert.Equal(t, rewards.BadInput, r.Class())
		assert.Equal(t, rewards.StatusOK, componentOf(t, r, "quick").Status)
		long := componentOf(t, r, "long")
		assert.Equal(t, rewards.StatusSkipped, long.Status)
		assert.Contains(t, long.Reason, "required component")
		assert.Equal(t, 2*time.Second, long.Took)
		assert.Nil(t, r.Extra["reward/combined"])
		assert.Contains(t, r.Extra, "reward/combined")
	})
}

func TestAScorerThatHeedsItsContextFailsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := on("zero", "bad", slow(time.Hour, 1))
		bad.Timeout = 2 * time.Second
		start := time.Now()
		r := score(t, manager(t, bad, component("good", constant(1))), alone)
		assert.Equal(t, 2*time.Second, time.Since(start), "without the grace")
		require.Len(t, r.Errors, 1)
		assert.Equal(t, rewards.Timeout, r.Errors[0].Class)
		assert.Equal(t, 1, r.Errors[0].Attempts)
	})
}

func TestAScorerThatIgnoresItsContextIsGivenUpAndDoneWaitsForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := on("zero", "bad", uncancellable(10*time.Second, 5))
		bad.Timeout = time.Second
		m := manager(t, bad, component("good", constant(1)))
		start := time.Now()
		run := m.Run(t.Context(), &alone)
		assert.Equal(t, 1100*time.Millisecond, time.Since(start), "the deadline and a grace of 100 ms")
		assert.Equal(t, rewards.Scored, run.Result.Outcome)
		assert.InDelta(t, 1, run.Result.Score, 0)
		require.Len(t, run.Result.Errors, 1)
		assert.Equal(t, rewards.Timeout, run.Result.Errors[0].Class)
		assert.Contains(t, run.Result.Errors[0].Message, "ignored its context")

		<-time.After(8800 * time.Millisecond)
		synctest.Wait()
		select {
		case <-run.Done():
			assert.Fail(t, "Done closed while the scorer still had the sample")
		default:
		}
		<-run.Done()
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Equal(t, rewards.StatusImputed, componentOf(t, run.Result, "bad").Status, "a late answer changes nothing")
		assert.InDelta(t, 1, run.Result.Score, 0)
	})
}

func TestARequiredScorerThatHangsFailsTheSampleAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bad := required("bad", uncancellable(time.Minute, 5))
		bad.Timeout = time.Second
		run := manager(t, bad, component("good", slow(time.Hour, 1))).Run(t.Context(), &alone)
		assert.Equal(t, rewards.Failed, run.Result.Outcome)
		assert.Equal(t, rewards.Timeout, run.Result.Class())
		assert.Equal(t, 1100*time.Millisecond, componentOf(t, run.Result, "good").Took)
		<-run.Done()
	})
}

// The grace belongs to each component: one that is given up does not take others with
// it whose own grace still runs.
func TestEveryComponentHasItsOwnGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := on("zero", "first", uncancellable(time.Minute, 1)), on("zero", "second", uncancellable(1120*time.Millisecond, 7))
		first.Timeout, second.Timeout = time.Second, 1050*time.Millisecond
		run := manager(t, first, second).Run(t.Context(), &alone)
		assert.Equal(t, rewards.StatusOK, componentOf(t, run.Result, "second").Status)
		assert.InDelta(t, 7, run.Result.Score, 0)
		<-run.Done()
	})
}

// A machine so busy that the run's own goroutine wakes late must not turn an
// answer that came in time into a timeout.
func TestAnAnswerThatLiesUnreadAtTheDeadlineCounts(t *testing.T) {
	t.Parallel()
	m := manager(t, component("t", constant(1)))
	got := rewards.TakeLate(m, rewards.ComponentResult{Key: "t", Status: rewards.StatusOK, Value: 3})
	assert.Equal(t, rewards.StatusOK, got.Status)
	assert.InDelta(t, 3, got.Value, 0)
}

func TestASampleWhoseContextEndsIsCancelledAtOnce(t *testing.T) {
	t.Parallel()
	scorers := map[string]rewards.Scorer{
		"a scorer that heeds it":   slow(time.Minute, 1),
		"a scorer that ignores it": uncancellable(time.Minute, 1),
	}
	for name, sc := range scorers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				run := manager(t, required("t", sc), component("quick", constant(1))).Run(ctx, &alone)
				assert.Equal(t, time.Second, time.Since(start))
				assert.Equal(t, rewards.OutcomeCancelled, run.Result.Outcome)
				assert.Nil(t, run.Result.Pending)
				<-run.Done()
			})
		})
	}
}

func TestASampleThatIsCancelledBeforeItStartsIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 { // the answers and the end of ctx come together
			run := manager(t, required("a", constant(1)), component("b", broken(rewards.BadInput))).Run(ctx, &alone)
			assert.Equal(t, rewards.OutcomeCancelled, run.Result.Outcome)
			<-run.Done()
		}
	})
}

func TestWhatIsNoFiniteNumberOrASentinelIsAFailure(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -999, -1} {
		tm := on("zero", "t", constant(v))
		tm.InvalidValues = []float64{-999, -1}
		r := score(t, manager(t, tm), alone)
		require.Len(t, r.Errors, 1, "%v", v)
		assert.Equal(t, rewards.InvalidScore, r.Errors[0].Class)
		assert.Contains(t, r.Errors[0].Message, fmt.Sprint(v))
		assert.InDelta(t, 0, r.Score, 0)
	}
	r := score(t, manager(t, component("t", constant(-999))), alone)
	assert.InDelta(t, -999, r.Score, 0, "a number like any other where it is not configured")
}

func TestMessagesOfScorersAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", 1<<20)
	scorers := map[string]rewards.Scorer{
		"error": failing(errors.New(long)),
		"panic": bySample(func(*rewards.Sample) (rewards.Score, error) { panic(long) }),
	}
	for name, sc := range scorers {
		r := score(t, manager(t, component("t", sc)), alone)
		require.Len(t, r.Errors, 1, name)
		assert.LessOrEqual(t, len(r.Errors[0].Message), 4100, name)
		assert.Greater(t, len(r.Errors[0].Message), 2000, name)
		assert.True(t, utf8.ValidString(r.Errors[0].Message), name)
	}
	r := score(t, manager(t, component("t", failing(rewards.Skip(long)))), alone)
	assert.LessOrEqual(t, len(r.Components[0].Reason), 4100)
}

func TestAPanicInAGuardedCallIsAnErrorOfItsClass(t *testing.T) {
	t.Parallel()
	err := rewards.Guard(func() error { panic(strings.Repeat("x", 10_000)) })
	require.ErrorIs(t, err, rewards.Panicked)
	assert.Contains(t, err.Error(), "run_test.go", "where it happened")
	assert.Less(t, len(err.Error()), 5000, "what a panic says is bounded")
	require.NoError(t, rewards.Guard(func() error { return nil }))
	require.ErrorIs(t, rewards.Guard(func() error { return rewards.BadInput }), rewards.BadInput)
}
