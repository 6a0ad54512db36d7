package main

import (
	"cmp"
	"context"
	"math"
	"strconv"

	"github.com/rewardloop/rewardloop/examples/trainer_modes/trainer"
)

// The issue's lines.
const (
	lineStepIdeal = "real loop, 1:10, on 2 cores: within 2 % of the ideal-queue simulation fed with the same g_i, r_i in every mode at every concurrency"
	lineStepBound = "within 2 % of F* at c = 5120"
	lineStepFull  = "at full scale (one step, c = 5120) within 1 %"
	linePublished = "at c = 256 one-step-off and both are faster than the published rows; batch-after-rollout and mini-batch pipeline, to which generation and " +
		"update time were fitted, are within 2 % of theirs"
)

// The reward calls that may be under way at a time: as many as the recipe has threads, four
// times as many, and as many as there are samples.
const (
	recipeCalls = 256
	moreCalls   = 1024
	mostCalls   = 5120
)

var concurrencies = [...]int{recipeCalls, moreCalls, mostCalls} //nolint:gochecknoglobals // a table

// published are the seconds per step of the async_reward_agent recipe (Qwen2-7B, Megatron:
// 17h53m, 15h41m, 13h23m and 12h22m for 105 steps), whose scorer has 256 threads.
var published = map[trainer.Mode]float64{ //nolint:gochecknoglobals // a table
	trainer.Batch: 613.1, trainer.Pipeline: 537.7, trainer.OneStepOff: 458.9, trainer.Both: 424.0,
}

// overSteps is what a trainer's step takes around its rewards.
func overSteps() Suite {
	s := Suite{
		Name: "step", Apart: true, Plots: plotSteps,
		About: "The async_reward_agent experiment through the real loop: 1,024 prompts × 5 samples, a reward of 1 to 40 s (uniform) from an HTTP stub in this " +
			"process, 53 s of generation, 13 s of log-probabilities, 100 s of update in four mini-batches, 26 s of validation and the like; the trainer is " +
			"examples/trainer_modes. All times were divided by the scale that the readings name, and are multiplied by it here. Beside each mode stand an ideal pull " +
			"queue that was given the same arrivals and the same rewards (ideal), the time that no policy beats (bound), and the part that was spent waiting for " +
			"rewards (waited). steady is the distance between the ends of steps in the middle of the run, as in a long one. The modes of c = 256 ran side by side, " +
			"and those of 1,024 in threes: their processors are idle nine tenths of the time. Published are the recipe's own figures, with 256 threads.",
	}
	for _, c := range concurrencies {
		s.Experiments = append(s.Experiments, modesAt(c))
	}
	s.Experiments = append(s.Experiments, Experiment{
		Name: "full", Setup: newFullTrial, Rows: []Row{
			{Name: "streaming", Issue: lineStepFull, Unit: "s", Value: reading("streaming"), Target: within(1.01, "streaming_ideal"), Beside: beside(trainer.Streaming)},
			{Name: "over-bound", Issue: lineStepFull, Value: ratio("streaming", "streaming_bound"), Target: atMost(1.01)},
		},
	}, Experiment{
		Name: "verl_omni", Setup: newVerlOmniTrial, Rows: []Row{
			{Name: "batch", Unit: "s", Value: reading("batch"), Target: within(1.02, "batch_ideal"), Beside: append(beside(trainer.Batch), "documented_sync")},
			{Name: "streaming", Unit: "s", Value: reading("streaming"), Target: within(1.02, "streaming_ideal"), Beside: append(beside(trainer.Streaming), "documented_async")},
		},
	})
	return s
}

// modesAt is every mode at one concurrency.
func modesAt(c int) Experiment {
	e := Experiment{
		Name:  "c" + strconv.Itoa(c),
		Setup: func(_ context.Context, o Options) (Trial, error) { return newModesTrial(c, o), nil },
	}
	for _, m := range trainer.Modes() {
		mode := string(m)
		e.Rows = append(e.Rows, Row{
			Name: mode, Issue: lineStepIdeal, Unit: "s", Value: reading(mode), Target: within(1.02, mode+"_ideal"), Beside: append(beside(m), othersCores),
		})
		if c == mostCalls {
			e.Rows = append(e.Rows, Row{Name: mode + "-over-bound", Issue: lineStepBound, Value: ratio(mode, mode+"_bound"), Target: atMost(1.02)})
		}
	}
	if c == recipeCalls {
		for _, m := range []trainer.Mode{trainer.Batch, trainer.Pipeline, trainer.OneStepOff, trainer.Both} {
			e.Rows = append(e.Rows, publishedRow(m))
		}
	}
	e.Rows = append(e.Rows, Row{
		Name: "saved-of-published-baseline",
		Value: func(r Readings) float64 {
			return 1 - lookup(r, string(trainer.Both)+"_steady")/published[trainer.Batch]
		},
		Beside: []string{string(trainer.Batch) + "_steady", string(trainer.Streaming) + "_steady", string(trainer.Both) + "_steady"},
	})
	return e
}

// beside are the readings that a mode's row is told with.
func beside(m trainer.Mode) []string {
	mode := string(m)
	told := []string{mode + "_ideal", mode + "_bound", mode + "_waited", "scale"}
	if m.Ahead() {
		told = append(told, mode+"_steady", mode+"_steady_ideal")
	}
	return told
}

// publishedRow holds a mode at the concurrency of the recipe against its own figure.
func publishedRow(m trainer.Mode) Row {
	steady := string(m) + "_steady"
	if m.Ahead() {
		return Row{
			Name: "published-" + string(m), Issue: linePublished, Unit: "s", Value: reading(steady), Target: atMost(published[m]), Beside: []string{steady, steady + "_ideal"},
		}
	}
	return Row{
		Name: "published-" + string(m) + "-off-by", Issue: linePublished,
		Value:  func(got Readings) float64 { return math.Abs(lookup(got, steady)/published[m] - 1) },
		Target: atMost(0.02), Beside: []string{steady, steady + "_ideal"},
	}
}

// scaleOf is what times are divided by.
func scaleOf(o Options) float64 {
	if o.Quick {
		return 1000
	}
	return cmp.Or(o.Scale, usualScale)
}

// usualScale is what the promised figures were measured with.
const usualScale = 10
