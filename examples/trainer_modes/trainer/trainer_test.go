package trainer_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/examples/trainer_modes/stub"
	"github.com/rewardloop/rewardloop/examples/trainer_modes/trainer"
	"github.com/rewardloop/rewardloop/wire"
)

// four groups of two: arrivals every 1.25 s, and only the last group is quick to score.
func four(mode trainer.Mode) trainer.Config {
	return trainer.Config{
		Mode: mode, Prompts: 4, Group: 2, MiniBatches: 4, Steps: 2, Seed: 7,
		Generation: 10 * time.Second, LogProb: 2 * time.Second, Update: 8 * time.Second, Other: 3 * time.Second,
		Arrivals: func(int64) []time.Duration {
			var out []time.Duration
			for i := range 8 {
				out = append(out, time.Duration(i+1)*1250*time.Millisecond)
			}
			return out
		},
		Delay: func(_ int64, row int) time.Duration {
			if row >= 6 {
				return 4 * time.Second
			}
			return 9 * time.Second
		},
	}
}

// The times of a step in each mode, by hand: groups 0 to 3 are scored 11.5, 14, 16.5 and
// 14 s after the beginning of the rollout where they are streamed, else after 19, 19, 19
// and 14 s.
func TestEachModeTakesTheTimeThatItsPictureSays(t *testing.T) {
	t.Parallel()
	for mode, want := range map[trainer.Mode]struct {
		ends, waited [2]float64
	}{
		trainer.Batch:             {[2]float64{30, 60}, [2]float64{7, 7}},       // 10, until 19, 8, 3
		trainer.Pipeline:          {[2]float64{28, 56}, [2]float64{5, 5}},       // one update from 14 to 16, three from 19
		trainer.Streaming:         {[2]float64{27.5, 55}, [2]float64{4.5, 4.5}}, // 10, until 16.5, 8, 3
		trainer.StreamingPipeline: {[2]float64{23, 46}, [2]float64{0, 0}},       // updates from 12 on: 11.5, 14, 14, 16.5 are there in time
		trainer.OneStepOff:        {[2]float64{33, 46}, [2]float64{0, 0}},       // 10; 10, 2, 8, 3; 2, 8, 3
		trainer.Both:              {[2]float64{33, 46}, [2]float64{0, 0}},
	} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				report, err := trainer.Run(t.Context(), newIdeal(), four(mode))
				require.NoError(t, err)
				require.Len(t, report.Steps, 2)
				for i, s := range report.Steps {
					assert.InDelta(t, want.ends[i], s.End.Seconds(), 1e-9, "step %d", i)
					assert.InDelta(t, want.waited[i], s.Waited.Seconds(), 1e-9, "step %d", i)
					assert.Equal(t, wire.StepComplete, s.State)
					assert.Equal(t, s.Planned, s.Submitted, "not a nanosecond late")
					for row := range s.Planned {
						at := 10.0
						if mode.Streams() {
							at = float64(row+1) * 1.25
						}
						assert.InDelta(t, s.Rollout.Seconds()+at, s.Planned[row].Seconds(), 1e-9)
						reward, err := stub.Score(s.Responses[row])
						require.NoError(t, err)
						assert.Equal(t, reward, s.Rewards[row]) //nolint:testifylint // to the bit
					}
					assert.InDelta(t, 10, (s.Generated - s.Rollout).Seconds(), 1e-9)
				}
				assert.Equal(t, report.Steps[1].End, report.Took())
				assert.Equal(t, report.Took()/2, report.PerStep())
			})
		})
	}
}

// A mode that is a step ahead learns from responses of the policy before last.
func TestOnlyTheModesThatAreAStepAheadAreOffPolicy(t *testing.T) {
	t.Parallel()
	for _, mode := range trainer.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := four(mode)
				cfg.Steps = 3
				report, err := trainer.Run(t.Context(), newIdeal(), cfg)
				require.NoError(t, err)
				thetas := []trainer.Theta{{}} // before step i
				for _, s := range report.Steps {
					thetas = append(thetas, s.Theta)
				}
				for i, s := range report.Steps {
					of := i
					if mode.Ahead() {
						of = max(i-1, 0)
					}
					noise := trainer.DrawNoise(7, s.Step, 5)
					assert.Equal(t, thetas[of].Response(&noise), s.Responses[5], "step %d", s.Step)
				}
				assert.NotEqual(t, thetas[0], thetas[1])
			})
		})
	}
}

func TestEveryRowIsInExactlyOneUpdate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		report, err := trainer.Run(t.Context(), newIdeal(), four(trainer.Pipeline))
		require.NoError(t, err)
		assert.Equal(t, []int{6, 7}, report.Steps[0].Batches[0], "the quick group first")
		assert.ElementsMatch(t, [][]int{{0, 1}, {2, 3}, {4, 5}}, report.Steps[0].Batches[1:], "at the same moment")
		report, err = trainer.Run(t.Context(), newIdeal(), four(trainer.Streaming))
		require.NoError(t, err)
		assert.Equal(t, [][]int{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, report.Steps[0].Batches)
	})
}

