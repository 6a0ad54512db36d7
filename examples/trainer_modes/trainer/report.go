package trainer

import (
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Report is what a run was. All times are since Began.
type Report struct {
	Began time.Time
	Steps []Step
}

// Step is one step of the trainer, with the batch that it learned from. Slices have a
// place for each row.
type Step struct {
	Step int64
	// Start and End bound it. In a mode that is a step ahead, the first one starts when its
	// batch has been generated, and generates the next.
	Start, End time.Duration
	// Rollout and Generated bound the generation of its batch: within Start and End, or in
	// a mode that is a step ahead, before Start.
	Rollout, Generated time.Duration

	// Planned is when a row was to be submitted, Submitted when it was handed to the
	// client; Delay is what its scorer was asked to take.
	Planned, Submitted, Delay []time.Duration
	// Responses are what was to be scored.
	Responses []string

	// Waited is how long the trainer had nothing to do but to wait for rewards.
	Waited time.Duration
	// Rewards and Valid are what came; a row that is not valid has a reward of 0 here and
	// an advantage of 0, whatever its policy put in its place.
	Rewards    []float64
	Valid      []bool
	Advantages []float64
	// Batches are the rows of each update, in its order.
	Batches [][]int
	// Theta is the policy after the step.
	Theta Theta

	// State is how the reward loop says that the step ended: wire.StepComplete, or
	// StepShort. Without names samples that have no result.
	State   string
	Without []wire.Missing
}

// Failed counts the rows without a reward.
func (s *Step) Failed() int {
	n := 0
	for _, v := range s.Valid {
		if !v {
			n++
		}
	}
	return n
}

// Took is how long the whole run was.
func (r *Report) Took() time.Duration {
	if len(r.Steps) == 0 {
		return 0
	}
	return r.Steps[len(r.Steps)-1].End
}

// PerStep is the mean over all steps; in a mode that is a step ahead, the generation of the
// first batch counts, too.
func (r *Report) PerStep() time.Duration { return r.Took() / time.Duration(max(len(r.Steps), 1)) }

// Waited is the mean time of a step for which there was nothing but rewards to wait for:
// the exposed part of scoring.
func (r *Report) Waited() time.Duration {
	var sum time.Duration
	for i := range r.Steps {
		sum += r.Steps[i].Waited
	}
	return sum / time.Duration(max(len(r.Steps), 1))
}
