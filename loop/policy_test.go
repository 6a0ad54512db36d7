package loop_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop/dispatch"
	"github.com/rewardloop/rewardloop/testkit/memqueue"
	"github.com/rewardloop/rewardloop/testkit/rig"
)

// One free place of many, drawn at random, is as good as an ideal queue: the last sample
// is with a worker the moment it comes, unless all are busy.
func TestRandomChoiceIsWithinOnePercentOfTheBound(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
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
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for _, w := range []int{8, 16} {
		t.Run(fmt.Sprintf("on %d workers", w), func(t *testing.T) {
			t.Parallel()
			tr := trial{workers: w, noise: straggling}
			without := tr.median(t, outcome.over)
			tr.dispatch = dispatch.Config{BackupAfter: 2.5}
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
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for w, most := range map[int]float64{8: 1.03, 16: 1.03, 64: 1.07} {
		t.Run(fmt.Sprintf("of %d workers", w), func(t *testing.T) {
			t.Parallel()
			tr := trial{workers: w, slow: 0.25}
			random := tr.median(t, outcome.over)
			tr.dispatch = dispatch.Config{Policy: dispatch.SpeedWeighted}
			weighted := tr.median(t, outcome.over)
			t.Logf("step over bound: %.4f by speed, %.4f at random", weighted, random)
			require.LessOrEqual(t, weighted, most)
		})
	}
}

// A worker is cut off in the middle of a step, whenever that is.
func TestAKilledWorkerCostsLessThanOneDetectionAndOneServiceTime(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{dispatch.Random, dispatch.SpeedWeighted} {
		for _, at := range []float64{100, 180, 197, 199.9} {
			t.Run(fmt.Sprintf("%s at %v s", policy, at), func(t *testing.T) {
				t.Parallel()
				tr := trial{workers: 8, size: uniform, seed: 1, dispatch: dispatch.Config{Policy: policy}}
				sound := tr.run(t)
				tr.during = func(r *rig.Rig, e *memqueue.Queue) {
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
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	for _, at := range []float64{197, 199, 200.2} {
		tr := trial{workers: 8, slow: 0.75, load: 0.7, seed: 1, dispatch: dispatch.Config{Policy: dispatch.SpeedWeighted}}
		tr.during = func(r *rig.Rig, e *memqueue.Queue) {
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
