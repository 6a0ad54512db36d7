package rewards

import (
	"fmt"
	"strings"
)

// MaxSteps is how many step scores a sample may have: RL-Factory gives one to a turn,
// and a response of 32,768 tokens has no 4,096 turns.
const MaxSteps = 4096

// checkSteps says what is wrong with step scores, "" if nothing is.
func checkSteps(steps []float64) string {
	if len(steps) > MaxSteps {
		return fmt.Sprintf("%d step scores, at most %d", len(steps), MaxSteps)
	}
	for i, v := range steps {
		if !finite(v) {
			return fmt.Sprintf("step %d of %d has the score %v", i+1, len(steps), v)
		}
	}
	return ""
}

// combineSteps fills Result.Steps: the k-th is what the aggregation makes of the k-th
// step scores of the terms that have some. Terms without them do not change it, nor do
// those of weight 0 where weights count: they only report. Where the terms disagree
// about the number of steps there are none, and an error that says so.
func (m *Manager) combineSteps(r *Result, terms []TermResult) {
	weighted := m.cfg.Aggregation == WeightedSum || m.cfg.Aggregation == WeightedMean
	var have []int
	for i := range terms {
		if t := &terms[i]; t.Status == StatusOK && len(t.Score.Steps) > 0 && (!weighted || m.cfg.Terms[i].Weight != 0) {
			have = append(have, i)
		}
	}
	if len(have) == 0 {
		return
	}
	fault := func(format string, args ...any) {
		r.Errors = append(r.Errors, TermError{Class: InvalidScore, Message: fmt.Sprintf(format, args...)})
	}
	n := len(terms[have[0]].Score.Steps)
	for _, i := range have[1:] {
		if t := &terms[i]; len(t.Score.Steps) != n {
			fault("%q gives %d step scores and %q %d; without as many from each there are none",
				terms[have[0]].Key, n, t.Key, len(t.Score.Steps))
			return
		}
	}
	steps := make([]float64, n)
	values := make([]WeightedValue, len(have))
	for k := range steps {
		for j, i := range have {
			values[j] = WeightedValue{terms[i].Key, m.cfg.Terms[i].Weight, terms[i].Score.Steps[k]}
		}
		v, ok := m.cfg.Aggregation.Combine(values)
		if !ok {
			fault("%s over the scores of step %d gives no finite number; the sample has no step scores", m.cfg.Aggregation, k+1)
			return
		}
		steps[k] = v
	}
	r.Steps = steps
}

// Segments cuts a response with its stop tokens into the steps that RL-Factory has
// judged one by one (get_prompt_for_reward of envs/base.py, d0abc1db). Stops are the
// texts of the stop tokens. Every other one ends a step: a turn of the model ends with
// one and the answer of its tool with the next, so that a step begins with that answer.
// After an odd number of them what is left belongs to no step, after an even number it
// is the last step, cut short. The segments are without their stops, as a tokenizer
// decodes them with skip_special_tokens; there are as many as step_mask has places.
// Unlike there, the last token of a response that was cut short is part of its step.
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
