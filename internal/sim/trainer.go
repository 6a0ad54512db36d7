package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// The modes of a trainer. They define when samples are submitted, which scores an update waits for,
// and whether the next batch is generated meanwhile.
const (
	// ModeBatch submits the batch when it is completely generated, and updates when it is
	// completely scored.
	ModeBatch = "batch"
	// modePipeline submits likewise, and updates on each mini-batch of prompt groups
	// as soon as that is scored.
	modePipeline = "pipeline"
	// ModeStreaming submits every sample as it is generated.
	ModeStreaming = "streaming"
	// modeStreamingPipeline is both.
	modeStreamingPipeline = "streaming_pipeline"
	// ModeOneStepOff is ModeStreaming, and generates and submits the next batch before the trainer
	// waits for the scores of this one.
	ModeOneStepOff = "one_step_off"
	// ModeBoth combines streaming, the pipeline, and one step off.
	ModeBoth = "both"
)

// Modes returns all modes, the one with the least overlap first.
func Modes() []string {
	return []string{ModeBatch, modePipeline, ModeStreaming, modeStreamingPipeline, ModeOneStepOff, ModeBoth}
}

// mode is what a name stands for.
type mode struct{ streaming, pipeline, oneStepOff bool }

func modeOf(name string) (mode, bool) {
	m, ok := map[string]mode{
		ModeBatch:             {},
		modePipeline:          {pipeline: true},
		ModeStreaming:         {streaming: true},
		modeStreamingPipeline: {streaming: true, pipeline: true},
		ModeOneStepOff:        {streaming: true, oneStepOff: true},
		ModeBoth:              {streaming: true, pipeline: true, oneStepOff: true},
	}[name]
	return m, ok
}

// Orders in which a pipeline takes prompt groups.
const (
	orderCompletion = "completion" // those that are scored first
	orderIndex      = "index"      // those of the first rows
)

// TrainerConfig describes a trainer on one set of GPUs and its reward pool. A step consists of
// generation, log-probabilities, the updates of the mini-batches, each when its scores are
// available, and other work. All durations are in seconds.
type TrainerConfig struct {
	Mode string
	// G[k][i] is the time at which row i of step k leaves the generator, from the start of that
	// step's generation, which lasts until its last row. R[k][i] is the row's service time. With
	// Pool.Batch, R is ignored and may be nil.
	G, R [][]float64
	// Group is the number of consecutive rows in one prompt group; 0 means 1. The number of groups
	// per step is divided by MiniBatches, rounded down.
	Group int
	// Pool is the reward pool. Its queue is first-in first-out over all steps.
	Pool DispatchConfig
	// LogProb is the time for the log-probabilities, which overlaps the scoring; Update is the time
	// for the updates of all mini-batches together; Other (validation, weight sync) follows and
	// overlaps nothing.
	LogProb, Update, Other float64
	// MiniBatches is the number of updates of a step; 0 means 1. Only pipelines start an update
	// before all samples are scored.
	MiniBatches int
	// Order is the order in which a pipeline takes prompt groups: "completion" (the default) or
	// "index".
	Order string
}

// TrainerRun is the result of a simulation. Seconds count from the start of the first step's
// generation.
type TrainerRun struct {
	// Ends[k] is the end of step k. Exposed[k] is the time for which step k only waited for scores.
	Ends    []float64
	Exposed []float64
	// Scored[k][i] is the time at which row i of step k was scored.
	Scored [][]float64
	// PerStep is the end of the last step divided by the number of steps. Steady is the mean time
	// between the ends of consecutive steps that are like those of a long run: without the first
	// step, and in the modes one step off without the last step, which generates nothing. Steady is
	// nil if there is no such step.
	PerStep float64
	Steady  *float64
	// Utilisation is the share of the servers' time that was spent on attempts, including failed
	// ones.
	Utilisation float64
}

// WithDefaults returns a copy of c in which the defaults are set.
func (c TrainerConfig) WithDefaults() TrainerConfig {
	c.Group, c.MiniBatches = max(c.Group, 1), max(c.MiniBatches, 1)
	c.Order = cmp.Or(c.Order, orderCompletion)
	c.Pool = c.Pool.WithDefaults()
	if c.R == nil && c.Pool.Batch.Max > 0 {
		c.R = c.G
	}
	return c
}

// Validate returns an error that lists all invalid settings, and the first invalid time.
func (c TrainerConfig) Validate() error {
	c = c.WithDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrLoad}, args...)...))
		}
	}
	_, known := modeOf(c.Mode)
	check(known, "mode %q, must be one of %v", c.Mode, Modes())
	check(c.Order == orderCompletion || c.Order == orderIndex, "order %q, must be %s or %s", c.Order, orderCompletion, orderIndex)
	for name, v := range map[string]float64{"log-probabilities": c.LogProb, "update": c.Update, "other": c.Other} {
		check(IsTime(v), "%s take %v s, must be finite and not negative", name, v)
	}
	faults = append(faults, c.Pool.Validate())
	check(len(c.G) > 0 && len(c.G) == len(c.R), "release times of %d steps and service times of %d, must be the same and at least 1", len(c.G), len(c.R))
	if err := errors.Join(faults...); err != nil {
		return err
	}
	rows := 0
	for k := range c.G {
		if err := checkLoad(c.G[k], c.R[k], c.Pool.Servers); err != nil {
			return fmt.Errorf("step %d: %w", k, err)
		}
		groups := len(c.G[k]) / c.Group
		if len(c.G[k])%c.Group != 0 {
			return fmt.Errorf("%w: step %d has %d rows, not a multiple of the group size %d", ErrLoad, k, len(c.G[k]), c.Group)
		}
		if groups < c.MiniBatches {
			return fmt.Errorf("%w: step %d has %d groups for %d mini-batches", ErrLoad, k, groups, c.MiniBatches)
		}
		if rows += len(c.G[k]); rows > math.MaxInt32 {
			return fmt.Errorf("%w: more than %d rows", ErrLoad, math.MaxInt32)
		}
	}
	return nil
}

