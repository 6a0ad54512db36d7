package loop_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// claimGroup takes a group's ticket and its payload.
func (w *stub) claimGroup(t *testing.T) wire.Ticket {
	t.Helper()
	for i := range 1000 {
		got, err := w.source.Take(t.Context(), wire.QueueName(w.serves[i%len(w.serves)], ""), 1)
		require.NoError(t, err)
		if len(got) == 0 {
			continue
		}
		ticket := got[0].Ticket()
		require.True(t, ticket.Group)
		g, err := w.s.Manager.ClaimGroup(t.Context(), ticket, w.id)
		require.NoError(t, err)
		w.leases = append(w.leases, got[0])
		for _, m := range g.Members {
			w.frames = append(w.frames, m.Frame)
		}
		return ticket
	}
	require.Fail(t, "no ticket of a group came")
	return wire.Ticket{}
}

// scoreApart sends samples over p and has their own components scored.
func (w *stub) scoreApart(t *testing.T, p *peer, samples ...*rewards.Sample) {
	t.Helper()
	for _, sample := range samples {
		p.send(t, sample)
		ticket := w.claim(t)
		w.gather(t, ticket)
		w.lease(ticket).Done()
	}
}

// memberScored is a member's result as a worker gives it with its group.
func memberScored(id string, score float64) *wire.Result {
	return &wire.Result{ID: id, Outcome: rewards.Scored, RewardScore: &score, ExtraInfo: map[string]any{}}
}

// onGroups is a stage with two workers that do what the test says, and a client.
func onGroups(t *testing.T, cfg loop.Config, test func(t *testing.T, s *stage, p *peer, a, b *stub)) {
	t.Helper()
	onStage(t, rig.Options{Profiles: profiles(t, component(hanging)), Loop: cfg}, func(t *testing.T, s *stage) {
		t.Helper()
		a, b := s.stub(t, "a"), s.stub(t, "b")
		p := s.connect(t, wire.Hello{Run: "run"})
		test(t, s, p, a, b)
		p.drop()
		a.release()
		b.release()
	})
}

func TestAMemberThatAWorkerLeavesOutOfItsAnswerFailsAlone(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{}, func(t *testing.T, _ *stage, p *peer, a, _ *stub) {
		t.Helper()
		a.scoreApart(t, p, fourOf("u")...)
		a.says(t, a.claimGroup(t), wire.Result{Outcome: rewards.Scored, Members: []*wire.Result{
			memberScored("u-0", 1), memberScored("u-1", 2), memberScored("u-3", 3),
		}})
		require.InDelta(t, 3.0, *p.result(t, "u-3").RewardScore, 0)
		out := p.result(t, "u-2")
		require.Equal(t, rewards.Failed, out.Outcome)
		require.Nil(t, out.RewardScore)
		require.Equal(t, rewards.Internal, out.Errors[0].Class)
		require.Contains(t, out.Errors[0].Message, "worker a left the sample out")
		require.Equal(t, 3, out.Group.Scored)
		require.Equal(t, 1, out.Group.Failed)
	})
}

func TestAGroupWhoseWorkersKeepVanishingIsLost(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{MaxAttempts: 2}, func(t *testing.T, s *stage, p *peer, a, b *stub) {
		t.Helper()
		a.scoreApart(t, p, ofGroup("u", 0, 2), ofGroup("u", 1, 2))
		ticket := a.claimGroup(t)
		time.Sleep(lease + 100*time.Millisecond)
		b.claimGroup(t)
		_, err := s.Manager.ClaimGroup(t.Context(), ticket, "c")
		require.ErrorIs(t, err, wire.ErrGone)
		for _, id := range []string{"u-0", "u-1"} {
			res := p.result(t, id)
			require.Equal(t, rewards.OutcomeWorkerLost, res.Outcome)
			require.Contains(t, res.Errors[0].Message, "workers got the sample 2 times and did not answer 2 times")
		}
	})
}

