package loop_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// late is a step of ten samples of which eight have been answered after a second each and
// one runs for ever on worker a; b is idle. The tenth has not come.
type late struct {
	*stage
	peer *peer
	a, b *stub
	held wire.Ticket // a's
}

func onLateStep(t *testing.T, cfg loop.Config, test func(t *testing.T, s *late)) {
	t.Helper()
	cfg.Dispatch.BackupAfter = 2.5
	onStage(t, rig.Options{Profiles: profiles(t, component(hanging)), Loop: cfg}, func(t *testing.T, on *stage) {
		t.Helper()
		s := &late{stage: on, peer: on.connect(t, wire.Hello{Run: "run", Client: "c"}), a: on.stub(t, "a")}
		s.Manager.Declare(s.peer.session, wire.Step{Step: 1, Expected: 10, Total: true})
		for _, id := range ids("", 8) {
			s.send(t, id)
			ticket := s.claim(t, s.a)
			time.Sleep(time.Second)
			s.answer(t, s.a, ticket, 1)
			s.peer.result(t, id)
		}
		s.b = on.stub(t, "b")
		s.send(t, "x")
		s.held = s.claim(t, s.a)
		test(t, s)
		s.a.release()
		s.b.release()
		s.peer.drop()
	})
}

func (s *late) send(t *testing.T, id string) {
	t.Helper()
	sample := rig.Sample(id, 3)
	sample.Step = 1
	s.peer.send(t, sample)
}

// claim takes the next ticket for a worker that lives: it extends its lease.
func (s *late) claim(t *testing.T, w *stub) wire.Ticket {
	t.Helper()
	ticket := w.claim(t)
	l := w.leases[len(w.leases)-1]
	go func() { // ends with the lease
		for l.Context().Err() == nil && l.Extend(l.Context()) == nil {
			time.Sleep(time.Second)
		}
	}()
	return ticket
}

// answer hands a score over and ends the lease.
func (s *late) answer(t *testing.T, w *stub, ticket wire.Ticket, score float64) {
	t.Helper()
	w.answer(t, ticket, score)
	w.lease(ticket).Done()
}

// whole sends the last sample and answers it.
func (s *late) whole(t *testing.T) {
	t.Helper()
	s.send(t, "last")
	s.answer(t, s.b, s.claim(t, s.b), 1)
	s.peer.result(t, "last")
}

// backup waits for the second ticket of x, which goes to b.
func (s *late) backup(t *testing.T) wire.Ticket {
	t.Helper()
	s.whole(t)
	ticket := s.claim(t, s.b)
	require.Equal(t, "x", ticket.ID)
	require.Equal(t, s.held.Attempt+1, ticket.Attempt)
	require.Equal(t, []string{"a"}, ticket.Avoid)
	return ticket
}

// open reports whether a worker's latest lease goes on.
func (w *stub) open() bool {
	synctest.Wait()
	return w.leases[len(w.leases)-1].Context().Err() == nil
}

func (s *late) unanswered(t *testing.T) {
	t.Helper()
	synctest.Wait()
	for _, r := range got[*wire.Result](s.peer) {
		require.NotEqual(t, "x", r.ID, "it was answered: %+v", r)
	}
}

func TestASampleThatRunsLongIsGivenToAnIdleWorkerToo(t *testing.T) {
	t.Parallel()
	onLateStep(t, loop.Config{}, func(t *testing.T, s *late) {
		t.Helper()
		start := time.Now()
		time.Sleep(2 * time.Second)
		sent, _, _ := s.Manager.Backups()
		require.Zero(t, sent, "not all of the step is here")
		ticket := s.backup(t)
		require.InDelta(t, 2.5*8/9, time.Since(start).Seconds(), 0.01, "two and a half times the mean of eight that took a second and one that took none")
		s.answer(t, s.b, ticket, 3)
		require.InDelta(t, 3.0, *s.peer.result(t, "x").RewardScore, 0)
		require.False(t, s.a.open(), "a goes on with what is answered")
		s.answer(t, s.a, s.held, 4) // too late
		sent, won, wasted := s.Manager.Backups()
		require.InDelta(t, 1, sent, 0)
		require.InDelta(t, 1, won, 0)
		require.InDelta(t, time.Since(start).Seconds(), wasted, 0.1)
		trace, err := s.Manager.Trace("run", rewards.Train, 1)
		require.NoError(t, err)
		for _, span := range trace.Spans {
			if span.ID != "x" {
				continue
			}
			require.Len(t, span.Attempts, 2)
			require.Equal(t, "b", span.Worker)
			for _, a := range span.Attempts {
				require.Equal(t, a.Worker == "b", a.Backup)
			}
		}
	})
}

func TestTheFirstWorkerMayStillBeFirst(t *testing.T) {
	t.Parallel()
	onLateStep(t, loop.Config{}, func(t *testing.T, s *late) {
		t.Helper()
		s.backup(t)
		s.answer(t, s.a, s.held, 4)
		require.InDelta(t, 4.0, *s.peer.result(t, "x").RewardScore, 0)
		require.False(t, s.b.open(), "b goes on with what is answered")
		_, won, _ := s.Manager.Backups()
		require.Zero(t, won)
	})
}