// Trainer simulates a trainer for len(G) steps.
func Trainer(cfg TrainerConfig) (TrainerRun, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return TrainerRun{}, err
	}
	steps := len(cfg.G)
	t := &trainer{cfg: cfg, pool: newPool(cfg.Pool)}
	t.mode, _ = modeOf(cfg.Mode)
	t.pool.scored = t.scored
	rows := 0
	for _, g := range cfg.G {
		rows += len(g)
	}
	t.pool.jobs = make([]job, 0, rows)
	run := TrainerRun{Ends: make([]float64, steps), Exposed: make([]float64, steps), Scored: make([][]float64, steps)}
	if t.mode.oneStepOff {
		t.generate(0)
	}
	for k := range steps {
		switch {
		case !t.mode.oneStepOff:
			t.generate(k)
		case k+1 < steps:
			t.generate(k + 1)
		}
		t.now += cfg.LogProb
		exposed, err := t.update(k)
		if err != nil {
			return TrainerRun{}, err
		}
		t.now += cfg.Other
		run.Ends[k], run.Exposed[k], run.Scored[k] = t.now, exposed, t.batches[k].scored
	}
	if t.now > 0 {
		run.Utilisation = t.pool.busy / (t.now * float64(cfg.Pool.Servers))
	}
	run.PerStep = t.now / float64(steps)
	run.Steady = steady(run.Ends, t.mode.oneStepOff)
	return run, nil
}

// steady is the mean distance between the ends that are like those of a long run.
func steady(ends []float64, oneStepOff bool) *float64 {
	last := len(ends) - 1
	if oneStepOff {
		last--
	}
	if last < 1 {
		return nil
	}
	return new((ends[last] - ends[0]) / float64(last))
}

// trainer is one run. Its clock is at or after the pool's: the pool is advanced
// only as far as the trainer waits for it.
type trainer struct {
	cfg     TrainerConfig
	mode    mode
	pool    *pool
	now     float64
	batches []*batch // by step
}

// batch is one step's rows.
type batch struct {
	first int       // the number of its first job in the pool
	order []int     // row by job
	left  []int     // rows of each group that are not scored
	done  []float64 // when each group was scored; +Inf: not yet
	ended []float64 // the same in order of completion
	// scored is when each row was.
	scored []float64
}

// generate produces a batch and submits it.
func (t *trainer) generate(k int) {
	g := t.cfg.G[k]
	rollout := slices.Max(g)
	b := &batch{
		left: slices.Repeat([]int{t.cfg.Group}, len(g)/t.cfg.Group), done: slices.Repeat([]float64{math.Inf(1)}, len(g)/t.cfg.Group),
		scored: make([]float64, len(g)),
	}
	released, work := slices.Repeat([]float64{rollout}, len(g)), make([]float64, len(g))
	if t.mode.streaming {
		b.order = byRelease(g)
	} else {
		b.order = byRelease(released)
	}
	for n, i := range b.order {
		if t.mode.streaming {
			released[n] = g[i]
		}
		work[n] = t.cfg.R[k][i]
	}
	b.first = t.pool.submit(t.now, released, work)
	t.batches = append(t.batches, b)
	t.now += rollout
}

// scored notes the score of a job.
func (t *trainer) scored(job int) {
	k, found := slices.BinarySearchFunc(t.batches, job, func(b *batch, job int) int { return cmp.Compare(b.first, job) })
	if !found {
		k--
	}
	b := t.batches[k]
	row := b.order[job-b.first]
	b.scored[row] = t.pool.now
	group := row / t.cfg.Group
	if b.left[group]--; b.left[group] == 0 {
		b.done[group] = t.pool.now
		b.ended = append(b.ended, t.pool.now)
	}
}

// update waits for each mini-batch and updates on it; it returns the seconds it
// waited.
func (t *trainer) update(k int) (exposed float64, err error) {
	b, parts := t.batches[k], 1
	if t.mode.pipeline {
		parts = t.cfg.MiniBatches
	}
	for m := 1; m <= parts; m++ {
		at, err := t.await(b, m*len(b.left)/parts)
		if err != nil {
			return 0, fmt.Errorf("step %d: %w", k, err)
		}
		exposed += max(0, at-t.now)
		t.now = max(t.now, at) + t.cfg.Update/float64(parts)
	}
	return exposed, nil
}

// await returns when the first n groups, in the order of the configuration, were
// scored.
func (t *trainer) await(b *batch, n int) (float64, error) {
	for {
		if t.cfg.Order == orderCompletion {
			if len(b.ended) >= n {
				return b.ended[n-1], nil
			}
		} else if at := slices.Max(b.done[:n]); !math.IsInf(at, 1) {
			return at, nil
		}
		if !t.pool.advance() {
			return 0, fmt.Errorf("%w: a sample is never scored", ErrLoad)
		}
	}
}
