package loop_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// counted is a stage of one worker whose scorer takes a second, and how often it ran.
func counted(t *testing.T, o rig.Options, test func(t *testing.T, s *stage, runs *atomic.Int64)) {
	t.Helper()
	var runs atomic.Int64
	o.Workers = 1
	if o.Worker.Places == 0 {
		o.Worker.Places = 4
	}
	o.Profiles = profiles(t, component(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		runs.Add(1)
		return hashing(time.Second)(ctx, s)
	}))
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		test(t, s, &runs)
	})
}

func TestAWelcomeSaysEverythingAClientNeeds(t *testing.T) {
	t.Helper()
	t.Parallel()
	counted(t, rig.Options{Loop: loop.Config{CreditSamples: 7, CreditBytes: 4096, MessageBytes: 1 << 20}}, func(t *testing.T, s *stage, _ *atomic.Int64) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		w := p.welcome()
		require.NotEmpty(t, w.Session)
		require.NotZero(t, w.Epoch)
		require.False(t, w.Resumed)
		require.Equal(t, "rewardloop.v1", w.Protocol)
		require.Equal(t, wire.CreditTotals{Samples: 7, Bytes: 4096}, w.Credit)
		require.EqualValues(t, 1<<20, w.Limits.MessageBytes)
		require.NotEmpty(t, w.Rewards)
	})
}

func TestHellosThatCannotBeServedAreRefused(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, _ *atomic.Int64) {
		t.Helper()
		live := s.connect(t, wire.Hello{Run: "run"})
		defer live.drop()
		for name, c := range map[string]struct {
			hello wire.Hello
			want  error
		}{
			"no run":                 {wire.Hello{}, rewards.Malformed},
			"the server's own run":   {wire.Hello{Run: "_run"}, rewards.Malformed},
			"an unknown reward":      {wire.Hello{Run: "run", Reward: "none"}, rewards.UnknownReward},
			"a policy that is none":  {wire.Hello{Run: "run", OnSampleFailure: "perhaps"}, rewards.Malformed},
			"an epoch that is over":  {wire.Hello{Run: "run", Client: "b", Epoch: live.welcome().Epoch - 1}, rewards.Malformed},
			"an epoch never started": {wire.Hello{Run: "other", Epoch: 5}, rewards.Malformed},
		} {
			_, err := s.Manager.Attach(c.hello, &peer{m: s.Manager})
			require.ErrorIs(t, err, c.want, name)
		}
		live.send(t, rig.Sample("x", 3)) // the live one is as it was
		require.Equal(t, rewards.Scored, live.result(t, "x").Outcome)
	})
}

func TestAResumedSessionFirstGetsTheUnconfirmedResultsInOrder(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{Worker: rig.Settings{Places: 1}}, func(t *testing.T, s *stage, runs *atomic.Int64) {
		t.Helper()
		h := wire.Hello{Run: "run", Client: "a"}
		p := s.connect(t, h)
		for _, id := range ids("x", 6) {
			p.send(t, rig.Sample(id, 3))
		}
		require.EqualValues(t, 1, p.result(t, "x0").Seq)
		p.result(t, "x1")
		p.drop()
		time.Sleep(time.Minute) // scored meanwhile
		again := s.resume(t, p, h, 1)
		defer again.drop()
		require.True(t, again.welcome().Resumed)
		require.Equal(t, p.welcome().Session, again.welcome().Session)
		require.Equal(t, p.welcome().Epoch, again.welcome().Epoch)
		synctest.Wait()
		again.mu.Lock()
		require.IsType(t, &wire.Welcome{}, again.inbox[0])
		again.mu.Unlock()
		var seqs []uint64
		for _, r := range got[*wire.Result](again) {
			seqs = append(seqs, r.Seq)
		}
		require.Equal(t, []uint64{2, 3, 4, 5, 6}, seqs, "everything above got = 1, also what had been sent before")
		require.EqualValues(t, 6, runs.Load())
	})
}

func TestASampleInFlightIsAttachedToTheNewConnection(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, runs *atomic.Int64) {
		t.Helper()
		h := wire.Hello{Run: "run"}
		p := s.connect(t, h)
		p.send(t, rig.Sample("x", 3))
		time.Sleep(300 * time.Millisecond)
		p.drop()
		again := s.resume(t, p, h, 0)
		defer again.drop()
		again.send(t, rig.Sample("x", 3))
		require.Equal(t, []string{"x"}, got[*wire.Ack](again)[0].IDs)
		require.Equal(t, rewards.Scored, again.result(t, "x").Outcome)
		time.Sleep(10 * time.Second)
		require.Len(t, got[*wire.Result](again), 1)
		require.Empty(t, got[*wire.Result](p), "a connection that ended gets nothing")
		require.EqualValues(t, 1, runs.Load())
	})
}