func TestAFailureDoesNotDecideWhileAnotherWorkerHasTheSample(t *testing.T) {
	t.Parallel()
	for name, attempts := range map[string]int{"with attempts left": 3, "on its last attempt": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onLateStep(t, loop.Config{MaxAttempts: attempts}, func(t *testing.T, s *late) {
				t.Helper()
				ticket := s.backup(t)
				s.a.fail(t, s.held, rewards.Unavailable)
				s.unanswered(t)
				s.answer(t, s.b, ticket, 3)
				require.InDelta(t, 3.0, *s.peer.result(t, "x").RewardScore, 0)
			})
			onLateStep(t, loop.Config{MaxAttempts: attempts}, func(t *testing.T, s *late) {
				t.Helper()
				ticket := s.backup(t)
				s.b.fail(t, ticket, rewards.Unavailable)
				s.unanswered(t)
				s.answer(t, s.a, s.held, 4)
				require.InDelta(t, 4.0, *s.peer.result(t, "x").RewardScore, 0)
			})
		})
	}
}

func TestABackupDoesNotCountAsAnAttempt(t *testing.T) {
	t.Parallel()
	onLateStep(t, loop.Config{MaxAttempts: 2}, func(t *testing.T, s *late) {
		t.Helper()
		ticket := s.backup(t)
		s.b.fail(t, ticket, rewards.Unavailable)
		s.a.fail(t, s.held, rewards.Unavailable)
		third := s.stub(t, "third")
		last := s.claim(t, third)
		require.Equal(t, "x", last.ID)
		require.Greater(t, last.Attempt, ticket.Attempt)
		s.answer(t, third, last, 5)
		require.InDelta(t, 5.0, *s.peer.result(t, "x").RewardScore, 0)
		third.release()
	})
}

func TestAFailureLeavesABackupThatNobodyHasClaimedAsTheAttempt(t *testing.T) {
	t.Parallel()
	onLateStep(t, loop.Config{MaxAttempts: 1}, func(t *testing.T, s *late) {
		t.Helper()
		s.whole(t)
		time.Sleep(3 * time.Second) // the ticket is out
		s.a.fail(t, s.held, rewards.Unavailable)
		s.unanswered(t)
		s.answer(t, s.b, s.claim(t, s.b), 3)
		require.InDelta(t, 3.0, *s.peer.result(t, "x").RewardScore, 0)
	})
}

func TestABackupThatNobodyClaimsIsTakenBack(t *testing.T) {
	t.Parallel()
	onLateStep(t, loop.Config{}, func(t *testing.T, s *late) {
		t.Helper()
		s.whole(t)
		time.Sleep(3 * time.Second)
		require.Equal(t, 1, s.queue.Depth())
		time.Sleep(5 * time.Second)
		require.Zero(t, s.queue.Depth())
		require.NoError(t, s.Manager.Audit(0))
		s.answer(t, s.a, s.held, 4)
		require.InDelta(t, 4.0, *s.peer.result(t, "x").RewardScore, 0)
	})
}

func TestASampleThatIsTakenBackEndsBothAttempts(t *testing.T) {
	t.Parallel()
	onLateStep(t, loop.Config{}, func(t *testing.T, s *late) {
		t.Helper()
		s.backup(t)
		s.Manager.Cancel(s.peer.session, "x")
		require.Equal(t, rewards.OutcomeCancelled, s.peer.result(t, "x").Outcome)
		require.False(t, s.a.open())
		require.False(t, s.b.open())
	})
}

func TestABackupWhoseTicketTheQueueForgotIsForgottenToo(t *testing.T) {
	t.Parallel()
	onLateStep(t, loop.Config{}, func(t *testing.T, s *late) {
		t.Helper()
		s.whole(t)
		time.Sleep(3 * time.Second)
		require.Equal(t, 1, s.queue.Depth())
		s.queue.Lose()
		s.Manager.Republish()
		require.NoError(t, s.Manager.Audit(0))
		synctest.Wait()
		require.Zero(t, s.queue.Depth(), "a sample has one backup")
		begin := time.Now()
		s.a.fail(t, s.held, rewards.Unavailable)
		s.answer(t, s.b, s.claim(t, s.b), 3)
		require.InDelta(t, 3.0, *s.peer.result(t, "x").RewardScore, 0)
		require.Less(t, time.Since(begin), time.Second, "nobody waits for a ticket that is lost")
	})
}

// A worker that has both samples of a step that is late may give one away: the share of
// backups is bounded.
func TestBackupsAreBoundedByTheirShareOfTheStep(t *testing.T) {
	t.Parallel()
	onLateStep(t, loop.Config{}, func(t *testing.T, s *late) {
		t.Helper()
		s.send(t, "last")
		other := s.claim(t, s.a)
		require.Equal(t, "last", other.ID)
		s.answer(t, s.b, s.claim(t, s.b), 3)
		require.InDelta(t, 3.0, *s.peer.result(t, "x").RewardScore, 0)
		time.Sleep(time.Minute)
		sent, _, _ := s.Manager.Backups()
		require.InDelta(t, 1, sent, 0, "one of ten samples is the least, 5 %% the share")
		s.answer(t, s.a, other, 1)
	})
}
