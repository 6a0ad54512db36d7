package main

import (
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/rewards"
)

// String is the answer for people.
func (a *planAnswer) String() string {
	var b strings.Builder
	p := a.planner
	fmt.Fprintf(&b, "%d samples a step in groups of %d, generated within %.4g s; %s\n", a.Samples, p.base.Group, a.rollout(), p.reward)
	fmt.Fprintf(&b, "log-probabilities %.4g s, update %.4g s in %d mini-batches, other %.4g s; %s\n",
		p.base.LogProb, p.base.Update, p.base.MiniBatches, p.base.Other, a.source())
	if p.unscored > 0 {
		fmt.Fprintf(&b, "left out, because never scored: %s of the trace\n", rewards.Count(p.unscored, "sample"))
	}
	for _, policy := range p.policies {
		a.table(&b, policy)
	}
	for _, f := range a.Free {
		a.verdict(&b, f)
	}
	a.perGPU(&b)
	return b.String()
}

// source says how many draws the figures are of.
func (a *planAnswer) source() string {
	if a.Draws == 1 {
		return fmt.Sprintf("one draw of %d steps", a.Steps)
	}
	return fmt.Sprintf("median of %d draws of %d steps", a.Draws, a.Steps)
}

func (a *planAnswer) rollout() float64 {
	last := 0.0
	for _, g := range a.planner.g {
		last = max(last, g)
	}
	return last
}

// table prints the rows of one policy.
func (a *planAnswer) table(b *strings.Builder, policy string) {
	head := "concurrency"
	if a.planner.o.batchCost != "" {
		head = "devices"
	}
	fmt.Fprintf(b, "\npolicy %s\n%11s  %-18s %10s %8s %10s %10s %10s %5s", policy, head, "mode", "step s", "±", "exposed s", "bound s", "samples/s", "busy")
	gpus := a.planner.o.rolloutGPUs > 0
	if gpus {
		fmt.Fprintf(b, " %6s %13s", "GPUs", "samples/GPU/s")
	}
	fmt.Fprintln(b)
	for _, r := range a.Rows {
		if r.Policy != policy {
			continue
		}
		fmt.Fprintf(b, "%11d  %-18s %10.2f %8.2f %10.2f %10.2f %10.3f %4.0f%%", r.Servers, r.Mode, r.Step, r.StepSpread, r.Exposed, r.Bound, r.SamplesPer, 100*r.Busy)
		if gpus {
			fmt.Fprintf(b, " %6d %13.4f", r.GPUs, *r.SamplesPerGPU)
		}
		fmt.Fprintln(b)
	}
}

// verdict says from where on the reward is free.
func (a *planAnswer) verdict(b *strings.Builder, f planFree) {
	unit := func(n int) string { return rewards.Count(n, strings.TrimSuffix(a.planner.unit, "s")) }
	text := fmt.Sprintf("With %s dispatch and streaming ", f.Policy)
	if f.Servers != nil {
		text += fmt.Sprintf("the reward is free from %s on: a step waits %.2f s for it, within %g %% of one reward latency (%.2f s), which no number of them would shorten.",
			unit(*f.Servers), f.Exposed, a.Within, f.Latency)
	} else {
		text += fmt.Sprintf("the reward is never free: even with %s, one for each sample, a step waits %.2f s for it, more than %g %% above one reward latency (%.2f s).",
			unit(a.Samples), f.Exposed, a.Within, f.Latency)
	}
	fmt.Fprintln(b)
	paragraph(b, "", text)
	if f.OneStepOff != nil {
		text = fmt.Sprintf("One step off it is hidden from %s on: a step waits for at most %g %% of its time.", unit(*f.OneStepOff), a.Within)
	} else {
		text = fmt.Sprintf("One step off not even %s hide it.", unit(a.Samples))
	}
	paragraph(b, "", text)
}

// perGPU compares streaming with the reward on the rollout's GPUs.
func (a *planAnswer) perGPU(b *strings.Builder) {
	var colocated *planRow
	for i, r := range a.Rows {
		switch {
		case r.Mode == modeColocated:
			colocated = &a.Rows[i]
		case r.Mode == sim.ModeStreaming && colocated != nil && colocated.Policy == r.Policy && colocated.Step > 0 && *colocated.SamplesPerGPU > 0:
			fmt.Fprintf(b, "From %d GPUs, colocated, to %d with streaming: %.0f → %.0f s/step (%+.1f %%), samples/GPU/s %+.1f %%.\n",
				colocated.GPUs, r.GPUs, colocated.Step, r.Step, 100*(r.Step/colocated.Step-1), 100*(*r.SamplesPerGPU / *colocated.SamplesPerGPU - 1))
		}
	}
}
