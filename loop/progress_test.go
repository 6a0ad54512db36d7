package loop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/outage"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// progress is how one profile fares.
func (s *stage) progress(t *testing.T, reward string) loop.Progress {
	t.Helper()
	for _, p := range s.Manager.Progress() {
		if p.Reward == reward {
			return p
		}
	}
	require.Fail(t, "no such reward", reward)
	return loop.Progress{}
}

// Each way in which samples of a profile are not scored has a name, which is said within ten
// seconds, and the end of it as well. A profile beside it fares well all the time.
func TestWhyNothingComesOfAProfileIsSaid(t *testing.T) {
	t.Parallel()
	engine := &outage.Engine{}
	var released atomic.Bool
	hang := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		for !released.Load() {
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return rewards.Score{}, err
			}
		}
		return hashing(0)(ctx, s)
	}
	for name, c := range map[string]struct {
		scorer rewards.Scorer
		begin  func(s *stage)
		state  loop.ProgressState
		why    string
		end    func(s *stage)
	}{
		"no worker": {
			scorer: hashing(0),
			begin: func(s *stage) {
				s.Workers[0].Kill()
				s.queue.Kill(s.Workers[0].ID)
			},
			state: loop.Stopped, why: "no worker serves the profile",
			end: func(s *stage) { s.Replace("w9") },
		},
		"an engine is down": {
			scorer: outage.NewLink(engine),
			begin:  func(*stage) { engine.Down(true) },
			state:  loop.Stopped, why: "waiting for e",
			end: func(*stage) { engine.Down(false) },
		},
		"a scorer hangs": {
			scorer: rewards.ScorerFunc(hang),
			begin:  func(*stage) {},
			state:  loop.Slow, why: "no result for 10s, and all capacity is in use",
			end: func(*stage) { released.Store(true) },
		},
		"the worker fails everything": {
			scorer: rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) {
				return rewards.Score{}, rewards.Blamed(rewards.BlameWorker, errors.New("the card is lost"))
			}),
			begin: func(*stage) {},
			state: loop.Stopped, why: "the breakers of all 1 are open; worker w0: the card is lost",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &paper{}
			onStage(t, rig.Options{
				Workers: 1, Worker: rig.Settings{Places: 4}, Log: slog.New(slog.NewTextHandler(log, nil)), Loop: loop.Config{MaxAttempts: 9},
				Profiles: map[string]*rewards.Manager{"good": minutes(t, component(hashing(0))), "bad": minutes(t, rewards.Component{Key: "x", Weight: 1, Required: true, Scorer: c.scorer})},
			}, func(t *testing.T, s *stage) {
				t.Helper()
				time.Sleep(4 * time.Second) // a gateway that begins has three
				require.Equal(t, loop.Progressing, s.progress(t, "bad").State)
				c.begin(s)
				p := s.connect(t, wire.Hello{Run: "run", Reward: "bad"})
				defer p.drop()
				for _, id := range ids("x", 8) {
					p.send(t, rig.Sample(id, 3))
				}
				time.Sleep(11 * time.Second)
				now := s.progress(t, "bad")
				require.Equal(t, c.state, now.State, now.Why)
				require.Contains(t, now.Why, c.why)
				require.Positive(t, now.Waiting)
				require.LessOrEqual(t, time.Since(now.Since), 11*time.Second)
				require.NotEmpty(t, log.lines(`reward=bad`))
				require.NotEmpty(t, log.lines(c.why), "%s", log.text.String())
				if len(s.Workers) == 1 && name != "no worker" {
					require.Equal(t, loop.Progressing, s.progress(t, "good").State)
				}
				if c.end == nil {
					return
				}
				c.end(s)
				for _, id := range ids("x", 8) {
					require.Equal(t, rewards.Scored, p.result(t, id).Outcome)
				}
				require.Equal(t, loop.Progressing, s.progress(t, "bad").State)
				require.Empty(t, s.progress(t, "bad").Why)
				require.NotEmpty(t, log.lines("scoring of a reward has resumed"))
			})
		})
	}
}

