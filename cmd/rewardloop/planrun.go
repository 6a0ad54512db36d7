package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/sim"
)

// modeColocated is batch on the rollout's own GPUs.
const modeColocated = "colocated"

// planRow is one mode on one pool. Seconds are per step.
type planRow struct {
	Policy  string `json:"policy"`
	Servers int    `json:"servers"`
	Mode    string `json:"mode"`
	// Step is the median over the draws, StepSpread half the way from the least to
	// the largest; Exposed is the wait for rewards.
	Step       float64 `json:"step_s"`
	StepSpread float64 `json:"step_spread_s"`
	Exposed    float64 `json:"exposed_s"`
	Bound      float64 `json:"bound_s"`
	SamplesPer float64 `json:"samples_per_s"`
	Busy       float64 `json:"pool_utilisation"`
	// GPUs are those of rollout and reward; absent where no number was given.
	GPUs          int      `json:"gpus,omitempty"`
	SamplesPerGPU *float64 `json:"samples_per_gpu_s,omitempty"`
}

// planFree is the least pool that makes the reward free under a policy.
type planFree struct {
	Policy string `json:"policy"`
	// Servers is absent where even as many servers as samples are not enough.
	Servers *int `json:"servers,omitempty"`
	// Exposed is what a streaming step waits for there (or with as many servers as
	// samples), Latency what it waits for where servers do not matter.
	Exposed float64 `json:"exposed_s"`
	Latency float64 `json:"latency_s"`
	// OneStepOff is the least pool with which one_step_off waits at most --within
	// percent of its step; absent where none is enough.
	OneStepOff *int `json:"one_step_off_servers,omitempty"`
}

// planAnswer is what the command says.
type planAnswer struct {
	Samples int        `json:"samples"`
	Draws   int        `json:"draws"`
	Steps   int        `json:"steps_per_draw"`
	Within  float64    `json:"within_percent"`
	Rows    []planRow  `json:"rows"`
	Free    []planFree `json:"free"`
	planner *planner
}

