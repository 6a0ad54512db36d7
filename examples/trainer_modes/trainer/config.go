package trainer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// Mode is the arrangement of a step around its rewards.
type Mode string

// The modes.
const (
	// Batch submits all samples when the rollout has ended, and waits for all rewards.
	Batch Mode = "batch"
	// Streaming submits each sample when it is finished, and waits for all rewards.
	Streaming Mode = "streaming"
	// Pipeline submits all samples when the rollout has ended, and updates with each mini-batch as
	// soon as its groups are scored.
	Pipeline Mode = "pipeline"
	// StreamingPipeline submits each sample when it is finished, and updates with each mini-batch
	// as soon as its groups are scored.
	StreamingPipeline Mode = "streaming_pipeline"
	// OneStepOff streams, and generates the next batch before it waits for the rewards of this one,
	// which are therefore those of a policy that is one update older.
	OneStepOff Mode = "one_step_off"
	// Both combines OneStepOff and StreamingPipeline.
	Both Mode = "both"
)

// Modes returns all modes, the slowest first.
func Modes() []Mode {
	return []Mode{Batch, Pipeline, Streaming, StreamingPipeline, OneStepOff, Both}
}

// Streams reports whether samples are submitted as they are finished.
func (m Mode) Streams() bool { return m != Batch && m != Pipeline }

// Pipelines reports whether the trainer learns from a mini-batch before all samples are scored.
func (m Mode) Pipelines() bool { return m == Pipeline || m == StreamingPipeline || m == Both }

// Ahead reports whether the next rollout begins before this step's rewards are available: such a
// mode is off policy by one step.
func (m Mode) Ahead() bool { return m == OneStepOff || m == Both }

// Config configures one run of the trainer. Mode, Prompts and Group are required.
type Config struct {
	Mode Mode
	// Prompts × Group is the number of samples of a step: row p·Group + m is member m of prompt p.
	Prompts, Group int
	// MiniBatches is the number of updates of a step; it must divide Prompts. The default is 1.
	MiniBatches int
	// Steps is the number of steps; the default is 1. First is the number of the first step; the
	// default is 1. A repetition in the same run of the reward loop needs other numbers, because a
	// step is scored only once.
	Steps int
	First int64

	// Generation is the duration of a rollout, LogProb the duration of the log-probabilities, which
	// overlap the scoring, Update the duration of the updates of all mini-batches together, and
	// Other the duration of the end of a step. Each may be 0.
	Generation, LogProb, Update, Other time.Duration
	// Arrivals returns when each row of a step is finished, counted from the beginning of its
	// rollout, at most Generation. The default is Arrive with Seed.
	Arrivals func(step int64) []time.Duration
	// Delay returns the time that the scorer takes for a sample. The default is 0.
	Delay func(step int64, row int) time.Duration
	// Truth returns a sample's ground truth, which the scorer reads. The default is {"wait_ms": …}
	// with the delay, for package stub.
	Truth func(step int64, row int, delay time.Duration) json.RawMessage
	// Order is the order in which the pipeline modes get groups: wire.ByCompletion, the default, or
	// wire.ByIndex, with which the mini-batches equal those of the other modes.
	Order string
	// Seed is the seed of all random numbers.
	Seed uint64

	// SampleDeadline is the time limit for one sample; 0: the server's. StepDeadline is the time
	// limit for a step from its declaration, even if samples are missing, and OnDeadline selects
	// the rewards of the step then; empty: the server's.
	SampleDeadline, StepDeadline time.Duration
	OnDeadline                   string
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c Config) WithDefaults() Config {
	c.MiniBatches = cmp.Or(c.MiniBatches, 1)
	c.Steps = cmp.Or(c.Steps, 1)
	c.First = cmp.Or(c.First, 1)
	c.Order = cmp.Or(c.Order, wire.ByCompletion)
	if c.Arrivals == nil {
		seed, n, within := c.Seed, c.Prompts*c.Group, c.Generation
		c.Arrivals = func(step int64) []time.Duration { return Arrive(seed, step, n, within) }
	}
	if c.Delay == nil {
		c.Delay = func(int64, int) time.Duration { return 0 }
	}
	if c.Truth == nil {
		c.Truth = truth
	}
	return c
}

// maxSamples bounds a step, so that a slip in the configuration cannot take the memory.
const maxSamples = 1 << 20

// Validate returns an error that lists everything that is wrong with a configuration whose defaults
// are set.
func (c Config) Validate() error {
	var faults []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf("trainer: "+format, args...))
		}
	}
	var known []string
	for _, m := range Modes() {
		known = append(known, string(m))
	}
	bad(!slices.Contains(Modes(), c.Mode), "mode %q is unknown, want one of %s", c.Mode, strings.Join(known, ", "))
	bad(c.Prompts < 1 || c.Group < 1, "%d prompts × %d samples, want 1 or more of each", c.Prompts, c.Group)
	over, n := bits.Mul64(uint64(max(c.Prompts, 0)), uint64(max(c.Group, 0)))
	bad(over > 0 || n > maxSamples, "%d prompts × %d samples are more than %d", c.Prompts, c.Group, maxSamples)
	bad(c.MiniBatches < 1 || c.Prompts%max(c.MiniBatches, 1) != 0, "%d mini-batches do not divide %d prompts", c.MiniBatches, c.Prompts)
	bad(c.Steps < 1, "%d steps, want 1 or more", c.Steps)
	bad(c.First < 0, "first step %d, want 0 or more", c.First)
	for _, d := range []struct {
		name string
		time time.Duration
	}{
		{"generation", c.Generation},
		{"log-prob", c.LogProb},
		{"update", c.Update},
		{"other", c.Other},
		{"sample deadline", c.SampleDeadline},
		{"step deadline", c.StepDeadline},
	} {
		bad(d.time < 0, "%s of %v, want 0 or more", d.name, d.time)
	}
	bad(c.Order != wire.ByCompletion && c.Order != wire.ByIndex, "order %q, want %s or %s", c.Order, wire.ByCompletion, wire.ByIndex)
	return errors.Join(faults...)
}

// Arrive draws the finish times of the n rows of a step: uniform order statistics, in order of
// rows, the last one equal to within.
func Arrive(seed uint64, step int64, n int, within time.Duration) []time.Duration {
	s := stream(seed, 2, uint64(step)) //nolint:gosec // bits are bits
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = time.Duration(s.uniform() * float64(within))
	}
	if n > 0 {
		out[n-1] = within
	}
	slices.Sort(out)
	return out
}

// UniformDelay returns a function that draws uniform delays from least to most.
func UniformDelay(seed uint64, least, most time.Duration) func(step int64, row int) time.Duration {
	return func(step int64, row int) time.Duration {
		s := stream(seed, 3, uint64(step), uint64(row)) //nolint:gosec // bits are bits
		return least + time.Duration(s.uniform()*float64(most-least))
	}
}

func truth(_ int64, _ int, delay time.Duration) json.RawMessage {
	b := strconv.AppendFloat([]byte(`{"wait_ms":`), float64(delay)/float64(time.Millisecond), 'f', -1, 64)
	return append(b, '}')
}
