package loop_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// member is one of eight samples of a prompt group.
func member(i int) *rewards.Sample {
	s := rig.Sample(fmt.Sprint("m", i), 3)
	s.UID, s.GroupSize, s.Step = "prompt", 8, 1
	return s
}

// twoComponents are a sure component of value 100 and an optional one, weight 0.5, whose value
// is the member's number and which fails for those listed.
func twoComponents(t *testing.T, failing ...string) map[string]*rewards.Manager {
	t.Helper()
	sure := rewards.Component{Key: "sure", Weight: 1, Required: true, Scorer: rewards.ScorerFunc(
		func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{Value: 100}, nil })}
	shaky := rewards.Component{Key: "shaky", Weight: 0.5, Scorer: rewards.ScorerFunc(
		func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			if slices.Contains(failing, s.ID) {
				return rewards.Score{}, fmt.Errorf("%w: as planned", rewards.BadInput)
			}
			return rewards.Score{Value: float64(s.ID[1] - '0')}, nil
		})}
	return profiles(t, sure, shaky)
}

// both runs a test over both ways in: send takes the members, and the function that
// it returns gives their results.
func both(t *testing.T, o rig.Options, policy string, test func(t *testing.T, s *stage, send func(...*rewards.Sample) func(id string) *wire.Result)) {
	t.Helper()
	timed := o
	timed.Loop.SampleTimeout = time.Minute
	t.Run("submitted", func(t *testing.T) {
		t.Parallel()
		onStage(t, o, func(t *testing.T, s *stage) {
			t.Helper()
			p, err := rewards.ParseSamplePolicy(policy)
			require.NoError(t, err)
			futures := map[string]*loop.Future{}
			test(t, s, func(samples ...*rewards.Sample) func(string) *wire.Result {
				for _, sample := range samples {
					f, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_run", Sample: sample, Timeout: time.Minute, Policy: &p})
					require.NoError(t, err)
					futures[sample.ID] = f
				}
				return func(id string) *wire.Result { return result(t, futures[id]) }
			})
		})
	})
	t.Run("over a session", func(t *testing.T) {
		t.Parallel()
		onStage(t, timed, func(t *testing.T, s *stage) {
			t.Helper()
			p := s.connect(t, wire.Hello{Run: "run", OnSampleFailure: policy})
			defer p.drop()
			test(t, s, func(samples ...*rewards.Sample) func(string) *wire.Result {
				for _, sample := range samples {
					p.send(t, sample)
				}
				return func(id string) *wire.Result { return p.result(t, id) }
			})
		})
	})
}

func TestOneFailedComponentOfEightMembersIsImputedWithTheMeanOfTheSeven(t *testing.T) {
	t.Parallel()
	o := rig.Options{Workers: 2, Worker: rig.Settings{Places: 2}, Profiles: twoComponents(t, "m3")}
	both(t, o, "", func(t *testing.T, _ *stage, send func(...*rewards.Sample) func(string) *wire.Result) {
		t.Helper()
		var all []*rewards.Sample
		for i := range 8 {
			all = append(all, member(i))
		}
		send(all[:7]...)
		synctest.Wait()
		time.Sleep(10 * time.Second) // the seventh of eight: the failed one waits for the last
		get := send(all[7])
		const mean = (0 + 1 + 2 + 4 + 5 + 6 + 7) / 7.0
		for i := range 8 {
			res := get(fmt.Sprint("m", i))
			require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
			if i != 3 {
				require.InDelta(t, 100+0.5*float64(i), *res.RewardScore, 1e-12)
				require.Equal(t, false, res.ExtraInfo["reward/shaky/imputed"])
				continue
			}
			require.InDelta(t, 100+0.5*mean, *res.RewardScore, 1e-12)
			require.Equal(t, true, res.ExtraInfo["reward/shaky/imputed"])
			require.InDelta(t, mean, res.ExtraInfo["reward/shaky"], 1e-12)
			require.Equal(t, true, res.ExtraInfo["rewardloop/valid"])
			require.Equal(t, rewards.BadInput, res.Errors[0].Class, "the failure is told all the same")
			require.NotNil(t, res.Group)
			require.Equal(t, 8, res.Group.Scored)
			require.Zero(t, res.Group.Failed+res.Group.Missing)
			require.InDelta(t, 100+0.5*mean, *res.Group.Mean, 1e-12, "an imputed member carries no signal")
		}
	})
}

func TestAGroupWhoseMemberNeverArrivesEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	o := rig.Options{Workers: 2, Profiles: twoComponents(t, "m3")}
	both(t, o, "", func(t *testing.T, _ *stage, send func(...*rewards.Sample) func(string) *wire.Result) {
		t.Helper()
		start := time.Now()
		send(member(0))
		time.Sleep(5 * time.Second)
		get := send(member(1), member(2), member(3))
		res := get("m3")
		require.WithinDuration(t, start.Add(time.Minute), time.Now(), 200*time.Millisecond, "the deadline of its first member")
		require.Equal(t, rewards.Scored, res.Outcome)
		require.InDelta(t, 100+0.5*(0+1+2)/3.0, *res.RewardScore, 1e-12)
		require.Equal(t, 4, res.Group.Missing)
		// One that comes after the end is scored on its own.
		get = send(member(5))
		require.InDelta(t, 102.5, *get("m5").RewardScore, 1e-12)
	})
}

func TestAComponentThatFailedForTheWholeGroupLeavesNoScore(t *testing.T) {
	t.Parallel()
	all := ids("m", 8)
	o := rig.Options{Workers: 2, Profiles: twoComponents(t, all...)}
	both(t, o, "", func(t *testing.T, _ *stage, send func(...*rewards.Sample) func(string) *wire.Result) {
		t.Helper()
		var samples []*rewards.Sample
		for i := range 8 {
			samples = append(samples, member(i))
		}
		get := send(samples...)
		rewardsSeen := map[float64]bool{}
		for _, id := range all {
			res := get(id)
			require.Equal(t, rewards.Scored, res.Outcome, "the component is left out for the whole group")
			rewardsSeen[*res.RewardScore] = true
			require.Nil(t, res.ExtraInfo["reward/shaky"])
		}
		require.Len(t, rewardsSeen, 1, "all are scored by the other component")
	})
}

func TestAFailedSampleHasTheMeanOfItsGroupBesideItsNullScore(t *testing.T) {
	t.Parallel()
	score := func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		if s.ID == "m3" {
			return rewards.Score{}, rewards.BadInput
		}
		return rewards.Score{Value: float64(s.ID[1] - '0')}, nil
	}
	o := rig.Options{Workers: 2, Profiles: profiles(t, component(score))}
	both(t, o, "group_mean", func(t *testing.T, _ *stage, send func(...*rewards.Sample) func(string) *wire.Result) {
		t.Helper()
		var samples []*rewards.Sample
		for i := range 8 {
			samples = append(samples, member(i))
		}
		get := send(samples...)
		for i := range 8 {
			res := get(fmt.Sprint("m", i))
			if i != 3 {
				require.Equal(t, rewards.Scored, res.Outcome)
				require.Nil(t, res.Fallback)
				continue
			}
			require.Equal(t, rewards.Failed, res.Outcome)
			require.Nil(t, res.RewardScore, "the wire never invents")
			require.Equal(t, "group_mean", res.Fallback.Policy)
			require.InDelta(t, 25/7.0, *res.Fallback.Value, 1e-12)
			require.Equal(t, 1, res.Group.Failed)
		}
	})
}

func TestAGroupWithoutAValidMemberHasNoMean(t *testing.T) {
	t.Parallel()
	score := func(context.Context, *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{}, rewards.BadInput
	}
	o := rig.Options{Workers: 2, Profiles: profiles(t, component(score))}
	both(t, o, "group_mean", func(t *testing.T, _ *stage, send func(...*rewards.Sample) func(string) *wire.Result) {
		t.Helper()
		var samples []*rewards.Sample
		for i := range 8 {
			samples = append(samples, member(i))
		}
		get := send(samples...)
		for _, id := range ids("m", 8) {
			res := get(id)
			require.Equal(t, rewards.Failed, res.Outcome)
			require.Nil(t, res.Fallback.Value)
		}
	})
}

func TestAFixedFallbackWaitsForNobody(t *testing.T) {
	t.Parallel()
	score := func(context.Context, *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{}, rewards.BadInput
	}
	o := rig.Options{Workers: 2, Profiles: profiles(t, component(score))}
	both(t, o, "value:-1", func(t *testing.T, _ *stage, send func(...*rewards.Sample) func(string) *wire.Result) {
		t.Helper()
		start := time.Now()
		res := send(member(0))("m0")
		require.Less(t, time.Since(start), time.Second)
		require.Nil(t, res.RewardScore)
		require.InDelta(t, -1.0, *res.Fallback.Value, 0)
	})
}

func TestACancelledMemberDoesNotWaitForItsGroup(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(hanging))}, func(t *testing.T, s *stage) {
		t.Helper()
		p, err := rewards.ParseSamplePolicy("group_mean")
		require.NoError(t, err)
		f, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_run", Sample: member(0), Policy: &p})
		require.NoError(t, err)
		f.Cancel("not wanted")
		start := time.Now()
		require.Equal(t, rewards.OutcomeCancelled, result(t, f).Outcome)
		require.Less(t, time.Since(start), time.Second)
	})
}

