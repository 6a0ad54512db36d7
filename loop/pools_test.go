package loop_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// twoPools has workers named o… that serve the reward ocr, p… that serve pick, and b… that
// serve both, each a pool.
func twoPools(t *testing.T, took time.Duration, dispatch dispatch.Config, body func(t *testing.T, s *stage, add func(id string))) {
	t.Helper()
	score := func(ctx context.Context, _ *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: 1}, pause(ctx, took)
	}
	ocr, pick := profile(t, component(score)), profile(t, component(score))
	of := func(worker string) map[string]*rewards.Manager {
		switch worker[0] {
		case 'o':
			return map[string]*rewards.Manager{"ocr": ocr}
		case 'p':
			return map[string]*rewards.Manager{"pick": pick}
		}
		return map[string]*rewards.Manager{"ocr": ocr, "pick": pick}
	}
	onStage(t, rig.Options{Profiles: of("both"), ProfilesOf: of, Loop: loop.Config{Dispatch: dispatch}}, func(t *testing.T, s *stage) {
		t.Helper()
		body(t, s, func(id string) {
			s.Add(t, rig.Settings{ID: id, Places: 2})
		})
	})
}

func asking(id, reward string) *rewards.Sample {
	s := rig.Sample(id, 3)
	s.Reward = reward
	return s
}

func policies() []dispatch.Config {
	return []dispatch.Config{{Policy: dispatch.Random}, {Policy: dispatch.SpeedWeighted}, {Policy: dispatch.Random, BackupAfter: 3}}
}

func TestASampleGoesToAWorkerThatServesItsReward(t *testing.T) {
	t.Parallel()
	for _, d := range policies() {
		twoPools(t, 50*time.Millisecond, d, func(t *testing.T, s *stage, add func(string)) {
			t.Helper()
			for _, id := range []string{"o1", "o2", "p1", "b1"} {
				add(id)
			}
			var futures []*loop.Future
			for i := range 80 {
				futures = append(futures, s.submit(t, "_run", asking(fmt.Sprint(i), []string{"ocr", "pick"}[i%2])))
			}
			by := map[string]int{}
			for i, f := range futures {
				res := result(t, f)
				require.Equal(t, rewards.Scored, res.Outcome, "%v: %v", d, res.Errors)
				require.NotEqual(t, "po"[i%2], res.Worker[0], "%v: %s", d, res.Worker)
				by[res.Worker[:1]]++
			}
			require.Len(t, by, 3, "every pool had some: %v", by)
		})
	}
}

// Nobody serves pick for a while: its samples wait, and those for ocr pass them in the
// same run and step; when a worker comes, they are scored.
func TestSamplesThatNobodyServesKeepNoOthersWaiting(t *testing.T) {
	t.Parallel()
	for _, d := range policies() {
		twoPools(t, 50*time.Millisecond, d, func(t *testing.T, s *stage, add func(string)) {
			t.Helper()
			add("o1")
			var late, now []*loop.Future
			for i := range 20 {
				late = append(late, s.submit(t, "_run", asking(fmt.Sprint("p", i), "pick")))
			}
			for i := range 20 {
				now = append(now, s.submit(t, "_run", asking(fmt.Sprint("o", i), "ocr")))
			}
			for _, f := range now {
				require.Equal(t, rewards.Scored, result(t, f).Outcome, d)
			}
			for _, f := range late {
				select {
				case <-f.Done():
					require.Fail(t, "nobody could have scored it")
				default:
				}
			}
			add("p1")
			for _, f := range late {
				require.Equal(t, rewards.Scored, result(t, f).Outcome, d)
			}
		})
	}
}

