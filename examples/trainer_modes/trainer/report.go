package trainer

import (
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Report is the result of a run. All times count from Began.
type Report struct {
	Began time.Time
	Steps []Step
}

// Step is one step of the trainer, with the batch that it learned from. Slices have an entry for
// each row.
type Step struct {
	Step int64
	// Start and End are the start and the end of the step. In a mode that is a step ahead, the
	// first step starts when its batch has been generated, and generates the next batch.
	Start, End time.Duration
	// Rollout and Generated are the start and the end of the generation of the step's batch:
	// between Start and End, or before Start in a mode that is a step ahead.
	Rollout, Generated time.Duration

	// Planned is the time at which a row should be submitted, and Submitted the time at which it
	// was passed to the client. Delay is the requested time of its scorer.
	Planned, Submitted, Delay []time.Duration
	// Responses are the responses to be scored.
	Responses []string

	// Waited is the time for which the trainer only waited for rewards.
	Waited time.Duration
	// Rewards and Valid are the received rewards. A row that is not valid has a reward and an
	// advantage of 0 here, whatever value its policy selects.
	Rewards    []float64
	Valid      []bool
	Advantages []float64
	// Batches are the rows of each update, in order.
	Batches [][]int
	// Theta is the policy after the step.
	Theta Theta

	// State is the state of the step in the reward loop: wire.StepComplete or wire.StepShort.
	// Without lists samples that have no result.
	State   string
	Without []wire.Missing
}

// Failed returns the number of rows without a reward.
func (s *Step) Failed() int {
	n := 0
	for _, v := range s.Valid {
		if !v {
			n++
		}
	}
	return n
}

// Took returns the duration of the whole run.
func (r *Report) Took() time.Duration {
	if len(r.Steps) == 0 {
		return 0
	}
	return r.Steps[len(r.Steps)-1].End
}

// PerStep returns the mean duration of a step. In a mode that is a step ahead, it includes the
// generation of the first batch.
func (r *Report) PerStep() time.Duration { return r.Took() / time.Duration(max(len(r.Steps), 1)) }

// Waited returns the mean time of a step for which the trainer only waited for rewards: the exposed
// part of scoring.
func (r *Report) Waited() time.Duration {
	var sum time.Duration
	for i := range r.Steps {
		sum += r.Steps[i].Waited
	}
	return sum / time.Duration(max(len(r.Steps), 1))
}
