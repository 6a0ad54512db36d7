package rewards

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// judge turns what a scorer returned into the answer of its component.
func (t *Component) judge(score Score, err error) ComponentResult {
	r := ComponentResult{Key: t.Key}
	var skip *SkipError
	wrongSteps := checkSteps(score.Steps)
	switch {
	case errors.As(err, &skip):
		r.Status, r.Reason = StatusSkipped, tell(t.redact, skip.Reason)
	case err != nil:
		r.Status, r.Class, r.Message = StatusFailed, ClassOf(err), tell(t.redact, MessageOf(err))
		r.Blame, r.Permanent = BlameOf(err)
		r.Waits = WaitedFor(err)
	case !finite(score.Value):
		r.Status, r.Class, r.Message = StatusFailed, InvalidScore, fmt.Sprintf("the score is %v", score.Value)
	case wrongSteps != "":
		r.Status, r.Class, r.Message = StatusFailed, InvalidScore, wrongSteps
	case slices.Contains(t.InvalidValues, score.Value):
		r.Status, r.Class = StatusFailed, InvalidScore
		r.Message = fmt.Sprintf("the score %v is one of invalid_values", score.Value)
	default:
		r.Status, r.Value, r.Score = StatusOK, t.value(score.Value), score
	}
	if r.Status == StatusFailed && r.Blame == "" {
		r.Blame = r.Class.blame()
	}
	return r
}

// failed makes the result of a sample that a component's failure decided.
func (m *Manager) failed(s *Sample, components []ComponentResult) Result {
	r := m.describe(components)
	r.Outcome = Failed
	// The failure that decided comes first: it gives the sample its class.
	slices.SortStableFunc(r.Errors, func(a, b ComponentError) int { return m.rank(s, a.Component) - m.rank(s, b.Component) })
	return r
}

// rank sorts required components before those whose failure fails the sample by
// policy, and these before the others.
func (m *Manager) rank(s *Sample, key string) int {
	i := slices.IndexFunc(m.cfg.Components, func(t Component) bool { return t.Key == key })
	switch {
	case m.cfg.Components[i].Required:
		return 0
	case m.cfg.Components[i].policy(s).Policy == PolicyFail:
		return 1
	}
	return 2
}

// combine applies the failure policies and the aggregation to the answers of all
// components.
func (m *Manager) combine(s *Sample, components []ComponentResult) Result {
	var have, want []WeightedValue
	fails := false
	for i := range components {
		t, r := &m.cfg.Components[i], &components[i]
		switch r.Status {
		case StatusOK:
			have = append(have, WeightedValue{t.Key, t.Weight, r.Value})
		case StatusFailed:
			switch p := t.policy(s); p.Policy {
			case PolicyZero, PolicyValue:
				r.Status, r.Value = StatusImputed, p.Value
				have = append(have, WeightedValue{t.Key, t.Weight, p.Value})
			case PolicyGroupMean:
				want = append(want, WeightedValue{Key: t.Key, Weight: t.Weight})
			default:
				fails = true
			}
		}
	}
	if fails {
		return m.failed(s, components)
	}
	r := m.describe(components)
	sums, fault := m.contributions(components)
	if len(want) > 0 {
		r.Outcome = Scored
		r.note(fault)
		r.Pending = &Pending{Aggregation: m.cfg.Aggregation, Have: have, Want: want, Steps: sums}
		if m.cfg.Single {
			r.Pending.Column = m.fields[0].value()
		}
		return r
	}
	reward, ok := m.cfg.Aggregation.Combine(have)
	if !ok {
		r.Outcome = Failed
		// It decided, so it comes before the failures of imputed components.
		if len(have) == 0 && m.routed() && len(r.Errors) == 0 {
			r.Errors = []ComponentError{{Class: BadInput, Message: m.nobody(s)}}
			return r
		}
		r.Errors = slices.Insert(r.Errors, 0, ComponentError{
			Class: NoScore, Message: fmt.Sprintf("%s over %d values of %d components gives no finite reward", m.cfg.Aggregation, len(have), len(components)),
		})
		return r
	}
	r.Outcome, r.Score = Scored, reward
	r.note(fault)
	r.Steps, fault = m.cfg.Aggregation.spread(sums, have, reward)
	r.note(fault)
	if !m.cfg.Single {
		r.Extra[combinedColumn] = reward
	}
	return r
}

// note adds an error that does not decide; nil: none.
func (r *Result) note(fault *ComponentError) {
	if fault != nil {
		r.Errors = append(r.Errors, *fault)
	}
}

// failure is what a result says of a component that failed.
func (r *ComponentResult) failure() ComponentError {
	return ComponentError{Component: r.Key, Class: r.Class, Message: r.Message, Blame: cmp.Or(r.Blame, r.Class.blame()), Permanent: r.Permanent, Attempts: r.Attempts}
}

// policy returns what to do when the component has failed for s.
func (t *Component) policy(s *Sample) ComponentPolicy {
	switch {
	case t.Required:
		return ComponentPolicy{Policy: PolicyFail}
	case t.OnFailure.Policy == "" && s.HasGroup():
		return ComponentPolicy{Policy: PolicyGroupMean}
	case t.OnFailure.Policy == PolicyGroupMean && !s.HasGroup(), t.OnFailure.Policy == "":
		return ComponentPolicy{Policy: PolicyFail}
	}
	return t.OnFailure
}

// describe fills the extra info, the details and the errors from the answers. The
// keys are the same for every sample, whatever failed.
func (m *Manager) describe(components []ComponentResult) Result {
	r := Result{
		Components: components, Extra: make(map[string]any, 4*len(components)+1), Details: map[string]any{},
		OnFailure: m.cfg.OnSampleFailure,
	}
	var waiting []ComponentError
	for i, t := range components {
		m.fields[i].fill(r.Extra, t)
		switch failed := t.Status == StatusFailed || t.Status == StatusImputed; {
		case failed && t.Waits != "": // it may have been answered later: another one decided
			waiting = append(waiting, t.failure())
		case failed:
			r.Errors = append(r.Errors, t.failure())
		}
		switch {
		case len(t.Score.Details) == 0:
		case m.cfg.Single:
			maps.Copy(r.Details, t.Score.Details)
		default:
			r.Details[t.Key] = t.Score.Details
		}
	}
	r.Errors = append(r.Errors, waiting...)
	if !m.cfg.Single {
		r.Extra[combinedColumn] = nil
	}
	return r
}