// answer simulates the table and searches. Rows are simulated on all cores, each
// by one goroutine that ends before this returns.
func (p *planner) answer(ctx context.Context) (*planAnswer, error) {
	if w := p.o.within; !(w >= 0 && w <= 1000) {
		return nil, fmt.Errorf("%w: --within is %v, must be 0…1000", sim.ErrLoad, w)
	}
	a := &planAnswer{Samples: p.o.samples, Draws: len(p.draws), Steps: planSteps, Within: p.o.within, planner: p}
	for _, policy := range p.policies {
		if p.o.rolloutGPUs > 0 && p.o.batchCost != "" {
			a.Rows = append(a.Rows, planRow{Policy: policy, Servers: p.o.rolloutGPUs, Mode: modeColocated})
		}
		for _, servers := range p.servers {
			for _, mode := range sim.Modes() {
				a.Rows = append(a.Rows, planRow{Policy: policy, Servers: servers, Mode: mode})
			}
		}
		a.Free = append(a.Free, planFree{Policy: policy})
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range a.Free { // the longest first
		group.Go(func() error { return p.search(ctx, &a.Free[i]) })
	}
	for i := range a.Rows {
		group.Go(func() error { return p.row(ctx, &a.Rows[i]) })
	}
	return a, group.Wait()
}

// row fills in a row.
func (p *planner) row(ctx context.Context, row *planRow) error {
	var steps, exposed, bounds, busy []float64
	for draw := range p.draws {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		cfg := p.config(row.Mode, row.Policy, row.Servers, draw)
		extra := 0.0
		if row.Mode == modeColocated {
			// Nothing runs beside it on the same GPUs.
			cfg.Mode, cfg.Other, cfg.LogProb = sim.ModeBatch, cfg.Other+cfg.LogProb, 0
			extra = p.o.switching.Seconds()
			cfg.Other += extra
		}
		run, err := sim.Trainer(cfg)
		if err != nil {
			return err
		}
		bound, err := sim.TrainerBound(cfg)
		if err != nil {
			return err
		}
		step := run.PerStep
		if overlaps(cfg.Mode) {
			step = *run.Steady // planSteps are enough
			bound = min(bound, step)
		}
		steps, bounds, busy = append(steps, step), append(bounds, bound), append(busy, run.Utilisation)
		exposed = append(exposed, waits(run, cfg.Mode)+extra)
	}
	row.Step, row.Exposed, row.Bound, row.Busy = median(steps), median(exposed), median(bounds), median(busy)
	row.StepSpread = (slices.Max(steps) - slices.Min(steps)) / 2
	if row.Step > 0 {
		row.SamplesPer = float64(p.o.samples) / row.Step
	}
	if row.GPUs = p.gpus(*row); row.GPUs > 0 {
		row.SamplesPerGPU = new(row.SamplesPer / float64(row.GPUs))
	}
	return nil
}

// overlaps says that steps overlap, so that the first and the last are not like
// the others.
func overlaps(mode string) bool { return mode == sim.ModeOneStepOff || mode == sim.ModeBoth }

// waits is the mean exposed time of the steps that are like those of a long run.
func waits(run sim.TrainerRun, mode string) float64 {
	steps := run.Exposed
	if overlaps(mode) {
		steps = steps[1 : len(steps)-1]
	}
	sum := 0.0
	for _, e := range steps {
		sum += e
	}
	return sum / float64(len(steps))
}

// gpus is how many GPUs a row uses; 0 where the number was not given.
func (p *planner) gpus(row planRow) int {
	switch {
	case p.o.rolloutGPUs == 0 || row.Mode == modeColocated:
		return p.o.rolloutGPUs
	case p.o.batchCost != "":
		return p.o.rolloutGPUs + row.Servers
	}
	return p.o.rolloutGPUs + p.o.rewardGPUs
}

// search finds the least pools.
func (p *planner) search(ctx context.Context, free *planFree) error {
	floor := make([]float64, len(p.draws))
	for draw := range p.draws {
		cfg := p.config(sim.ModeStreaming, sim.PolicyRandom, p.o.samples, draw)
		cfg.Pool = sim.DispatchConfig{Servers: p.o.samples, Batch: cfg.Pool.Batch}
		e, err := p.exposed(cfg)
		if err != nil {
			return err
		}
		floor[draw] = e
	}
	free.Latency = median(floor)
	tolerance := 1 + p.o.within/100
	waited := map[int]float64{} // by number of servers
	servers, err := p.least(ctx, slices.Max(p.g)+free.Latency*tolerance, func(servers int) (bool, error) {
		waits, over := make([]float64, len(p.draws)), make([]float64, len(p.draws))
		for draw := range p.draws {
			e, err := p.exposed(p.config(sim.ModeStreaming, free.Policy, servers, draw))
			if err != nil {
				return false, err
			}
			waits[draw], over[draw] = e, e-floor[draw]*tolerance
		}
		waited[servers] = median(waits)
		return median(over) <= 1e-9, nil
	})
	if err != nil {
		return err
	}
	free.Servers, free.Exposed = servers, waited[p.o.samples]
	if servers != nil {
		free.Exposed = waited[*servers]
	}
	own := slices.Max(p.g) + p.base.LogProb + p.base.Update + p.base.Other
	free.OneStepOff, err = p.least(ctx, own*tolerance, func(servers int) (bool, error) {
		run, err := sim.Trainer(p.config(sim.ModeOneStepOff, free.Policy, servers, 0))
		if err != nil {
			return false, err
		}
		return waits(run, sim.ModeOneStepOff) <= p.o.within/100**run.Steady+1e-9, nil
	})
	return err
}

// exposed is what a streaming step waits for its rewards after the rollout: the
// mean of the draw's steps, as in the table.
func (p *planner) exposed(cfg sim.TrainerConfig) (float64, error) {
	cfg.LogProb = 0
	run, err := sim.Trainer(cfg)
	if err != nil {
		return 0, err
	}
	return waits(run, cfg.Mode), nil
}

// least finds the smallest pool that is enough: it goes up from what the work needs
// within the given seconds, in growing strides, and halves the last one, to a
// thousandth. Nil: not even as many as samples are enough.
func (p *planner) least(ctx context.Context, within float64, enough func(servers int) (bool, error)) (*int, error) {
	most, need := p.o.samples, p.need(within)
	below, at, stride := need-1, need, max(1, need/16)
	for {
		ok, err := enough(at)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		if ok {
			break
		}
		if at == most {
			return nil, nil //nolint:nilnil // none is enough, and that is no error
		}
		below, at, stride = at, min(most, at+stride), 2*stride
	}
	for at-below > max(1, at/1000) {
		middle := (below + at) / 2
		ok, err := enough(middle)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		if ok {
			at = middle
		} else {
			below = middle
		}
	}
	return &at, nil
}

// need is how many servers the least work of a step keeps busy for the given
// seconds: fewer cannot be enough. Slow servers and failures only add to it.
func (p *planner) need(within float64) int {
	least := math.Inf(1)
	for _, draw := range p.draws {
		for _, step := range draw {
			work := 0.0
			for _, r := range step {
				work += r
			}
			least = min(least, work)
		}
	}
	if b := p.base.Pool.Batch; b.Max > 0 {
		least = float64(p.o.samples) / b.Rate()
	}
	if within <= 0 {
		return p.o.samples
	}
	return min(p.o.samples, max(1, int(math.Floor(least/within))))
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
