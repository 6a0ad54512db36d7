package loop_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// says answers a ticket with everything that a result can have, and ends its lease.
func (w *stub) says(t *testing.T, ticket wire.Ticket, res wire.Result) {
	t.Helper()
	res.ID, res.Attempt, res.Worker = ticket.ID, ticket.Key(), w.id
	require.NoError(t, w.s.Manager.Finish(t.Context(), wire.Ticket{}, &res))
	w.lease(ticket).Done()
}

func TestAChunkHasEveryNumericColumnAndTheStepScoresOfItsRows(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Profiles: profiles(t, component(hanging))}, func(t *testing.T, s *stage) {
		t.Helper()
		w := s.stub(t, "w")
		defer w.release()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 3})
		for _, id := range []string{"a", "b", "c"} {
			sample := rig.Sample(id, 3)
			sample.Step = 1
			p.send(t, sample)
		}
		for range 3 {
			ticket := w.claim(t)
			switch ticket.ID {
			case "a":
				w.says(t, ticket, wire.Result{
					Outcome: rewards.Scored, RewardScore: new(1.5), StepScores: []float64{1, 0.5},
					ExtraInfo: map[string]any{"reward/x": 0.25, "reward/words": int64(7), "reward/text": "long", "reward/ok": true, "rewardloop/own": 1.0},
				})
			case "b":
				w.says(t, ticket, wire.Result{Outcome: rewards.Scored, RewardScore: new(2.0), ExtraInfo: map[string]any{"reward/words": int64(9)}})
			default:
				w.fail(t, ticket, rewards.BadInput)
			}
		}
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 1, WaitMS: 60_000})
		require.True(t, res.Done)
		assert.Equal(t, []string{"a", "b", "c"}, res.IDs, "without places in the batch, by id")
		assert.Equal(t, [][]float64{{1, 0.5}, {}, {}}, res.StepScores, "none is not null")
		assert.Equal(t, map[string][]*float64{
			"reward/x": {new(0.25), nil, nil}, "reward/words": {new(7.0), new(9.0), nil},
		}, res.Components, "numbers only, whole ones too; absent is null")
	})
}

// What is declared and never comes has rows at the deadline all the same.
func TestAStepOfWhichNothingCameHasItsRowsForAsLongAsAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ids     []string
		wantIDs []string
	}{
		"with ids":    {[]string{"x", "y", "z"}, []string{"x", "y", "z"}},
		"without ids": {nil, []string{"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStage(t, rig.Options{}, func(t *testing.T, s *stage) {
				t.Helper()
				p := s.connect(t, wire.Hello{Run: "run"})
				defer p.drop()
				s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 3, IDs: c.ids, DeadlineMS: 10_000})
				time.Sleep(5 * time.Minute) // the trainer takes its time
				res := s.fetch(t, wire.Fetch{Req: 1, Step: 1})
				require.True(t, res.Done)
				require.Equal(t, wire.StepShort, res.State)
				require.Equal(t, []int64{0, 1, 2}, indices(res))
				require.Equal(t, c.wantIDs, res.IDs)
				require.Equal(t, []*float64{nil, nil, nil}, res.Scores)
				require.Len(t, res.Without, 3)
				time.Sleep(time.Hour)
				_, err := s.Manager.Rewards(t.Context(), "run", 0, wire.Fetch{Req: 2, Step: 1})
				require.ErrorIs(t, err, rewards.Expired, "not for ever")
				require.Zero(t, s.Manager.StepBytes())
			})
		})
	}
}

func TestAStepThatWasEndedWithoutASampleIsDoneAtOnce(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1}) // end_of_step
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 1})
		require.True(t, res.Ready)
		require.True(t, res.Done)
		require.Equal(t, wire.StepComplete, res.State)
		require.Empty(t, res.IDs)
	})
}

// Rows by place in the batch where some samples are too late, whole groups are missing and
// others are half there; the trainer learns which.
func TestRowsThatNobodyFilledAreFoundByTheirPlace(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 12, DeadlineMS: 20_000})
		for _, i := range []int{0, 1, 2, 3, 4, 6} {
			p.send(t, rowOf(1, i))
		}
		first := s.fetch(t, wire.Fetch{Req: 1, Step: 1, Groups: 1, Order: wire.ByIndex, WaitMS: 5000})
		assert.Equal(t, []int64{0, 1, 2, 3}, indices(first))
		early := s.fetch(t, wire.Fetch{Req: 2, Step: 1, Chunk: 1, Groups: 1, Order: wire.ByIndex, WaitMS: 5000})
		assert.False(t, early.Ready)
		assert.EqualValues(t, 1, early.Chunk, "the number of the chunk that is not there yet")
		d, err := s.Manager.Step("run", "", 1)
		require.NoError(t, err)
		assert.Zero(t, d.GroupsReady)
		rest := s.fetch(t, wire.Fetch{Req: 3, Step: 1, Chunk: 1, Order: wire.ByIndex, WaitMS: 60_000})
		assert.Equal(t, wire.StepShort, rest.State)
		assert.Equal(t, []int64{4, 5, 6, 7, 8, 9, 10, 11}, indices(rest), "a row for each, in order")
		assert.Len(t, rest.Without, 6)
	})
}