// The client has lost its session, not its samples: it is another session of the
// same epoch that sends them again and gets the results.
func TestASampleInFlightMovesToTheSessionThatSendsItAgain(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, runs *atomic.Int64) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		p.send(t, rig.Sample("x", 3))
		time.Sleep(300 * time.Millisecond)
		q := s.connect(t, wire.Hello{Run: "run", Resume: &wire.Resume{Session: "forgotten"}})
		defer q.drop()
		require.False(t, q.welcome().Resumed)
		q.send(t, rig.Sample("x", 3))
		require.Equal(t, rewards.Scored, q.result(t, "x").Outcome)
		require.Empty(t, got[*wire.Result](p))
		require.EqualValues(t, 1, runs.Load())
		require.NoError(t, s.Manager.Audit(0))
	})
}

func TestAFinishedSampleIsAnsweredFromMemoryUnderItsOldNumber(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, runs *atomic.Int64) {
		t.Helper()
		h := wire.Hello{Run: "run"}
		p := s.connect(t, h)
		p.send(t, rig.Sample("x", 3))
		first := p.result(t, "x")
		p.send(t, rig.Sample("x", 3))
		p.send(t, rig.Sample("y", 3))
		p.result(t, "y")
		all := got[*wire.Result](p)
		require.Len(t, all, 3)
		require.Equal(t, first, all[1], "the same answer, not one more")
		require.EqualValues(t, 2, all[2].Seq)
		p.drop()
		// A session that nobody knows is not resumed, but the epoch goes on and its answers are there.
		other := wire.Hello{Run: "run", Client: "other", Resume: &wire.Resume{Session: "of another gateway", Confirmed: 9}}
		q := s.connect(t, other)
		defer q.drop()
		require.False(t, q.welcome().Resumed)
		require.Equal(t, p.welcome().Epoch, q.welcome().Epoch)
		require.Empty(t, got[*wire.Result](q))
		q.send(t, rig.Sample("x", 3))
		require.InDelta(t, *first.RewardScore, *q.result(t, "x").RewardScore, 0)
		require.EqualValues(t, 2, runs.Load())
	})
}

func TestTheSameIDWithOtherBytesIsRefusedAndTheFirstStays(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, runs *atomic.Int64) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		other := rig.Sample("x", 3)
		other.Media[0].Data[0] ^= 1 // the same length: only the checksum tells
		p.send(t, rig.Sample("x", 3))
		p.send(t, other)
		refused := p.result(t, "x")
		require.Equal(t, rewards.Rejected, refused.Outcome)
		require.Equal(t, rewards.IDReused, refused.Errors[0].Class)
		require.Zero(t, refused.Seq, "a refusal is no result of the sample")
		time.Sleep(5 * time.Second)
		all := got[*wire.Result](p)
		require.Len(t, all, 2)
		require.InDelta(t, rig.Hash(rig.Sample("x", 3)), *all[1].RewardScore, 0)
		p.send(t, other) // answered, and still remembered
		all = got[*wire.Result](p)
		require.Equal(t, rewards.IDReused, all[2].Errors[0].Class)
		require.EqualValues(t, 1, runs.Load())
	})
}

func TestWhatIsConfirmedIsForgotten(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, runs *atomic.Int64) {
		t.Helper()
		h := wire.Hello{Run: "run"}
		p := s.connect(t, h)
		p.send(t, rig.Sample("x", 3))
		p.m.Confirm(p.session, p.result(t, "x").Seq)
		p.drop()
		again := s.resume(t, p, h, 0)
		defer again.drop()
		require.Empty(t, got[*wire.Result](again))
		again.send(t, rig.Sample("x", 3)) // a new sample for all that is known
		require.EqualValues(t, 2, again.result(t, "x").Seq)
		require.EqualValues(t, 2, runs.Load())
	})
}

func TestAClientThatNeverConfirmsDoesNotMakeTheGatewayGrow(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]loop.Config{
		"bounded in number": {KeepResults: 20},
		"bounded in bytes":  {KeepBytes: 20_000},
		"bounded in age":    {KeepFor: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counted(t, rig.Options{Loop: cfg, Worker: rig.Settings{Places: 10}}, func(t *testing.T, s *stage, _ *atomic.Int64) {
				t.Helper()
				p := s.connect(t, wire.Hello{Run: "run"})
				defer p.drop()
				for _, id := range ids("x", 200) {
					p.send(t, rig.Sample(id, 3))
				}
				for i := range 200 { // 20 s, before the first sweep
					p.result(t, fmt.Sprint("x", i))
				}
				require.LessOrEqual(t, p.session.Unconfirmed(), 30)
				for i := range 30 { // a sample sent again and again is one answer, not many
					p.send(t, rig.Sample("again", 3))
					time.Sleep(time.Duration(i%2) * time.Second)
				}
				require.LessOrEqual(t, p.session.Unconfirmed(), 30)
				time.Sleep(time.Hour)
				require.Zero(t, p.session.Unconfirmed(), "nothing is kept for longer than keep_for")
			})
		})
	}
}

