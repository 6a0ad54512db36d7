package loop_test

import (
	"context"
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

func TestADrainingGatewayFinishesWhatItHasAndRefusesMore(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 2}, Profiles: profiles(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
		t.Helper()
		h := wire.Hello{Run: "run"}
		p := s.connect(t, h)
		for _, id := range ids("x", 6) {
			p.send(t, rig.Sample(id, 3))
		}
		drained := make(chan error, 1)
		go func() { drained <- s.Manager.Drain(context.Background()) }()
		synctest.Wait()
		require.True(t, s.Manager.Draining())
		require.Len(t, got[*wire.Draining](p), 1)
		p.send(t, rig.Sample("new", 3))
		refused := p.result(t, "new")
		require.Equal(t, rewards.Rejected, refused.Outcome)
		require.Equal(t, rewards.Draining, refused.Errors[0].Class)
		_, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_edge", Sample: rig.Sample("in", 3)})
		require.ErrorIs(t, err, rewards.Draining)
		_, err = s.Manager.Attach(wire.Hello{Run: "other"}, &peer{m: s.Manager})
		require.ErrorIs(t, err, rewards.Draining)
		time.Sleep(1500 * time.Millisecond)
		require.Empty(t, drained)
		p.drop() // who comes back for its results is let in
		again := s.resume(t, p, h, 0)
		defer again.drop()
		require.Len(t, got[*wire.Draining](again), 1)
		for _, id := range ids("x", 6) {
			require.Equal(t, rewards.Scored, again.result(t, id).Outcome)
		}
		require.NoError(t, <-drained)
		require.NoError(t, s.Manager.Drain(t.Context()), "a second Drain finds nothing to do")
	})
}

func TestDrainGivesUpWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(hanging))}, func(t *testing.T, s *stage) {
		t.Helper()
		f := s.submit(t, "_run", rig.Sample("x", 3))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Manager.Drain(ctx), context.DeadlineExceeded)
		s.Manager.Stop()
		require.Equal(t, rewards.OutcomeCancelled, result(t, f).Outcome)
		require.NoError(t, s.Manager.Drain(t.Context()), "nothing is in flight any more")
		s.Manager.Stop()
	})
}

func TestStopTellsNoClientThatItsSamplesWereCancelled(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Profiles: profiles(t, component(hanging))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		for i := range 5 {
			p.send(t, rig.Sample(fmt.Sprint(i), 3))
		}
		s.Manager.Stop()
		require.Equal(t, 1001, p.code(), "going away: the client comes back to the next gateway")
		require.Empty(t, got[*wire.Result](p), "it sends again what has no result")
		require.Zero(t, s.Manager.InFlight())
		_, err := s.Manager.Attach(wire.Hello{Run: "run", Resume: &wire.Resume{Session: p.welcome().Session}}, &peer{m: s.Manager})
		require.ErrorIs(t, err, rewards.Draining)
		p.drop()
	})
}

func TestStopIsBoundedAlthoughScorersHang(t *testing.T) {
	t.Parallel()
	score := func(context.Context, *rewards.Sample) (rewards.Score, error) {
		time.Sleep(20 * time.Second) // heeds nothing
		return rewards.Score{Value: 1}, nil
	}
	onStage(t, rig.Options{Workers: 3, Worker: rig.Settings{Places: 2}, Profiles: profiles(t, component(score))}, func(t *testing.T, s *stage) {
		t.Helper()
		var futures []*loop.Future
		for i := range 12 {
			futures = append(futures, s.submit(t, "_run", rig.Sample(fmt.Sprint(i), 3)))
		}
		time.Sleep(time.Second)
		start := time.Now()
		s.Stop()
		require.Less(t, time.Since(start), 3*time.Second)
		for _, f := range futures {
			require.Equal(t, rewards.OutcomeCancelled, result(t, f).Outcome)
		}
	})
}