func TestAHeldMemberIsReleasedAtItsOwnDeadline(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 2, Profiles: twoComponents(t, "m3")}, func(t *testing.T, s *stage) {
		t.Helper()
		first := s.submitFor(t, "_run", member(0), time.Hour) // opens the group for an hour
		require.Equal(t, rewards.Scored, result(t, first).Outcome)
		start := time.Now()
		res := result(t, s.submitFor(t, "_run", member(3), 10*time.Second))
		require.WithinDuration(t, start.Add(10*time.Second), time.Now(), 200*time.Millisecond)
		require.Equal(t, rewards.Scored, res.Outcome)
		require.InDelta(t, 100.0, *res.RewardScore, 1e-12, "the mean of the one member that is there")
	})
}

// Two workers score the same member: the first one's answer stands, also while it
// waits for the group.
func TestAHeldResultIsNotReplacedByALaterOne(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 0, Profiles: profiles(t, component(hanging))}, func(t *testing.T, s *stage) {
		t.Helper()
		pair := [2]*rewards.Sample{member(0), member(1)}
		var futures [2]*loop.Future
		for i, sample := range pair {
			sample.GroupSize = 2
			futures[i] = s.submit(t, "_run", sample)
		}
		a, b := s.stub(t, "a"), s.stub(t, "b")
		first, other := a.claim(t), a.claim(t)
		time.Sleep(lease + 100*time.Millisecond)
		second := b.claim(t)
		if second.ID != first.ID {
			second = b.claim(t)
		}
		pending := &wire.Result{
			ID: first.ID, Attempt: first.Key(), Worker: "a", Outcome: rewards.Scored, ExtraInfo: map[string]any{},
			Pending: &rewards.Pending{Aggregation: rewards.WeightedSum, Want: []rewards.WeightedValue{{Key: "x", Weight: 1}}},
		}
		require.NoError(t, s.Manager.Finish(t.Context(), wire.Ticket{}, pending))
		b.answer(t, second, 99)
		require.Empty(t, futures[0].Peek(), "the late answer ended the waiting")
		score := 7.0
		require.NoError(t, s.Manager.Finish(t.Context(), wire.Ticket{}, &wire.Result{
			ID: other.ID, Attempt: other.Key(), Worker: "a", Outcome: rewards.Scored, RewardScore: &score,
			ExtraInfo: map[string]any{}, Values: map[string]float64{"x": 7},
		}))
		for _, f := range futures {
			require.InDelta(t, 7.0, *result(t, f).RewardScore, 0)
		}
		a.release()
		b.release()
	})
}

// A worker that saw a group where the gateway sees none leaves its sample unfinished; it
// ends as any other without a score, with what its policy puts in its place.
func TestAnUnfinishedSampleWithoutAGroupHasItsFallback(t *testing.T) {
	t.Parallel()
	o := rig.Options{
		Loop: loop.Config{OnSampleFailure: map[string]rewards.SamplePolicy{"": {Policy: rewards.PolicyZero}}}, Profiles: profiles(t, component(hanging)),
	}
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		w := s.stub(t, "w")
		defer w.release()
		f := s.submit(t, "_run", rig.Sample("x", 30))
		ticket := w.claim(t)
		require.NoError(t, s.Manager.Finish(t.Context(), ticket, &wire.Result{
			ID: ticket.ID, Attempt: ticket.Key(), Worker: w.id, Outcome: rewards.Scored, ExtraInfo: map[string]any{},
			Pending: &rewards.Pending{Want: []rewards.WeightedValue{{Key: "hash", Weight: 1}}},
		}))
		res := result(t, f)
		require.Equal(t, rewards.Failed, res.Outcome)
		require.NotNil(t, res.Fallback)
		require.Zero(t, *res.Fallback.Value)
	})
}

// A filter of groups by their standard deviation, such as verl's for DAPO, drops a group of equal
// rewards; 0.1 + 0.1 + 0.1 is not three times 0.1.
func TestTheMeanOfEqualRewardsIsThatRewardToTheLastBit(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{0.1, 0.7, 1.0 / 3, 1e-300, -123.456} {
		for n := 2; n <= 16; n++ {
			mean, _ := loop.OpenGroup(slices.Repeat([]float64{v}, n)...)
			require.Equal(t, math.Float64bits(v), math.Float64bits(mean), "%d times %v", n, v)
		}
	}
}

// Sums of floats depend on their order, and the same rewards shall have the same mean.
func TestTheMeanOfAnOpenGroupIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	values := []float64{0.1, 1e16, 0.7, -1e16, 0.3, 1e8, -0.9}
	mean, std := loop.OpenGroup(values...)
	for range 50 {
		m, s := loop.OpenGroup(values...)
		require.InDelta(t, mean, m, 0)
		require.InDelta(t, std, s, 0)
	}
}
