package loop_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/testkit/outage"
	"github.com/rewardloop/rewardloop/internal/testkit/rig"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
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
			scorer: rewards.ScorerFunc(hashing(0)),
			begin: func(s *stage) {
				s.Workers[0].Kill()
				s.engine.Kill(s.Workers[0].ID)
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
			log := &paper{}
			onStage(t, rig.Options{
				Workers: 1, Worker: rig.Settings{Slots: 4}, Log: slog.New(slog.NewTextHandler(log, nil)), Loop: loop.Config{MaxAttempts: 9},
				Profiles: map[string]*rewards.Manager{"good": minutes(t, term(hashing(0))), "bad": minutes(t, rewards.Term{Key: "x", Weight: 1, Required: true, Scorer: c.scorer})},
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
				require.NotEmpty(t, log.lines("samples of a reward are scored again"))
			})
		})
	}
}