// A client that may send nothing more is counted: its samples are in no list of the gateway's.
func TestConnectionsThatWaitForCreditAreSaid(t *testing.T) {
	t.Parallel()
	var released atomic.Bool
	hang := func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
		for !released.Load() {
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return rewards.Score{}, err
			}
		}
		return hashing(0)(ctx, s)
	}
	onStage(t, rig.Options{
		Workers: 1, Loop: loop.Config{MaxBytes: 16 << 10, MessageBytes: 4 << 10, CreditBytes: 64 << 10},
		Profiles: map[string]*rewards.Manager{"slow": minutes(t, component(hang))},
	}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run", Reward: "slow"})
		defer p.drop()
		for _, id := range ids("x", 5) {
			p.send(t, rig.Sample(id, 3000))
		}
		s.Manager.Want(p.session, 32<<10)
		time.Sleep(11 * time.Second)
		require.Contains(t, s.progress(t, "slow").Why, "connections that wait for credit: 1", "%s", s.Manager.CreditState(p.session))
		released.Store(true)
	})
}

// What answers every sample with a failure is not well, however fast it is.
func TestARewardOfWhichEverySampleFailsIsSaidToFail(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	var blame atomic.Value
	blame.Store(rewards.BlameReward)
	log := &paper{}
	onStage(t, rig.Options{
		Workers: 1, Worker: rig.Settings{Places: 4}, Log: slog.New(slog.NewTextHandler(log, nil)),
		Profiles: map[string]*rewards.Manager{"bad": minutes(t, rewards.Component{Key: "x", Weight: 1, Required: true, Scorer: rewards.ScorerFunc(
			func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
				if well.Load() {
					return hashing(0)(ctx, s)
				}
				by, _ := blame.Load().(rewards.Blame)
				return rewards.Score{}, rewards.Blamed(by, fmt.Errorf("row %d has no value", len(s.ID)))
			})})},
	}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run", Reward: "bad"})
		defer p.drop()
		n := 0
		answered := func(samples int) loop.Progress {
			for range samples {
				n++
				id := fmt.Sprint("s", n)
				p.send(t, rig.Sample(id, 3))
				p.result(t, id)
			}
			return s.progress(t, "bad")
		}
		blame.Store(rewards.BlameSample)
		require.Equal(t, loop.Progressing, answered(30).State, "garbage says nothing of the reward")
		blame.Store(rewards.BlameReward)
		now := answered(1)
		require.Equal(t, loop.Failing, now.State)
		require.Equal(t, "every sample fails: x: row 3 has no value", now.Why)
		require.Equal(t, now.Why, answered(100).Why, "what differs from sample to sample is no other reason")
		require.Len(t, log.lines("all samples of a reward fail"), 1)
		well.Store(true)
		require.Equal(t, loop.Progressing, answered(1).State)
		well.Store(false)
		require.Equal(t, loop.Progressing, answered(15).State, "it has scored before")
		require.Equal(t, loop.Failing, answered(1).State)
	})
}

// A worker whose machine lacks something takes nothing; while another one scores that is said,
// and where none does the profile is stopped.
func TestAWorkerThatCannotScoreAProfileIsNamed(t *testing.T) {
	t.Parallel()
	onStage(t, rig.Options{Workers: 1, Profiles: map[string]*rewards.Manager{"read": minutes(t, component(hashing(0)))}}, func(t *testing.T, s *stage) {
		t.Helper()
		time.Sleep(4 * time.Second)
		queue := s.Workers[0].Info().Profiles[0].Queue
		lacks := wire.WorkerInfo{ID: "w7", State: wire.WorkerReady, Profiles: []wire.ProfileInfo{{Name: "read", Queue: queue, State: wire.WorkerMissing, Waits: "the model is not here"}}}
		s.queue.NewSource("w7").Announce(lacks)
		p := s.connect(t, wire.Hello{Run: "run", Reward: "read"})
		defer p.drop()
		for _, id := range ids("x", 20) {
			p.send(t, rig.Sample(id, 3))
			require.Equal(t, s.Workers[0].ID, p.result(t, id).Worker)
		}
		now := s.progress(t, "read")
		require.Equal(t, loop.Progressing, now.State)
		require.Equal(t, "worker w7 cannot score the profile: the model is not here", now.Why)
		s.Workers[0].Kill()
		s.queue.Kill(s.Workers[0].ID)
		time.Sleep(11 * time.Second)
		s.queue.NewSource("w7").Announce(lacks)
		now = s.progress(t, "read")
		require.Equal(t, loop.Stopped, now.State)
		require.Equal(t, "worker w7: the model is not here", now.Why)
	})
}