func TestARefusedSampleEndsTheRunByName(t *testing.T) {
	t.Parallel()
	for _, mode := range trainer.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newIdeal()
				l.refuse = func(id string) bool { return id == "2/3" }
				report, err := trainer.Run(t.Context(), l, four(mode))
				require.ErrorContains(t, err, `step 2: sample "2/3": refused`)
				assert.Len(t, report.Steps, 1)
			})
		})
	}
}

func TestARunThatWaitsForALostSampleEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, mode := range trainer.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newIdeal()
				l.lose = func(id string) bool { return id == "1/3" }
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				_, err := trainer.Run(ctx, l, four(mode))
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		})
	}
}

func TestAdvantagesAreGRPOsAndAFailedSampleHasNone(t *testing.T) {
	t.Parallel()
	all := []bool{true, true, true, true}
	got := trainer.Advantages([]float64{1, 2, 3, 4}, all)
	std := math.Sqrt(1.25)
	for i, r := range []float64{-1.5, -0.5, 0.5, 1.5} {
		assert.InDelta(t, r/(std+1e-6), got[i], 1e-15)
	}
	assert.Equal(t, []float64{0, 0, 0, 0}, trainer.Advantages([]float64{2, 2, 2, 2}, all))
	got = trainer.Advantages([]float64{1, -99, 3, 0}, []bool{true, false, true, false})
	assert.InDelta(t, -1, got[0], 1e-5)
	assert.InDelta(t, 1, got[2], 1e-5)
	assert.Zero(t, got[1])
	assert.Zero(t, got[3])
	assert.Equal(t, []float64{0, 0}, trainer.Advantages([]float64{1, 2}, []bool{false, false}))
	assert.Equal(t, []float64{0, 0}, trainer.Advantages([]float64{1, 2}, []bool{true, false}), "alone, it is its own mean")
}

func TestTheNoiseIsAboutNormalAndBelongsToItsRow(t *testing.T) {
	t.Parallel()
	sum, squares, n := 0.0, 0.0, 0.0
	seen := map[trainer.Noise]bool{}
	for step := range int64(5) {
		for row := range 1000 {
			noise := trainer.DrawNoise(3, step, row)
			seen[noise] = true
			for _, v := range noise {
				sum, squares, n = sum+v, squares+v*v, n+1
			}
		}
	}
	assert.Len(t, seen, 5000)
	assert.InDelta(t, 0, sum/n, 0.03)
	assert.InDelta(t, 1, squares/n, 0.03)
	assert.NotEqual(t, trainer.DrawNoise(3, 4, 5), trainer.DrawNoise(4, 4, 5))
}

func TestTheLastRowArrivesAtTheEndOfTheRollout(t *testing.T) {
	t.Parallel()
	got := trainer.Arrive(1, 2, 1000, time.Second)
	assert.IsIncreasing(t, got)
	assert.Equal(t, time.Second, got[999])
	assert.InDelta(t, 0.5, got[500].Seconds(), 0.06)
	assert.Equal(t, []time.Duration{0, 0}, trainer.Arrive(1, 2, 2, 0))
	delay := trainer.UniformDelay(1, time.Second, 40*time.Second)
	var sum time.Duration
	for row := range 1000 {
		d := delay(1, row)
		assert.True(t, d >= time.Second && d < 40*time.Second)
		sum += d
	}
	assert.InDelta(t, 20.5, sum.Seconds()/1000, 1)
}

func TestAllFaultsOfAConfigurationAreNamed(t *testing.T) {
	t.Parallel()
	_, err := trainer.Run(t.Context(), newIdeal(), trainer.Config{
		Mode: "fast", Prompts: 7, Group: 0, MiniBatches: 2, Steps: -1, Update: -1, Order: "random",
	})
	for _, want := range []string{`mode "fast" is unknown, want one of batch, `, "7 prompts × 0 samples", "2 mini-batches do not divide 7", "-1 steps", "update of -1ns", `order "random"`} {
		require.ErrorContains(t, err, want)
	}
	_, err = trainer.Run(t.Context(), newIdeal(), trainer.Config{Mode: trainer.Batch, Prompts: 1 << 40, Group: 1 << 40})
	require.ErrorContains(t, err, "are more than")
	_, err = trainer.Run(t.Context(), newIdeal(), trainer.Config{
		Mode: trainer.Both, Prompts: 1, Group: 2, Arrivals: func(int64) []time.Duration { return []time.Duration{0, 1} },
	})
	require.ErrorContains(t, err, "later than the rollout's")
}
