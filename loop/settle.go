package loop

import (
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// This file is about the end of the scoring: the result that counts is there, or none
// will be. A sample that waits for its prompt group is held with it until the group closes.

// settle ends the scoring of a sample: its result is final, unless it waits for
// its prompt group.
func (c *core) settle(now time.Time, e *entry, res *wire.Result, fx *effects) {
	c.examine(e, res)
	c.noteMedia(e, res, fx)
	c.withdraw(now, e, fx)
	c.complete(e, res)
	e.result = res
	g := e.group
	if g == nil {
		finishPending(res, nil) // where a worker saw a group that the gateway does not
		res.Fallback = fallbackFor(e, res, nil)
		c.finalise(now, e, fx)
		return
	}
	taken := res.Outcome == rewards.OutcomeCancelled // its client wants nothing in its place
	waits := res.Pending != nil || (res.Outcome != rewards.Scored && !taken && e.policy.Policy == rewards.PolicyGroupMean)
	if g.closed || !waits {
		c.settleClosed(now, e, fx)
		return
	}
	c.move(e, awaitsMean)
	if g.settle(e.key.id, member{values: res.Values, waiting: e}) {
		c.closeGroup(now, g, fx)
		return
	}
	c.proceed(now, g, fx)
}

// settleClosed ends a sample that need not, or can no longer, wait for its group.
func (c *core) settleClosed(now time.Time, e *entry, fx *effects) {
	g, res := e.group, e.result
	if g.closed {
		finishPending(res, g.means)
		res.Fallback = fallbackFor(e, res, g.mean)
		res.Group = &g.stats
	} else {
		res.Fallback = fallbackFor(e, res, nil)
	}
	if g.settle(e.key.id, memberOf(res)) { // this very member completes it: its result carries the statistics
		c.closeGroup(now, g, fx)
		res.Group = &g.stats
	}
	c.finalise(now, e, fx)
	c.proceed(now, g, fx)
}

// releaseWaiting finishes a held entry at its own deadline with what its group has by now.
func (c *core) releaseWaiting(now time.Time, e *entry, fx *effects) {
	g := e.group
	finishPending(e.result, g.componentMeans())
	g.settle(e.key.id, memberOf(e.result))
	e.result.Fallback = fallbackFor(e, e.result, g.meanNow())
	c.finalise(now, e, fx)
}

func fallbackFor(e *entry, res *wire.Result, mean *float64) *wire.Fallback {
	if res.RewardScore != nil || res.Pending != nil {
		return nil
	}
	return fallback(e.policy, mean)
}

// fallback is what stands beside the null score of a failed sample.
func fallback(p rewards.SamplePolicy, mean *float64) *wire.Fallback {
	s := &wire.Fallback{Policy: string(p.Policy)}
	switch p.Policy {
	case rewards.PolicyZero, rewards.PolicyValue:
		s.Value = &p.Value
	case rewards.PolicyGroupMean:
		s.Value = mean
	default:
		return nil
	}
	return s
}

// complete fills what the gateway knows better than the worker.
func (c *core) complete(e *entry, res *wire.Result) {
	res.Type, res.ID, res.Attempts = "result", e.key.id, e.claims
	if res.Outcome == rewards.Scored {
		res.Errors = distinct(e.errors, res.Errors)
	} else { // the failure that decided stays first
		res.Errors = distinct(res.Errors, e.errors)
	}
	if len(res.ExtraInfo) > len(c.columns[e.profile]) { // a first success may know more than a failure before it
		c.columns[e.profile] = absent(res.ExtraInfo)
	}
	if res.ExtraInfo == nil {
		res.ExtraInfo = maps.Clone(c.columns[e.profile])
		if res.ExtraInfo == nil {
			res.ExtraInfo = map[string]any{}
		}
	}
}

// distinct are errors in their order, each once with the sum of its attempts: a sample that
// several workers failed in the same way has one error.
func distinct(lists ...[]rewards.ComponentError) (out []rewards.ComponentError) {
	for _, list := range lists {
		for _, e := range list {
			if e.Blame == "" {
				e.Blame, _ = rewards.BlameOf(e.Class)
			}
			same := func(o rewards.ComponentError) bool {
				return o.Component == e.Component && o.Class == e.Class && o.Message == e.Message
			}
			if i := slices.IndexFunc(out, same); i >= 0 {
				out[i].Attempts += e.Attempts
				continue
			}
			out = append(out, e)
		}
	}
	return out
}

// absent is the same columns without values.
func absent(extra map[string]any) map[string]any {
	empty := make(map[string]any, len(extra))
	for k, v := range extra {
		empty[k] = nil
		if _, text := v.(string); text {
			empty[k] = ""
		}
	}
	return empty
}