// A ticket that lies in the queue for a pool whose workers have gone is made anew for
// another pool that serves it.
func TestATicketWhosePoolIsGoneGoesToAnother(t *testing.T) {
	t.Parallel()
	twoPools(t, 800*time.Millisecond, dispatch.Config{}, func(t *testing.T, s *stage, add func(string)) {
		t.Helper()
		add("o1")
		var futures []*loop.Future
		for i := range 4 { // two are claimed, two lie in the queue
			futures = append(futures, s.submit(t, "_run", asking(fmt.Sprint(i), "ocr")))
		}
		require.NoError(t, pause(t.Context(), 400*time.Millisecond))
		s.Workers[0].Kill()
		s.queue.Kill("o1")
		add("b1")
		for _, f := range futures {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
	})
}

// A gateway that is told of a dead worker does not wait for its leases.
func TestWhatALostWorkerHadGoesToOthersAtOnce(t *testing.T) {
	t.Parallel()
	twoPools(t, 100*time.Millisecond, dispatch.Config{}, func(t *testing.T, s *stage, add func(string)) {
		t.Helper()
		add("o1")
		future := s.submit(t, "_run", asking("x", "ocr"))
		require.NoError(t, pause(t.Context(), 50*time.Millisecond))
		s.Workers[0].Kill()
		s.queue.Kill("o1")
		add("o2")
		begin := time.Now()
		s.Manager.Lost([]string{"o1", "somebody else"})
		res := result(t, future)
		require.Equal(t, rewards.Scored, res.Outcome)
		require.Equal(t, "o2", res.Worker)
		require.Less(t, time.Since(begin), time.Second)
	})
}

// The queue forgets its tickets and says so: they are made anew at once.
func TestTicketsOfAQueueThatForgotThemAreMadeAnewAtOnce(t *testing.T) {
	t.Parallel()
	twoPools(t, time.Second, dispatch.Config{}, func(t *testing.T, s *stage, add func(string)) {
		t.Helper()
		add("o1")
		var futures []*loop.Future
		for i := range 4 {
			futures = append(futures, s.submit(t, "_run", asking(fmt.Sprint(i), "ocr")))
		}
		require.NoError(t, pause(t.Context(), 100*time.Millisecond))
		begin := time.Now()
		s.queue.Lose()
		s.Manager.Republish()
		for _, f := range futures {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
		require.Less(t, time.Since(begin), 4*time.Second)
	})
}

// onUnequal is a stage under SpeedWeighted with workers f… that take 100 ms for a sample
// and s… that take a second, of one place each, for the rewards in the rest of their names.
// Each is known to the run _run by twenty samples and more.
func onUnequal(t *testing.T, names []string, test func(t *testing.T, s *stage, send func(step int64, reward string, n int) []*loop.Future)) {
	t.Helper()
	of := func(worker string) map[string]*rewards.Manager {
		took := time.Second
		if worker[0] == 'f' {
			took = 100 * time.Millisecond
		}
		served := map[string]*rewards.Manager{}
		for _, reward := range worker[1:] {
			served[string(reward)] = profile(t, component(hashing(took)))
		}
		return served
	}
	o := rig.Options{Profiles: of("fabc"), ProfilesOf: of, Loop: loop.Config{Dispatch: dispatch.Config{Policy: dispatch.SpeedWeighted}}}
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		n := 0
		send := func(step int64, reward string, count int) (futures []*loop.Future) {
			for range count {
				n++
				sample := asking(fmt.Sprint(n), reward)
				sample.Step = step
				futures = append(futures, s.submit(t, "_run", sample))
			}
			return futures
		}
		for _, id := range names {
			s.Add(t, rig.Settings{ID: id, Places: 1})
			for range 20 {
				require.Equal(t, rewards.Scored, result(t, send(0, id[1:2], 1)[0]).Outcome)
			}
		}
		test(t, s, send)
	})
}

func TestNoSampleWaitsForAFasterWorkerThatCannotScoreIt(t *testing.T) {
	t.Parallel()
	onUnequal(t, []string{"sa", "fb"}, func(t *testing.T, _ *stage, send func(int64, string, int) []*loop.Future) {
		t.Helper()
		begin := time.Now()
		for _, f := range send(1, "a", 5) {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
		require.InDelta(t, 5, time.Since(begin).Seconds(), 0.5)
	})
}

func TestAStepThatNobodyCanScoreKeepsNoLaterStepWaiting(t *testing.T) {
	t.Parallel()
	onUnequal(t, []string{"sa", "fa"}, func(t *testing.T, s *stage, send func(int64, string, int) []*loop.Future) {
		t.Helper()
		waits := send(1, "c", 1)[0]
		time.Sleep(time.Second)
		later := append(send(2, "a", 3), send(3, "a", 3)...)
		for _, f := range later {
			require.Equal(t, rewards.Scored, result(t, f).Outcome)
		}
		require.Nil(t, waits.Peek())
		pending, _ := s.Manager.Pending(1)
		require.Equal(t, "queued", pending[0].Stage)
		waits.Cancel("not wanted")
	})
}

// A worker that would give other scores gets nothing, and the log and the sample say why.
func TestAWorkerOfAnotherConfigurationGetsNothingAndIsNamed(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	bare(t, loop.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		s.queue.NewSource("w").Announce(wire.WorkerInfo{ID: "w", State: wire.WorkerReady, Profiles: []wire.ProfileInfo{{Queue: wire.QueueName("", "other"), Capacity: 8, Narrow: 8}}})
		p.send(t, rig.Sample("x", 30))
		time.Sleep(5 * time.Second)
		pending, _ := s.Manager.Pending(9)
		require.Equal(t, "queued", pending[0].Stage)
		require.Contains(t, pending[0].Waits, "worker w serves a profile \"default\" of another configuration")
		require.Equal(t, 1, strings.Count(log.String(), "configuration of a reward differs"))
	})
}
