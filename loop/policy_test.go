package loop_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/internal/testkit/memengine"
	"github.com/rewardloop/rewardloop/internal/testkit/rig"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// One free slot of many, drawn at random, is as good as an ideal queue: the last sample
// is with a worker the moment it comes, unless all are busy.
func TestRandomChoiceIsWithinOnePercentOfTheBound(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]func(*rand.Rand) float64{"uniform 0.8 to 1.2": uniform, "log-normal": logNormal} {
		for _, w := range []int{8, 16, 64} {
			t.Run(fmt.Sprintf("%s on %d workers", name, w), func(t *testing.T) {
				t.Parallel()
				over := trial{workers: w, size: size}.median(t, outcome.over)
				t.Logf("step over bound: %.4f", over)
				require.LessOrEqual(t, over, 1.01)
			})
		}
	}
}

// 2 % of the attempts take ten times as long. The bound is that of the mean service time:
// not a strict one, for nobody knows the draws of attempts that were never made.
func TestBackupsHideStragglers(t *testing.T) {
	t.Parallel()
	for _, w := range []int{8, 16} {
		t.Run(fmt.Sprintf("on %d workers", w), func(t *testing.T) {
			t.Parallel()
			tr := trial{workers: w, noise: straggling}
			without := tr.median(t, outcome.over)
			tr.dispatch = loop.Dispatch{BackupAfter: 2.5}
			sent := 0.0
			with := tr.median(t, func(o outcome) float64 { sent += o.sent; return o.over() })
			t.Logf("step over bound: %.4f with backups (%.1f a step), %.4f without", with, sent/float64(tr.trials()), without)
			require.LessOrEqual(t, with, 1.02)
		})
	}
}

// A quarter of the workers take three times as long.
func TestSlowWorkersDoNotGetTheLastSamples(t *testing.T) {
	t.Parallel()
	for w, most := range map[int]float64{8: 1.03, 16: 1.03, 64: 1.07} {
		t.Run(fmt.Sprintf("of %d workers", w), func(t *testing.T) {
			t.Parallel()
			tr := trial{workers: w, slow: 0.25}
			random := tr.median(t, outcome.over)
			tr.dispatch = loop.Dispatch{Policy: loop.SpeedWeighted}
			weighted := tr.median(t, outcome.over)
			t.Logf("step over bound: %.4f by speed, %.4f at random", weighted, random)
			require.LessOrEqual(t, weighted, most)
		})
	}
}

// What is usual must not follow the stragglers: a mean that forgets over 16 samples, as
// runs are charged by, would move the patience of backups by half and more each time.
func TestTheUsualServiceTimeBearsStragglers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	usual, mean := loop.Usual(20_000, func() float64 { return straggling(rng) })
	t.Logf("share of the time within 30%% of the true mean without stragglers: %.3f, of the plain mean %.3f", usual, mean)
	require.Greater(t, usual, 0.98)
	require.Less(t, mean, 0.85)
}

// A worker is cut off in the middle of a step, whenever that is.
func TestAKilledWorkerCostsLessThanOneDetectionAndOneServiceTime(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{loop.Random, loop.SpeedWeighted} {
		for _, at := range []float64{100, 180, 197, 199.9} {
			t.Run(fmt.Sprintf("%s at %v s", policy, at), func(t *testing.T) {
				t.Parallel()
				tr := trial{workers: 8, size: uniform, seed: 1, dispatch: loop.Dispatch{Policy: policy}}
				sound := tr.run(t)
				tr.during = func(r *rig.Rig, e *memengine.Engine) {
					time.Sleep(time.Duration(at * float64(time.Second)))
					for _, w := range r.Workers {
						if w.Info().Busy > 0 {
							w.Kill()
							e.Kill(w.ID)
							return
						}
					}
				}
				killed := tr.run(t)
				require.Equal(t, 512, killed.scored)
				t.Logf("%.2f s later", killed.end-sound.end)
				require.Less(t, killed.end-sound.end, trialLease.Seconds()+1.2*killed.unit)
			})
		}
	}
}

// Three quarters of the workers are slow, and the fast ones vanish near the end with what
// they had begun. It was kept from the slow ones, who are asked now, and at once.
func TestWhenTheFastWorkersVanishTheSlowOnesAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	for _, at := range []float64{197, 199, 200.2} {
		tr := trial{workers: 8, slow: 0.75, load: 0.7, seed: 1, dispatch: loop.Dispatch{Policy: loop.SpeedWeighted}}
		tr.during = func(r *rig.Rig, e *memengine.Engine) {
			time.Sleep(time.Duration(at * float64(time.Second)))
			for _, w := range r.Workers[6:] {
				w.Kill()
			}
			time.Sleep(time.Microsecond) // a claim on its way arrives before anybody says that its worker is gone
			for _, w := range r.Workers[6:] {
				e.Kill(w.ID)
			}
		}
		o := tr.run(t)
		require.Equal(t, 512, o.scored)
		t.Logf("gone at %v s: the step ended %.1f s after the last sample came, one of a slow worker takes %.1f s", at, o.end-rolloutTime, 3*o.unit)
		require.Less(t, o.end-rolloutTime, 2*3*o.unit+1)
	}
}