// A worker that stops hands back what it has: that is no failure.
func TestWhatAWorkerHandsBackGoesToAnotherWithoutCountingAsAFailure(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{}, func(t *testing.T, _ *stage, p *peer, a, b *stub) {
		t.Helper()
		p.send(t, rig.Sample("alone", 3))
		a.says(t, a.claim(t), wire.Result{Outcome: rewards.OutcomeCancelled})
		b.answer(t, b.claim(t), 5)
		res := p.result(t, "alone")
		require.InDelta(t, 5.0, *res.RewardScore, 0)
		require.Empty(t, res.Errors)

		a.scoreApart(t, p, ofGroup("u", 0, 2), ofGroup("u", 1, 2))
		a.says(t, a.claimGroup(t), wire.Result{Outcome: rewards.OutcomeCancelled})
		b.says(t, b.claimGroup(t), wire.Result{Outcome: rewards.Scored, Members: []*wire.Result{memberScored("u-0", 1), memberScored("u-1", 2)}})
		res = p.result(t, "u-1")
		require.InDelta(t, 2.0, *res.RewardScore, 0)
		require.Empty(t, res.Errors)
	})
}

// A worker whose process for the group dies has nothing to say of its members.
func TestAFailureOfAWholeGroupIsTriedAgainAndThenTheResultOfEachMember(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{MaxAttempts: 2}, func(t *testing.T, s *stage, p *peer, a, b *stub) {
		t.Helper()
		a.scoreApart(t, p, ofGroup("u", 0, 2), ofGroup("u", 1, 2))
		ticket := a.claimGroup(t)
		stranger := &stub{s: s, id: "never claimed it"}
		stranger.fail(t, ticket, rewards.BadInput) // says nothing
		synctest.Wait()
		require.Empty(t, got[*wire.Result](p))
		a.fail(t, ticket, rewards.Crashed)
		b.fail(t, b.claimGroup(t), rewards.Crashed)
		for _, id := range []string{"u-0", "u-1"} {
			res := p.result(t, id)
			require.Equal(t, rewards.Failed, res.Outcome)
			require.Len(t, res.Errors, 2, "of both attempts")
			require.Equal(t, rewards.Crashed, res.Errors[0].Class)
		}
	})
}

func TestAFailureWithoutAReasonIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{}, func(t *testing.T, _ *stage, p *peer, a, _ *stub) {
		t.Helper()
		p.send(t, rig.Sample("x", 3))
		a.says(t, a.claim(t), wire.Result{Outcome: rewards.Failed})
		require.Equal(t, rewards.Failed, p.result(t, "x").Outcome)
	})
}

func TestAMemberThatAsksForAnotherRewardThanItsGroupIsRefused(t *testing.T) {
	t.Parallel()
	both := map[string]*rewards.Manager{"one": profile(t, component(hanging)), "other": profile(t, component(hanging))}
	onStage(t, rig.Options{Profiles: both}, func(t *testing.T, s *stage) {
		t.Helper()
		a := s.stub(t, "a")
		a.serves = []string{"one", "other"}
		defer a.release()
		p := s.connect(t, wire.Hello{Run: "run", Reward: "one"})
		defer p.drop()
		stray := ofGroup("u", 1, 2)
		stray.Reward = "other"
		a.scoreApart(t, p, ofGroup("u", 0, 2), stray)
		res := p.result(t, "u-1")
		require.Equal(t, rewards.Failed, res.Outcome)
		require.Equal(t, rewards.BadInput, res.Errors[0].Class)
		require.Contains(t, res.Errors[0].Message, `group "u" is scored by the reward "one", but this member asks for "other"`)
		a.says(t, a.claimGroup(t), wire.Result{Outcome: rewards.Scored, Members: []*wire.Result{memberScored("u-0", 1)}})
		require.Equal(t, rewards.Scored, p.result(t, "u-0").Outcome)
	})
}