// Samples without places in the batch cannot be found by them: the groups that lack
// members are told instead.
func TestGroupsThatLackMembersAreNamedWhereRowsCannotBe(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 12, DeadlineMS: 20_000})
		for _, i := range []int{0, 1, 2, 3, 4, 6, 9} {
			sample := rowOf(1, i)
			sample.Index = nil
			p.send(t, sample)
		}
		ready, err := s.Manager.Step("run", "", 1)
		require.NoError(t, err)
		require.Zero(t, ready.GroupsReady)
		time.Sleep(5 * time.Second)
		ready, err = s.Manager.Step("run", "", 1)
		require.NoError(t, err)
		require.Equal(t, 1, ready.GroupsReady, "g0, which nobody has asked for")
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 1, WaitMS: 60_000})
		require.True(t, res.Done)
		require.Len(t, res.IDs, 7)
		require.Equal(t, []wire.Missing{
			{UID: "g1", Stage: "not arrived", Members: 2},
			{UID: "g2", Stage: "not arrived", Members: 3},
		}, res.Without)
	})
}

// Everything came, and one is still being scored when the step's time is over.
func TestAStepIsShortAlthoughEverythingCame(t *testing.T) {
	t.Parallel()
	slow := map[string]time.Duration{"s1-2": time.Hour}
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(lasting(slow)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 4, DeadlineMS: 20_000})
		for i := range 4 {
			p.send(t, rowOf(1, i))
		}
		res := s.fetch(t, wire.Fetch{Req: 1, Step: 1, WaitMS: 60_000})
		require.Equal(t, wire.StepShort, res.State)
		require.Equal(t, []bool{true, true, false, true}, res.Valid)
		require.Len(t, res.Without, 1)
		require.Equal(t, "s1-2", res.Without[0].ID)
	})
}

// A step that ended in time stays complete, whatever is said of it later.
func TestAStepThatEndedInTimeIsNotShortAtItsDeadline(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		say := wire.Step{Step: 1, Expected: 4, DeadlineMS: 20_000}
		s.Manager.Declare(p.session, say)
		for i := range 4 {
			p.send(t, rowOf(1, i))
		}
		require.Equal(t, wire.StepComplete, s.fetch(t, wire.Fetch{Req: 1, Step: 1, WaitMS: 60_000}).State)
		s.Manager.Declare(p.session, say) // as a client that comes back does
		time.Sleep(time.Minute)
		require.Equal(t, wire.StepComplete, s.fetch(t, wire.Fetch{Req: 1, Step: 1}).State)
		require.NoError(t, s.Manager.TryDeclare(p.session, say), "its deadline has not ended it")
	})
}

func TestNobodyDeclaresAStepThatIsOver(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		say := wire.Step{Step: 1, Expected: 4, DeadlineMS: 20_000}
		require.NoError(t, s.Manager.TryDeclare(p.session, say))
		time.Sleep(time.Minute)
		err := s.Manager.TryDeclare(p.session, say)
		require.ErrorIs(t, err, rewards.Expired)
		require.ErrorContains(t, err, "step 1 (train) ended at its deadline")

		p.drop()
		s.connect(t, wire.Hello{Run: "run"}).drop() // the trainer was started again
		say.Step = 2
		err = s.Manager.TryDeclare(p.session, say)
		require.ErrorIs(t, err, rewards.Malformed)
		require.ErrorContains(t, err, "new epoch")
		require.ErrorContains(t, s.Manager.TryEndStep(p.session, wire.EndOfStep{Step: 2}), "new epoch")
		old := p.welcome().Epoch
		_, err = s.Manager.Rewards(t.Context(), "run", old, wire.Fetch{Req: 1, Step: 1})
		require.ErrorContains(t, err, "new epoch")
		_, err = s.Manager.Step("run", "", 2)
		require.ErrorIs(t, err, loop.ErrUnknown, "the new epoch knows of no step")
	})
}

