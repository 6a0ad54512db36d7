package rewards

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Aggregation is how the values of several components become one reward.
type Aggregation string

// The aggregations. WeightedSum is verl-omni's and the default.
const (
	WeightedSum  Aggregation = "weighted_sum"  // Σ wᵢ·vᵢ
	WeightedMean Aggregation = "weighted_mean" // Σ wᵢ·vᵢ / Σ wᵢ over the components that have a value
	Min          Aggregation = "min"           // smallest vᵢ; weights do not matter
	Max          Aggregation = "max"           // largest vᵢ
	Product      Aggregation = "product"       // Π vᵢ
)

// Aggregations lists them all, for messages and checks.
func Aggregations() []Aggregation {
	return []Aggregation{WeightedSum, WeightedMean, Min, Max, Product}
}

// WeightedValue is the value of one component for an aggregation.
type WeightedValue struct {
	// Key names the component.
	Key string `json:"key"`
	// Weight is the profile's; it may be negative.
	Weight float64 `json:"weight"`
	// Value is the component's, before the weight.
	Value float64 `json:"value"`
}

// Combine makes one reward of the values that there are. ok is false if there are
// none, if a value or the result is not finite, or if the weights of a mean do not
// sum to a positive number: left with a penalty alone, a mean would turn its sign.
func (a Aggregation) Combine(vs []WeightedValue) (reward float64, ok bool) {
	if len(vs) == 0 || slices.ContainsFunc(vs, func(v WeightedValue) bool { return !finite(v.Value) }) {
		return 0, false
	}
	switch a {
	case Min:
		reward = slices.MinFunc(vs, byValue).Value
	case Max:
		reward = slices.MaxFunc(vs, byValue).Value
	case Product:
		reward = 1
		for _, v := range vs {
			reward *= v.Value
		}
	default:
		for _, v := range vs {
			reward += v.Weight * v.Value
		}
		if a == WeightedMean {
			weights := total(vs)
			if weights <= 0 || !finite(weights) {
				return 0, false
			}
			reward /= weights
		}
	}
	if !finite(reward) {
		return 0, false
	}
	return reward, true
}

// weighted reports whether weights count.
func (a Aggregation) weighted() bool { return a == WeightedSum || a == WeightedMean }

// total is the sum of the weights.
func total(vs []WeightedValue) (weights float64) {
	for _, v := range vs {
		weights += v.Weight
	}
	return weights
}

func byValue(a, b WeightedValue) int {
	switch {
	case a.Value < b.Value:
		return -1
	case a.Value > b.Value:
		return 1
	}
	return 0
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Pending is a reward that waits for its prompt group: the components that have a
// value, and those that failed under the policy group_mean. It carries all that
// is needed to finish it, so that the gateway need not know the profile.
type Pending struct {
	Aggregation Aggregation     `json:"aggregation"`
	Have        []WeightedValue `json:"have"`
	// Want holds the components without a value; their Value means nothing.
	Want []WeightedValue `json:"want"`
	// Steps holds what each step gives to the reward so far, before the weights of a mean
	// divide it: weight · scale · score over the components that have steps, at most MaxSteps.
	Steps []float64 `json:"steps,omitempty"`
	// Column is where a single reward reports its value (acc or score); empty for
	// several components, which report reward/<key> and reward/combined.
	Column string `json:"column,omitempty"`
}

// Resolved is a Pending reward that is finished.
type Resolved struct {
	Score float64
	// Steps and Fault are Result.Steps and what is wrong with them; nil: nothing.
	Steps []float64
	Fault *ComponentError
}

// Resolve finishes the reward and its step scores with the group's mean by component key and
// writes the columns of the components it imputed into extra. A component without a finite mean (it
// failed for the whole group) is left out, as it is for every other member. ok is
// false if nothing finite remains.
func (p *Pending) Resolve(extra map[string]any, mean func(key string) (float64, bool)) (r Resolved, ok bool) {
	if extra == nil {
		extra = map[string]any{} // nobody reads it; writing to nil would panic
	}
	vs := slices.Clone(p.Have)
	for _, w := range p.Want {
		m, found := mean(w.Key)
		if !found || !finite(m) {
			continue
		}
		vs = append(vs, WeightedValue{w.Key, w.Weight, m})
		if p.Column != "" {
			extra[p.Column], extra[imputedSingle] = m, true
			continue
		}
		extra[componentColumn(w.Key)], extra[componentColumn(w.Key)+imputedSuffix] = m, true
	}
	r.Score, ok = p.Aggregation.Combine(vs)
	if !ok {
		return Resolved{}, false
	}
	if p.Column == "" {
		extra[combinedColumn] = r.Score
	}
	r.Steps, r.Fault = p.Aggregation.spread(p.Steps, vs, r.Score)
	return r, true
}

// Policy is what to put in place of a missing value.
type Policy string

// The policies. GroupMean carries no signal: the member's advantage is what the
// rest of its group says.
const (
	PolicyNone      Policy = "none"       // samples only: nothing in its place
	PolicyFail      Policy = "fail"       // components only: the sample fails
	PolicyGroupMean Policy = "group_mean" // the mean of the group's valid members
	PolicyZero      Policy = "zero"       // 0.0, verl-omni's way
	PolicyValue     Policy = "value"      // a number of the configuration
)

// ComponentPolicy is the on_failure of a component that is not required.
type ComponentPolicy struct {
	// Value is what counts in the place of a missing one, of PolicyValue alone.
	Policy Policy
	Value  float64
}

// SamplePolicy is the on_sample_failure of a profile or of a client.
type SamplePolicy struct {
	// Value is the reward of a sample without one, of PolicyValue alone.
	Policy Policy
	Value  float64
}

// ParseComponentPolicy reads "fail", "zero", "group_mean" or "value:<x>"; the empty
// string is the zero policy, which means group_mean for a sample that has a group
// and fail for one that has none.
func ParseComponentPolicy(s string) (ComponentPolicy, error) {
	p, v, err := parsePolicy(s, PolicyFail, PolicyZero, PolicyGroupMean)
	return ComponentPolicy{p, v}, err
}

// ParseSamplePolicy reads "none", "zero", "group_mean" or "value:<x>"; the empty
// string is none.
func ParseSamplePolicy(s string) (SamplePolicy, error) {
	if s == "" {
		s = string(PolicyNone)
	}
	p, v, err := parsePolicy(s, PolicyNone, PolicyZero, PolicyGroupMean)
	return SamplePolicy{p, v}, err
}

// checkPolicy names what is wrong with a policy that was not parsed but written in Go.
func checkPolicy(p Policy, v float64, words ...Policy) error {
	switch {
	case p == PolicyValue && !finite(v):
		return fmt.Errorf("policy value:<number>: want a finite number, got %v", v)
	case p != PolicyValue && v != 0:
		return fmt.Errorf("the policy %q takes no value, got %v", p, v)
	case p != "" && p != PolicyValue && !slices.Contains(words, p):
		return fmt.Errorf("policy %q: want one of %v or %s", p, words, PolicyValue)
	}
	return nil
}

func parsePolicy(s string, words ...Policy) (Policy, float64, error) {
	if s == "" || slices.Contains(words, Policy(s)) {
		return Policy(s), 0, nil
	}
	if text, found := strings.CutPrefix(s, "value:"); found {
		v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err == nil && finite(v) {
			return PolicyValue, v, nil
		}
		return "", 0, fmt.Errorf("policy %q: want value:<number> with a finite number", s)
	}
	return "", 0, fmt.Errorf("policy %q: want one of %v or value:<number>", s, words)
}
