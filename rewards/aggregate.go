package rewards

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Aggregation is the rule that combines the values of several components into one reward.
type Aggregation string

// The aggregations. WeightedSum is the default, as in verl-omni.
const (
	WeightedSum  Aggregation = "weighted_sum"  // Σ wᵢ·vᵢ
	WeightedMean Aggregation = "weighted_mean" // Σ wᵢ·vᵢ / Σ wᵢ over the components that have a value
	Min          Aggregation = "min"           // smallest vᵢ; weights have no effect
	Max          Aggregation = "max"           // largest vᵢ; weights have no effect
	Product      Aggregation = "product"       // Π vᵢ; weights have no effect
)

// Aggregations returns all aggregations, for messages and checks.
func Aggregations() []Aggregation {
	return []Aggregation{WeightedSum, WeightedMean, Min, Max, Product}
}

// WeightedValue is the value and the weight of one component.
type WeightedValue struct {
	// Key is the key of the component.
	Key string `json:"key"`
	// Weight is the weight of the component in the profile; it may be negative.
	Weight float64 `json:"weight"`
	// Value is the value of the component before it is multiplied by the weight.
	Value float64 `json:"value"`
}

// Combine computes the reward from the values in vs. ok is false if vs is empty, if a value or the
// result is not finite, or if the weights of a mean do not sum to a positive number (if only a
// penalty had a value, the mean would change its sign).
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

// Pending is a reward that waits for its prompt group. It holds the components that have a value
// and those that failed under the policy group_mean. A gateway can finish a Pending without the
// profile.
type Pending struct {
	Aggregation Aggregation     `json:"aggregation"`
	Have        []WeightedValue `json:"have"`
	// Want holds the components without a value; the Value of each is meaningless.
	Want []WeightedValue `json:"want"`
	// Steps holds the contribution of each step to the reward so far, before division by the
	// weights of a mean: the sum of weight · scale · score over the components that have steps.
	// There are at most MaxSteps.
	Steps []float64 `json:"steps,omitempty"`
	// Column is the column in which a single reward reports its value, acc or score. Column is
	// empty for several components, which report reward/<key> and reward/combined.
	Column string `json:"column,omitempty"`
}

// Resolved is a finished Pending reward.
type Resolved struct {
	Score float64
	// Steps are the step scores, as in Result.Steps. Fault describes a problem with the step
	// scores; it is nil if there is none.
	Steps []float64
	Fault *ComponentError
}

// Resolve finishes the reward and its step scores with the group's mean of each component, and
// writes the columns of the imputed components into extra. mean returns the mean for a component's
// key. Resolve leaves out a component without a finite mean, because the component failed for the
// whole group. ok is false if the remaining values give no finite reward.
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

// Policy is the rule for a missing value.
type Policy string

// The policies. PolicyGroupMean adds no training signal for the member, because the imputed value
// is the mean of its group.
const (
	PolicyNone      Policy = "none"       // for samples only: no value is filled in
	PolicyFail      Policy = "fail"       // for components only: the sample fails
	PolicyGroupMean Policy = "group_mean" // the mean of the group's valid members
	PolicyZero      Policy = "zero"       // 0.0, as in verl-omni
	PolicyValue     Policy = "value"      // a number from the configuration
)

// ComponentPolicy is the on_failure of a component that is not required.
type ComponentPolicy struct {
	// Value is the imputed value if Policy is PolicyValue; otherwise Value must be 0.
	Policy Policy
	Value  float64
}

// SamplePolicy is the on_sample_failure of a profile or of a client.
type SamplePolicy struct {
	// Value is the fallback of a sample without a reward if Policy is PolicyValue; otherwise Value
	// must be 0.
	Policy Policy
	Value  float64
}

// ParseComponentPolicy parses "fail", "zero", "group_mean" or "value:<x>". The empty string is the
// zero ComponentPolicy, which means group_mean for a sample with a group and fail for a sample
// without one.
func ParseComponentPolicy(s string) (ComponentPolicy, error) {
	p, v, err := parsePolicy(s, PolicyFail, PolicyZero, PolicyGroupMean)
	return ComponentPolicy{p, v}, err
}

// ParseSamplePolicy parses "none", "zero", "group_mean" or "value:<x>". The empty string means
// none.
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