func TestAHelloWithoutResumeOnAnIdleRunBeginsANewEpoch(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, runs *atomic.Int64) {
		t.Helper()
		h := wire.Hello{Run: "run"}
		p := s.connect(t, h)
		p.send(t, rig.Sample("done", 3))
		p.result(t, "done")
		p.send(t, rig.Sample("open", 3))
		time.Sleep(100 * time.Millisecond)
		p.drop() // the trainer died
		q := s.connect(t, h)
		defer q.drop()
		require.Zero(t, s.Manager.InFlight(), "what the last life had in flight is dropped at once")
		require.Greater(t, q.welcome().Epoch, p.welcome().Epoch)
		require.NotEqual(t, p.welcome().Session, q.welcome().Session)
		// Its ids are free again, with other bytes too.
		for _, id := range []string{"done", "open"} {
			q.send(t, rig.Sample(id, 6))
			require.InDelta(t, rig.Hash(rig.Sample(id, 6)), *q.result(t, id).RewardScore, 0, "the sample of the last life answered")
		}
		require.EqualValues(t, 4, runs.Load())
		require.Zero(t, s.Manager.InFlight())
		// A connection of the old epoch may still have a frame on its way.
		p.send(t, rig.Sample("late", 3))
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 4, runs.Load())
		require.Len(t, got[*wire.Result](q), 2)
	})
}

func TestAHelloWithoutResumeJoinsTheEpochOfALiveClient(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, _ *atomic.Int64) {
		t.Helper()
		a := s.connect(t, wire.Hello{Run: "run", Client: "a"})
		defer a.drop()
		a.send(t, rig.Sample("a", 3))
		b := s.connect(t, wire.Hello{Run: "run", Client: "b"})
		lane := s.connect(t, wire.Hello{Run: "run", Client: "b", Lane: 1, Epoch: a.welcome().Epoch})
		defer b.drop()
		defer lane.drop()
		require.Equal(t, a.welcome().Epoch, b.welcome().Epoch)
		require.Equal(t, a.welcome().Epoch, lane.welcome().Epoch)
		b.send(t, rig.Sample("b", 3))
		lane.send(t, rig.Sample("lane", 3))
		for p, id := range map[*peer]string{a: "a", b: "b", lane: "lane"} {
			require.Equal(t, rewards.Scored, p.result(t, id).Outcome)
			require.Len(t, got[*wire.Result](p), 1, "each gets its own")
			require.EqualValues(t, 1, p.result(t, id).Seq, "numbers are the session's own")
			require.Zero(t, p.code())
		}
	})
}

func TestThereIsOneLiveConnectionPerRunClientAndLane(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, runs *atomic.Int64) {
		t.Helper()
		h := wire.Hello{Run: "run", Client: "a"}
		p := s.connect(t, h)
		p.send(t, rig.Sample("x", 3))
		q := s.resume(t, p, h, 0) // the first is still there, as far as the gateway knows
		synctest.Wait()
		require.Equal(t, 1008, p.code())
		require.Zero(t, q.code())
		p.drop() // its end is noticed late and must not end the second one
		b := s.connect(t, wire.Hello{Run: "run", Client: "b"})
		require.Equal(t, q.welcome().Epoch, b.welcome().Epoch, "the run was taken to be idle")
		b.drop()
		require.Equal(t, rewards.Scored, q.result(t, "x").Outcome)
		require.Empty(t, got[*wire.Result](p))
		require.EqualValues(t, 1, runs.Load())
		q.drop()
		// A trainer that was started anew while its old connection seems to live is alone: a new epoch.
		old := s.connect(t, h)
		fresh := s.connect(t, h)
		defer fresh.drop()
		synctest.Wait()
		require.Equal(t, 1008, old.code())
		require.Greater(t, fresh.welcome().Epoch, old.welcome().Epoch)
		old.drop()
		fresh.send(t, rig.Sample("y", 3))
		require.Equal(t, rewards.Scored, fresh.result(t, "y").Outcome)
	})
}