// A worker whose configuration is another one may say so of a sample without a group.
func TestASampleThatWaitsForAGroupItDoesNotHaveFails(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{}, func(t *testing.T, _ *stage, p *peer, a, _ *stub) {
		t.Helper()
		a.scoreApart(t, p, rig.Sample("x", 3))
		res := p.result(t, "x")
		require.Equal(t, rewards.Failed, res.Outcome)
		require.Contains(t, res.Errors[0].Message, "a group but has none")
	})
}

func TestWhatASampleWaitsForIsShown(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{}, func(t *testing.T, s *stage, p *peer, a, b *stub) {
		t.Helper()
		p.send(t, ofGroup("u", 0, 3))
		a.fail(t, a.claim(t), rewards.Unavailable)
		b.gather(t, b.claim(t))
		p.send(t, ofGroup("u", 1, 3))
		ticket := a.claim(t)
		pending, n := s.Manager.Pending(10)
		require.Equal(t, 2, n)
		require.Equal(t, "waiting_for_group", pending[0].Stage)
		require.Equal(t, "u", pending[0].Group)
		require.Equal(t, "as planned by a", pending[0].LastError)
		require.Equal(t, `the sample waited for its group "u", of which 2 of 3 members had arrived; not scored yet: u-1`, pending[0].Waits)
		require.Equal(t, []string{"a"}, pending[1].Workers)
		groups := s.Manager.Runs(1)[0].Groups
		require.Equal(t, []loop.GroupState{{Split: rewards.Train, Step: 1, UID: "u", Size: 3, Arrived: 2}}, groups)

		a.gather(t, ticket)
		a.scoreApart(t, p, ofGroup("u", 2, 3))
		b.claimGroup(t)
		pending, n = s.Manager.Pending(1)
		require.Equal(t, 3, n, "the group itself is no sample")
		require.Len(t, pending, 1)
		require.Equal(t, []string{"b"}, pending[0].Workers)
		require.Equal(t, `its group "u" was being scored`, pending[0].Waits)
	})
}

func TestAStopEndsTheGroupsThatWorkersHave(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{}, func(t *testing.T, s *stage, p *peer, a, _ *stub) {
		t.Helper()
		a.scoreApart(t, p, ofGroup("u", 0, 2), ofGroup("u", 1, 2))
		ticket := a.claimGroup(t)
		a.scoreApart(t, p, ofGroup("v", 0, 2), ofGroup("v", 1, 2)) // its ticket is out
		synctest.Wait()
		s.Manager.Stop()
		require.Zero(t, s.Manager.InFlight())
		require.Error(t, a.lease(ticket).Context().Err())
		err := s.Manager.Finish(t.Context(), ticket, &wire.Result{ID: ticket.ID, Attempt: ticket.Key(), Worker: "a"})
		require.ErrorIs(t, err, loop.ErrStopped)
	})
}

// Memory is full of two groups, of which one is being scored: it ends soon, and the other
// goes on then.
func TestNoGroupIsEndedForMemoryWhileAnotherIsBeingScored(t *testing.T) {
	t.Parallel()
	frame := frameSizeOf(t, ofGroup("a", 0, 6))
	onGroups(t, loop.Config{MaxBytes: 8 * frame, MessageBytes: frame, CreditBytes: 2 * frame}, func(t *testing.T, s *stage, p *peer, a, b *stub) {
		t.Helper()
		a.scoreApart(t, p, ofGroup("a", 0, 2), ofGroup("a", 1, 2))
		ticket := a.claimGroup(t)
		for i := range 4 { // three quarters of the memory are full
			b.scoreApart(t, p, ofGroup("b", i, 6))
		}
		require.Less(t, creditBytes(p), 7*frame, "there is credit for one more")
		synctest.Wait()
		require.Empty(t, got[*wire.Result](p))
		a.says(t, ticket, wire.Result{Outcome: rewards.Scored, Members: []*wire.Result{memberScored("a-0", 1), memberScored("a-1", 2)}})
		p.result(t, "a-0")
		p.result(t, "a-1")
		a.release()
		b.scoreApart(t, p, ofGroup("b", 4, 6), ofGroup("b", 5, 6))
		answer := wire.Result{Outcome: rewards.Scored}
		for i := range 6 {
			answer.Members = append(answer.Members, memberScored(fmt.Sprint("b-", i), 1))
		}
		b.says(t, b.claimGroup(t), answer)
		for i := range 6 {
			require.Equal(t, rewards.Scored, p.result(t, fmt.Sprint("b-", i)).Outcome)
		}
		require.Zero(t, s.Manager.InFlight())
	})
}

