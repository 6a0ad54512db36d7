package rewards

import (
	"fmt"
	"math"
	"strings"
)

// MaxSteps is the maximum number of step scores of a sample. RL-Factory has one step score for each
// turn, and a response of 32,768 tokens has fewer than 4,096 turns.
const MaxSteps = 4096

// checkSteps says what is wrong with step scores, "" if nothing is.
func checkSteps(steps []float64) string {
	if len(steps) > MaxSteps {
		return fmt.Sprintf("%d step scores, want at most %d", len(steps), MaxSteps)
	}
	for i, v := range steps {
		if !finite(v) {
			return fmt.Sprintf("step %d of %d has the score %v", i+1, len(steps), v)
		}
	}
	return ""
}

// contributions adds up, step by step, what the components with step scores give to the
// reward: weight · scale · step, not yet divided by the weights of a mean. Clip has no part
// in it. A component of weight 0 only reports and gives nothing, where weights count. Where
// no part of the reward belongs to a step (min, max, product; components with different
// numbers of steps, or with scores that no float64 can hold) every step gets 0, as many as
// the component with the most has; an error says so unless it is the aggregation's nature.
// Nil: no component has steps.
func (m *Manager) contributions(components []ComponentResult) (sums []float64, fault *ComponentError) {
	weighted := m.cfg.Aggregation.weighted()
	var have []int
	most := 0
	for i := range components {
		t := &components[i]
		if t.Status != StatusOK || len(t.Score.Steps) == 0 || weighted && m.cfg.Components[i].Weight == 0 {
			continue
		}
		have = append(have, i)
		most = max(most, len(t.Score.Steps))
	}
	if len(have) == 0 {
		return nil, nil
	}
	first := &components[have[0]]
	for _, i := range have[1:] {
		if t := &components[i]; len(t.Score.Steps) != len(first.Score.Steps) {
			return make([]float64, most), wholeReward("%q gives %d step scores and %q %d",
				first.Key, len(first.Score.Steps), t.Key, len(t.Score.Steps))
		}
	}
	sums = make([]float64, most)
	if !weighted {
		return sums, nil
	}
	for _, i := range have {
		t := &m.cfg.Components[i]
		for k, v := range components[i].Score.Steps {
			sums[k] += t.Weight * t.scaled(v)
		}
	}
	for k, v := range sums {
		if !finite(v) {
			return make([]float64, most), wholeReward("weight · scale · score of step %d is %v", k+1, v)
		}
	}
	return sums, nil
}

// Stepless returns the reason why a component with step scores is refused with this aggregation,
// and the alternative. It returns nil if such a component is accepted.
func (a Aggregation) Stepless() error {
	if a.weighted() {
		return nil
	}
	return fmt.Errorf("%s cannot split the reward into steps; write aggregation %s or %s, "+
		"or leave steps out for the whole reward on the last step", a, WeightedSum, WeightedMean)
}

// wholeReward is the error of a result whose steps have no shares of its reward.
func wholeReward(format string, args ...any) *ComponentError {
	return &ComponentError{
		Class: InvalidScore, Blame: BlameReward,
		Message: fmt.Sprintf(format, args...) + ": the whole reward is on the last step",
	}
}

// stepSlack is how far from the reward the sum of its step scores may be, relative to the
// greater of 1 and the reward.
const stepSlack = 1e-9

// spread makes the step scores of a reward: sums is what contributions gave, vs are the
// values that made the reward. What the steps do not account for (components without
// steps, imputed values, clip, a value that is not the sum of its steps) is on the last
// one, so that their sum, added from the first to the last, is the reward.
func (a Aggregation) spread(sums []float64, vs []WeightedValue, reward float64) (steps []float64, fault *ComponentError) {
	if len(sums) == 0 {
		return nil, nil
	}
	weights := 1.0
	if a == WeightedMean {
		weights = total(vs)
	}
	steps = make([]float64, len(sums))
	last := len(sums) - 1
	before := 0.0
	for k, v := range sums {
		steps[k] = v / weights
		if k < last {
			before += steps[k]
		}
	}
	if before+steps[last] != reward {
		steps[last] = reward - before
	}
	// NaN, too, is not within the slack.
	if off := math.Abs(before + steps[last] - reward); !(off <= stepSlack*max(1, math.Abs(reward))) || !finite(steps[last]) {
		clear(steps)
		steps[last] = reward
		fault = wholeReward("the scores of the first %d steps sum to %v, too large to keep the sum with the reward %v", last, before, reward)
	}
	return steps, fault
}

// Segments splits a response that contains stop tokens into the steps that RL-Factory judges one by
// one (get_prompt_for_reward of envs/base.py, d0abc1db). stops are the texts of the stop tokens.
// Every other stop ends a step, because a turn of the model ends with one stop and the answer of
// the model's tool with the next; so a step begins with that answer. After an odd number of stops
// the rest belongs to no step; after an even number the rest is the last step, which was cut short.
// The segments do not contain the stops, as when a tokenizer decodes with skip_special_tokens.
// There are as many segments as step_mask has places. Unlike in RL-Factory, the last token of a
// response that was cut short is part of its step.
func Segments(response string, stops []string) []string {
	var steps []string
	var step strings.Builder
	count := 0
	for {
		at, size := nextStop(response, stops)
		if size == 0 {
			break
		}
		step.WriteString(response[:at])
		response = response[at+size:]
		if count++; count%2 == 1 {
			steps = append(steps, step.String())
			step.Reset()
		}
	}
	if count%2 == 0 {
		steps = append(steps, step.String()+response)
	}
	return steps
}

// nextStop finds the first stop, the longest of those that begin there; size 0: none.
func nextStop(text string, stops []string) (at, size int) {
	for _, stop := range stops {
		i := strings.Index(text, stop)
		if stop == "" || i < 0 {
			continue
		}
		if size == 0 || i < at || i == at && len(stop) > size {
			at, size = i, len(stop)
		}
	}
	return at, size
}