// The draw among all workers is verl's. It costs what the simulation says.
func TestABlindDrawWaitsForTheWorkerItDrew(t *testing.T) {
	t.Parallel()
	for _, w := range []int{8, 64} {
		t.Run(fmt.Sprintf("on %d workers", w), func(t *testing.T) {
			t.Parallel()
			tr := trial{workers: w, size: uniform, dispatch: loop.Dispatch{Policy: loop.RandomBlind}}
			over := tr.median(t, outcome.over)
			var simulated []float64
			for seed := range uint64(301) {
				draw := tr.withDefaults()
				draw.seed = seed
				g, r, _ := draw.draw(0)
				s, err := sim.Dispatch(g, r, sim.DispatchConfig{Servers: w, Policy: sim.PolicyRandomBlind, Seed: seed})
				require.NoError(t, err)
				simulated = append(simulated, (s.Makespan+updateTime)/(lowerBound(g, r, float64(w))+updateTime))
			}
			slices.Sort(simulated)
			t.Logf("step over bound: %.4f; simulated %.4f (%.4f to %.4f)", over, simulated[150], simulated[0], simulated[300])
			require.Greater(t, over, simulated[0])
			require.Less(t, over, simulated[300])
		})
	}
}

// Half of the workers vanish with what waits for them and what they had begun.
func TestWhatWaitedForAWorkerThatIsGoneIsDrawnAnew(t *testing.T) {
	t.Parallel()
	tr := trial{workers: 8, load: 0.4, seed: 1, dispatch: loop.Dispatch{Policy: loop.RandomBlind}}
	tr.during = func(r *rig.Rig, e *memengine.Engine) {
		time.Sleep(199900 * time.Millisecond)
		for _, w := range r.Workers[:4] {
			w.Kill()
			e.Kill(w.ID)
		}
	}
	o := tr.run(t)
	require.Equal(t, 512, o.scored)
	t.Logf("the step ended %.1f s after the last sample came; one takes %.1f s", o.end-rolloutTime, o.unit)
	require.Less(t, o.end-rolloutTime, 8*o.unit, "less than a lease")
}

// What a trainer that starts anew leaves behind is drawn for no worker that comes later.
func TestNoWorkerIsDrawnForSamplesOfAnEpochThatIsOver(t *testing.T) {
	t.Parallel()
	o := rig.Options{Loop: loop.Config{Dispatch: loop.Dispatch{Policy: loop.RandomBlind}}, Profiles: profiles(t, term(hashing(time.Second)))}
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		for _, id := range ids("old", 3) {
			p.send(t, rig.Sample(id, 30))
		}
		time.Sleep(time.Second) // nobody is there to draw
		p.drop()
		again := s.connect(t, wire.Hello{Run: "run"})
		defer again.drop()
		again.send(t, rig.Sample("new", 30))
		w := s.stub(t, "w")
		defer w.release()
		ticket := w.claim(t)
		require.Equal(t, "new", ticket.ID)
		w.answer(t, ticket, 1)
		again.result(t, "new")
		require.NoError(t, s.Manager.Audit(0))
	})
}

// Nobody is there to draw, for as long as samples come and expire.
func TestSamplesThatExpireAreNotDrawnFor(t *testing.T) {
	t.Parallel()
	o := rig.Options{Profiles: profiles(t, term(hashing(time.Second))), Loop: loop.Config{Dispatch: loop.Dispatch{Policy: loop.RandomBlind}}}
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		var last *loop.Future
		for i := range 500 {
			last = s.submitFor(t, "_run", rig.Sample(fmt.Sprint(i), 3), time.Second)
		}
		require.Equal(t, rewards.OutcomeExpired, result(t, last).Outcome)
		s.submit(t, "_run", rig.Sample("more", 3)).Cancel("not wanted")
		time.Sleep(time.Second)
		require.Less(t, s.Manager.Drawing(), 100)
		late := s.submit(t, "_run", rig.Sample("late", 3))
		s.Add(t, workers.Config{ID: "w", Slots: 1})
		require.Equal(t, rewards.Scored, result(t, late).Outcome)
	})
}

func TestARunRemembersThePaceOfSoManyWorkersOnly(t *testing.T) {
	t.Parallel()
	kept, first, last := loop.PacesOf(5000)
	require.Equal(t, 4096, kept)
	require.False(t, first, "the one that answered longest ago goes first")
	require.True(t, last)
}
