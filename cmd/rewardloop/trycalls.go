package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// tryRun is the run's name in the loop.
const tryRun = loop.Hidden + "try"

// caller has the samples of try scored, one burst after the other.
type caller struct {
	n       *node.Node
	t       *trialEntry
	samples []*rewards.Sample
	out     *tried
	grouped bool
	bursts  int
}

// run has the first sample scored twice, then all of them at once; those of an entry that scores
// groups are one group each time.
func (c *caller) run(ctx context.Context) {
	if c.grouped && c.out.Known {
		c.samples = append(c.samples[:1:1], c.samples[0]) // one alone is no group
	}
	first := c.samples[:1]
	if c.grouped {
		first = c.samples
	}
	results, took := c.burst(ctx, first)
	c.out.Time.FirstMS = took
	c.out.take(c, results)
	if !c.out.Scored || ctx.Err() != nil {
		return
	}
	if again, second := c.burst(ctx, first); scoredAll(again) {
		c.out.Time.SecondMS = &second
	}
	if len(c.samples) == len(first) {
		return
	}
	for _, size := range c.sizes() {
		before := c.batches()
		results, took = c.burst(ctx, c.samples[:size])
		if ctx.Err() != nil {
			return
		}
		c.out.Time.Together = append(c.out.Time.Together, together{
			Samples: size, MS: took, SampleMS: took / float64(size), Batches: c.batches() - before,
		})
	}
	c.out.take(c, results)
}

// sizes are how many samples are scored at once: of a model growing numbers, by which it shows what
// a batch saves.
func (c *caller) sizes() []int {
	all := len(c.samples)
	if c.t.component.Placement == nil && len(c.n.Pool().Devices) == 0 {
		return []int{all}
	}
	var out []int
	for size := 2; size < all; size *= 2 {
		out = append(out, size)
	}
	return append(out, all)
}

// batches counts those that the devices have run.
func (c *caller) batches() (n uint64) {
	for _, d := range c.n.Pool().Devices {
		for _, m := range d.Models {
			n += m.Total.Batches
		}
	}
	return n
}

// burst has samples scored all at once, and returns their results and how many milliseconds it took:
// of a sample alone what its component took.
func (c *caller) burst(ctx context.Context, samples []*rewards.Sample) ([]*wire.Result, float64) {
	c.bursts++
	begun := time.Now()
	futures := make([]*loop.Future, len(samples))
	results := make([]*wire.Result, len(samples))
	for i, s := range samples {
		own := *s
		own.ID, own.Reward, own.Run = fmt.Sprintf("try-%d-%d", c.bursts, i), c.t.reward, ""
		if c.grouped {
			index := int64(i)
			own.UID, own.GroupSize, own.Index = fmt.Sprintf("try-%d", c.bursts), len(samples), &index
		}
		var err error
		if futures[i], err = c.n.Loop.Submit(ctx, loop.Submission{Run: tryRun, Sample: &own}); err != nil {
			results[i] = unsent(err)
		}
	}
	for i, f := range futures {
		if f == nil {
			continue
		}
		r, err := f.Wait(ctx)
		if err != nil {
			r = unsent(err)
		}
		results[i] = r
	}
	took := milliseconds(time.Since(begun))
	if of, ok := results[0].TimingMS["component/"+c.t.component.Key]; ok && len(results) == 1 {
		took = of
	}
	return results, took
}

// unsent is the result of a sample that the loop did not take.
func unsent(err error) *wire.Result {
	blame, permanent := rewards.BlameOf(err)
	return &wire.Result{Outcome: rewards.Rejected, Errors: []rewards.ComponentError{{
		Class: rewards.ClassOf(err), Message: err.Error(), Blame: blame, Permanent: permanent,
	}}}
}

func scoredAll(results []*wire.Result) bool {
	for _, r := range results {
		if r.RewardScore == nil {
			return false
		}
	}
	return true
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// tryAdvice says what to do about a failure.
func tryAdvice(err rewards.ComponentError, t *trialEntry) string {
	function := t.component.Function != ""
	switch err.Class {
	case rewards.Timeout:
		return "raise --timeout, or make the reward faster"
	case rewards.Crashed:
		return "the process ended: the message has its last output; memory: in the entry sets its memory limit"
	case rewards.InvalidScore:
		return "make the function return a finite number, or raise an exception where there is no score"
	case rewards.NoScore:
		return "make the function return a score, or raise an exception with the reason"
	case rewards.BadInput, rewards.Malformed, rewards.TooLarge:
		return "give a sample that the reward can score, by --image, --prompt, --response, --ground-truth or --sample"
	case rewards.Cancelled:
		return "run it again"
	}
	switch {
	case err.Blame == rewards.BlameDependency:
		return "start the service that the reward calls, or correct its address; `rewardloop doctor` checks whether the service answers"
	case strings.Contains(err.Message, "No module named") || strings.Contains(err.Message, "ModuleNotFoundError"):
		return "install the module for the Python that runs the entry, or name another one with --set interpreter=PATH"
	case strings.Contains(err.Message, "of memory, and the limit is"):
		return "raise the memory limit with --set memory=2GiB"
	case err.Blame == rewards.BlameWorker && function:
		return "correct what the message names, in the file or on this machine; `rewardloop doctor` reports what the machine lacks"
	case err.Blame == rewards.BlameWorker:
		return "`rewardloop doctor` reports what this machine lacks"
	case function:
		return "correct the function where the message points; `python -m rewardloop.check` calls the function without a server"
	}
	return "the message names what the reward lacks; `rewardloop scorers " + t.component.Scorer + "` has its options"
}

// take makes the results those of the document.
func (r *tried) take(c *caller, results []*wire.Result) {
	r.Samples, r.Scored = nil, scoredAll(results)
	for i, res := range results {
		if i == 0 && res.ExtraInfo != nil {
			r.Columns = res.ExtraInfo
		}
		s := triedSample{Score: res.RewardScore, Outcome: string(res.Outcome), Steps: res.StepScores, Details: res.Details}
		for _, e := range res.Errors {
			s.Errors = append(s.Errors, triedError{e, tryAdvice(e, c.t)})
		}
		r.Samples = append(r.Samples, s)
	}
}