func TestAMemberThatExpiresDoesNotWaitForItsGroup(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{}, func(t *testing.T, s *stage, _ *peer, a, _ *stub) {
		t.Helper()
		policy, err := rewards.ParseSamplePolicy("group_mean")
		require.NoError(t, err)
		submit := func(i int, timeout time.Duration) *loop.Future {
			f, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_run", Sample: ofGroup("u", i, 3), Timeout: timeout, Policy: &policy})
			require.NoError(t, err)
			return f
		}
		first := submit(0, time.Hour) // opens the group for an hour
		a.answer(t, a.claim(t), 4)
		result(t, first)
		start := time.Now()
		res := result(t, submit(1, 10*time.Second))
		require.Equal(t, rewards.OutcomeExpired, res.Outcome)
		require.InDelta(t, 10, time.Since(start).Seconds(), 0.5)
		require.InDelta(t, 4.0, *res.Fallback.Value, 0, "the mean of what is there")
	})
}

// A client may use an id again once it has confirmed its result; in a group that is still
// open it is the same member.
func TestAMemberThatComesTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	onGroups(t, loop.Config{}, func(t *testing.T, s *stage, p *peer, a, _ *stub) {
		t.Helper()
		p.send(t, ofGroup("u", 0, 2))
		a.answer(t, a.claim(t), 1)
		p.m.Confirm(p.session, p.result(t, "u-0").Seq)
		p.send(t, ofGroup("u", 0, 2))
		a.answer(t, a.claim(t), 3)
		synctest.Wait()
		groups := s.Manager.Runs(1)[0].Groups
		require.Equal(t, 1, groups[0].Arrived)
		require.Equal(t, 1, groups[0].Settled)
		require.False(t, groups[0].Closed)
		p.send(t, ofGroup("u", 1, 2))
		a.answer(t, a.claim(t), 5)
		res := p.result(t, "u-1")
		require.InDelta(t, 4.0, *res.Group.Mean, 0, "of 3, its latest value, and 5")
	})
}

// Where the profile groups by prompt, samples without a uid are members of their prompt's
// group in every respect.
func TestSamplesOfOnePromptAreAGroupWhereTheirProfileSaysSo(t *testing.T) {
	t.Parallel()
	byPrompt := func(i, n int) *rewards.Sample {
		s := ofGroup("u", i, n)
		s.UID, s.Prompt = "", "a cat"
		return s
	}
	frame := frameSizeOf(t, byPrompt(0, 9))
	cfg := loop.Config{GroupByPrompt: []string{""}, GroupProfiles: []string{""}, MaxBytes: 8 * frame, MessageBytes: frame}
	onGroups(t, cfg, func(t *testing.T, _ *stage, p *peer, a, _ *stub) {
		t.Helper()
		a.scoreApart(t, p, byPrompt(0, 2), byPrompt(1, 2))
		a.says(t, a.claimGroup(t), wire.Result{Outcome: rewards.Scored, Members: []*wire.Result{memberScored("u-0", 1), memberScored("u-1", 2)}})
		res := p.result(t, "u-1")
		require.Equal(t, rewards.Scored, res.Outcome)
		require.Equal(t, rewards.PromptUID("a cat"), res.Group.UID)

		p.send(t, byPrompt(3, 9))
		refused := p.result(t, "u-3")
		require.Equal(t, rewards.Rejected, refused.Outcome, "nine of them can never be held at once")
		require.Equal(t, rewards.TooLarge, refused.Errors[0].Class)
	})
}