// The samples of a client that has gone for good take no places from others: they are
// cancelled after the grace. Those of a step whose size it has declared are scored, for its
// trainer may fetch them.
func TestSamplesOfAClientThatDoesNotComeBackAreCancelledAfterTheGrace(t *testing.T) {
	t.Parallel()
	o := rig.Options{Profiles: profiles(t, component(hashing(time.Second))), Loop: loop.Config{ResumeGrace: 20 * time.Second}}
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		for _, id := range ids("loose", 5) {
			p.send(t, rig.Sample(id, 30))
		}
		s.Manager.Declare(p.session, wire.Step{Step: 1, Expected: 2})
		of := rig.Sample("declared", 30)
		of.Step = 1
		p.send(t, of)
		p.drop()
		time.Sleep(19 * time.Second)
		require.Equal(t, 6, s.Manager.InFlight())
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, s.Manager.InFlight())
		pending, _ := s.Manager.Pending(9)
		require.Equal(t, "declared", pending[0].ID)
		back := s.resume(t, p, wire.Hello{Run: "run"}, 0)
		defer back.drop()
		res := back.result(t, "loose0")
		require.Equal(t, rewards.OutcomeCancelled, res.Outcome)
		require.Contains(t, res.Errors[0].Message, "loop.resume_grace = 20s")
	})
}

func TestAClientThatComesBackInTimeOrFetchesKeepsItsSamples(t *testing.T) {
	t.Parallel()
	o := rig.Options{Profiles: profiles(t, component(hashing(time.Second))), Loop: loop.Config{ResumeGrace: 20 * time.Second}}
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		p.send(t, rig.Sample("x", 30))
		for range 5 {
			p.drop()
			time.Sleep(15 * time.Second)
			p = s.resume(t, p, wire.Hello{Run: "run"}, 0)
			time.Sleep(15 * time.Second)
		}
		require.Equal(t, 1, s.Manager.InFlight())
		p.drop()
		for range 5 {
			time.Sleep(15 * time.Second)
			_, err := s.Manager.Rewards(t.Context(), "run", 0, wire.Fetch{Req: 1})
			require.NoError(t, err)
		}
		require.Equal(t, 1, s.Manager.InFlight())
		time.Sleep(21 * time.Second)
		require.Zero(t, s.Manager.InFlight())
	})
}

// Two clients of a run send the same sample: both wait for its result, and each has it, before
// it is scored and after.
func TestEveryClientThatSentASampleIsAnswered(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, runs *atomic.Int64) {
		t.Helper()
		var peers []*peer
		for i := range 3 {
			p := s.connect(t, wire.Hello{Run: "run", Client: fmt.Sprint(i)})
			defer p.drop()
			peers = append(peers, p)
			p.send(t, rig.Sample("x", 30))
		}
		gone := s.connect(t, wire.Hello{Run: "run", Client: "gone"})
		gone.send(t, rig.Sample("x", 30))
		back := s.connect(t, wire.Hello{Run: "run", Client: "gone"}) // a new session, not resumed
		defer back.drop()
		back.send(t, rig.Sample("x", 30))
		for _, p := range append(peers, back) {
			require.Equal(t, rewards.Scored, p.result(t, "x").Outcome)
		}
		require.Empty(t, got[*wire.Result](gone))
		late := s.connect(t, wire.Hello{Run: "run", Client: "late"})
		defer late.drop()
		late.send(t, rig.Sample("x", 30))
		require.Equal(t, rewards.Scored, late.result(t, "x").Outcome)
		s.Manager.Confirm(peers[0].session, 1)
		again := s.resume(t, peers[1], wire.Hello{Run: "run", Client: "1"}, 0)
		defer again.drop()
		require.Equal(t, rewards.Scored, again.result(t, "x").Outcome, "another client's confirmation is not its own")
		require.EqualValues(t, 1, runs.Load())
		require.NoError(t, s.Manager.Audit(0))
	})
}

// However many connections send the same sample, a bounded number of them is remembered.
func TestConnectionsThatWaitForOneSampleAreBounded(t *testing.T) {
	t.Parallel()
	counted(t, rig.Options{}, func(t *testing.T, s *stage, _ *atomic.Int64) {
		t.Helper()
		var peers []*peer
		for i := range 40 {
			p := s.connect(t, wire.Hello{Run: "run", Client: fmt.Sprint(i)})
			defer p.drop()
			peers = append(peers, p)
			p.send(t, rig.Sample("x", 30))
			require.NoError(t, s.Manager.Audit(0))
		}
		require.Equal(t, rewards.Scored, peers[39].result(t, "x").Outcome)
		answered := 0
		for _, p := range peers {
			answered += len(got[*wire.Result](p))
		}
		require.Equal(t, 16, answered)
	})
}
