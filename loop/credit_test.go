package loop_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

func TestASampleBeyondTheCreditIsAnsweredAndTheConnectionLives(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]loop.Config{
		"beyond the samples": {CreditSamples: 3},
		"beyond the bytes":   {CreditBytes: 3 * frameSize(t, 30)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStage(t, rig.Options{Workers: 1, Worker: rig.Settings{Places: 8}, Loop: cfg, Profiles: profiles(t, component(hashing(time.Second)))}, func(t *testing.T, s *stage) {
				t.Helper()
				p := s.connect(t, wire.Hello{Run: "run"})
				defer p.drop()
				for _, id := range ids("x", 4) {
					p.send(t, rig.Sample(id, 30))
				}
				over := p.result(t, "x3")
				require.Equal(t, rewards.Rejected, over.Outcome)
				require.Equal(t, rewards.OverCredit, over.Errors[0].Class)
				require.Nil(t, over.RewardScore)
				for _, id := range ids("x", 3) {
					require.Equal(t, rewards.Scored, p.result(t, id).Outcome)
				}
				require.Zero(t, p.code())
				require.Empty(t, got[*wire.Error](p))
				credits := got[*wire.Credit](p)
				require.NotEmpty(t, credits, "what was scored is granted again")
				p.send(t, rig.Sample("y", 30))
				require.Equal(t, rewards.Scored, p.result(t, "y").Outcome)
			})
		})
	}
}

func frameSize(t *testing.T, n int) int64 {
	t.Helper()
	msg, err := wire.Encode(rig.Sample("x0", n), wire.Options{})
	require.NoError(t, err)
	return msg.Size()
}

// Scorers that overrun hold the frames of samples that are answered long since. To
// the client nothing is in flight, and it may send.
func TestFramesThatOverrunScorersHoldDoNotShutTheClientOut(t *testing.T) {
	t.Parallel()
	score := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		if s.ID[0] == 'x' {
			time.Sleep(30 * time.Second) // heeds nothing
		}
		return hashing(0)(ctx, s)
	}
	onStage(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 8, MaxAbandoned: 8}, Loop: loop.Config{CreditSamples: 4, MaxAttempts: 1}, Profiles: profiles(t, component(score)),
	}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		for _, id := range ids("x", 4) {
			p.send(t, rig.Sample(id, 3))
		}
		for _, id := range ids("x", 4) {
			require.Equal(t, rewards.Timeout, p.result(t, id).Errors[0].Class)
		}
		for _, c := range got[*wire.Credit](p) {
			require.EqualValues(t, 4, c.Samples, "the frames are held")
		}
		p.send(t, rig.Sample("y", 3))
		require.Equal(t, rewards.Scored, p.result(t, "y").Outcome)
	})
}

// A failed sample's place is not given away, but its bytes are free at once.
func TestASampleThatFailedHoldsNoCreditWhileItsPlaceRests(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{
		Workers: 1, Loop: loop.Config{MaxAttempts: 1, CreditSamples: 1},
		Profiles: profiles(t, component(func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
			if s.ID == "bad" {
				return rewards.Score{}, rewards.Crashed
			}
			return hashing(4*time.Second/3)(ctx, s)
		})),
	}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		p.send(t, rig.Sample("good", 3))
		p.result(t, "good")
		p.send(t, rig.Sample("bad", 3))
		p.result(t, "bad")
		held, _ := s.Manager.Bytes()
		require.Zero(t, held)
	})
}

// After a cut the whole window may be in flight. The client sends it all again, for
// it cannot know what arrived: what is known costs no credit.
func TestAClientMaySendItsWholeWindowAgainAfterACut(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 2}, Loop: loop.Config{CreditSamples: 8}, Profiles: profiles(t, component(hashing(time.Second))),
	}, func(t *testing.T, s *stage) {
		t.Helper()
		h := wire.Hello{Run: "run"}
		p := s.connect(t, h)
		for _, id := range ids("x", 8) {
			p.send(t, rig.Sample(id, 30))
		}
		p.drop()
		again := s.resume(t, p, h, 0)
		defer again.drop()
		require.Zero(t, again.welcome().Credit.Samples, "the window is used up by what is in flight")
		for _, id := range ids("x", 8) {
			again.send(t, rig.Sample(id, 30))
		}
		for _, id := range ids("x", 8) {
			require.Equal(t, rewards.Scored, again.result(t, id).Outcome)
		}
	})
}

func TestCreditOfAClientThatLeftGoesToTheOthers(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{
		Workers: 1, Loop: loop.Config{MaxBytes: 40_000, MessageBytes: 10_000, CreditBytes: 30_000}, Profiles: profiles(t, component(hashing(time.Second))),
	}, func(t *testing.T, s *stage) {
		t.Helper()
		a := s.connect(t, wire.Hello{Run: "run", Client: "a"})
		s.Manager.Want(a.session, 40_000)
		require.EqualValues(t, 30_000, got[*wire.Credit](a)[0].Bytes, "three quarters of max_bytes")
		b := s.connect(t, wire.Hello{Run: "run", Client: "b"})
		defer b.drop()
		require.Zero(t, b.welcome().Credit.Bytes)
		s.Manager.Want(b.session, 40_000)
		_, err := s.Manager.Submit(t.Context(), loop.Submission{Run: "_edge", Sample: rig.Sample("in", 3000)})
		require.NoError(t, err, "idle streams leave a quarter to samples from inside")
		_, err = s.Manager.Submit(t.Context(), loop.Submission{Run: "_edge", Sample: rig.Sample("full", 9000)})
		require.ErrorIs(t, err, rewards.Unavailable)
		a.drop()
		time.Sleep(200 * time.Millisecond) // shares are worked out anew every 100 ms while memory is short
		credits := got[*wire.Credit](b)
		require.NotEmpty(t, credits)
		require.Greater(t, credits[len(credits)-1].Bytes, int64(25_000))
	})
}

func TestFramesThatAreNoneHurtOnlyThemselves(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Loop: loop.Config{MessageBytes: 1000}, Profiles: profiles(t, component(hashing(0)))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		msg, err := wire.Encode(rig.Sample("x", 300), wire.Options{})
		require.NoError(t, err)
		whole := msg.Bytes()
		big, err := wire.Encode(rig.Sample("big", 3000), wire.Options{})
		require.NoError(t, err)
		require.NoError(t, s.Manager.Receive(p.session, bytes.NewReader(big.Bytes())))
		require.Equal(t, rewards.TooLarge, p.result(t, "big").Errors[0].Class)
		require.NoError(t, s.Manager.Receive(p.session, bytes.NewReader(whole[:len(whole)-1])))
		require.Equal(t, rewards.Malformed, p.result(t, "x").Errors[0].Class)
		held, _ := s.Manager.Bytes()
		require.Zero(t, held)
		other := rig.Sample("other", 3)
		other.Run = "another"
		p.send(t, other)
		require.Equal(t, rewards.Malformed, p.result(t, "other").Errors[0].Class)
		unknown := rig.Sample("unknown", 3)
		unknown.Reward = "none"
		p.send(t, unknown)
		require.Equal(t, rewards.UnknownReward, p.result(t, "unknown").Errors[0].Class)
		p.send(t, rig.Sample("y", 300))
		require.Equal(t, rewards.Scored, p.result(t, "y").Outcome)
	})
}