// Rows are dropped while samples are in flight: the deadline of the step still ends them.
func TestAStepWhoseRowsWereDroppedEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	o := rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(hanging))}
	o.Loop.StepBytes = 1000
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 5, DeadlineMS: 20_000})
		for i := range 4 {
			p.send(t, rowOf(1, i))
		}
		s.Manager.Cancel(p.session, "s1-3")
		start := time.Now()
		_, err := s.Manager.Rewards(t.Context(), "run", 0, wire.Fetch{Req: 1, Step: 1})
		require.ErrorContains(t, err, "loop.step_bytes = 1000 is full")
		trace, err := s.Manager.Trace("run", "", 1)
		require.ErrorIs(t, err, rewards.Expired)
		require.Empty(t, trace.Spans)
		res := p.result(t, "s1-0")
		require.Equal(t, rewards.OutcomeExpired, res.Outcome)
		require.InDelta(t, 20, time.Since(start).Seconds(), 1)
		d, err := s.Manager.Step("run", "", 1)
		require.NoError(t, err)
		require.Equal(t, 1, d.Missing)
		require.Empty(t, d.Without, "no rows are made for a step whose rows were dropped")
		_, err = s.Manager.Trace("run", "", 99)
		require.ErrorIs(t, err, loop.ErrUnknown)
	})
}

func TestWhoWaitsForRewardsIsToldOfTheStop(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ask, wait := s.Manager.Asks(ctx, p.session, p)
		ask(wire.Fetch{Req: 1, Step: 1, WaitMS: 600_000})
		ended := make(chan error, 1)
		go func() {
			_, err := s.Manager.Rewards(ctx, "run", 0, wire.Fetch{Req: 2, Step: 1, WaitMS: 600_000})
			ended <- err
		}()
		synctest.Wait()
		start := time.Now()
		s.Manager.Stop()
		require.ErrorIs(t, <-ended, loop.ErrStopped)
		wait()
		require.Less(t, time.Since(start), time.Minute)
		require.Empty(t, got[*wire.Error](p), "the next gateway says what became of the step")
		p.drop()
	})
}

// One group alone may be larger than what a connection takes.
func TestAChunkThatNoConnectionTakesIsRefusedOverTheWebsocketOnly(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	o := rig.Options{Workers: 1, Worker: workersWith(64), Profiles: patient(t, component(hashing(time.Millisecond)))}
	o.Loop.CreditSamples = 2000
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		const n = 1200
		long := strings.Repeat("\x01", 500) // six bytes each in JSON
		for i := range n {
			sample := ofGroup(long, 0, n)
			sample.ID = fmt.Sprint(i) + long
			p.send(t, sample)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ask, wait := s.Manager.Asks(ctx, p.session, p)
		ask(wire.Fetch{Req: 7, Step: 1, Groups: 1, WaitMS: 60_000})
		wait()
		refused := got[*wire.Error](p)
		require.Len(t, refused, 1)
		require.EqualValues(t, 7, refused[0].Req)
		require.Equal(t, rewards.TooLarge, refused[0].Code)
		require.Contains(t, refused[0].Message, "read the chunk over HTTP")
		require.Len(t, s.fetch(t, wire.Fetch{Step: 1}).IDs, n)
	})
}

// A plain read has every group that is complete, handed out or not, and takes nothing from who
// reads in chunks.
func TestAPlainReadHandsNothingOut(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Worker: workersWith(16), Profiles: patient(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 8, DeadlineMS: 20_000})
		for _, i := range []int{0, 1, 2, 3, 4} { // a group of four, and one of the next
			p.send(t, rowOf(1, i))
		}
		time.Sleep(2 * time.Second)
		for range 2 {
			some := s.fetch(t, wire.Fetch{Step: 1, Chunk: step.All})
			assert.True(t, some.Ready)
			assert.False(t, some.Done)
			assert.Equal(t, []int64{0, 1, 2, 3}, indices(some))
		}
		first := s.fetch(t, wire.Fetch{Step: 1, Groups: 1})
		assert.Equal(t, []int64{0, 1, 2, 3}, indices(first))
		assert.Equal(t, []int64{0, 1, 2, 3}, indices(s.fetch(t, wire.Fetch{Step: 1, Chunk: step.All})), "although they were handed out")
		for _, i := range []int{5, 6, 7} {
			p.send(t, rowOf(1, i))
		}
		begun := time.Now()
		all := s.fetch(t, wire.Fetch{Step: 1, Chunk: step.All, WaitMS: 60_000})
		assert.Less(t, time.Since(begun), 5*time.Second)
		assert.True(t, all.Done)
		assert.Equal(t, []int64{0, 1, 2, 3, 4, 5, 6, 7}, indices(all))
		rest := s.fetch(t, wire.Fetch{Step: 1, Chunk: 1})
		assert.Equal(t, []int64{4, 5, 6, 7}, indices(rest))
		assert.True(t, rest.Done)
	})
}
