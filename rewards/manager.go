package rewards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Component is one part of a reward: a scorer with a key and a weight.
type Component struct {
	// Key is the name of the component in reward_extra_info: reward/<key>.
	Key string
	// Weight multiplies the value in a weighted aggregation.
	Weight float64
	// Required makes the sample fail if the component fails for good.
	Required bool
	// Scorer scores one sample, Group a whole prompt group. Exactly one of the two is set.
	Scorer Scorer
	Group  GroupScorer
	// MinMembers is the minimum number of members for a Group. The component fails if there are
	// fewer because other members never arrived or failed. The default is 2; WholeGroup requires
	// all members; with 1, a sample without a group is scored as a group of one.
	MinMembers int
	// OnFailure is the policy for the missing value of a component that is not required. The zero
	// value means group_mean for a sample with a group, and fail for a sample without one.
	OnFailure ComponentPolicy
	// Timeout is the maximum duration of the component, including retries. It is at most
	// MaxComponentTimeout and defaults to ManagerConfig.Timeout.
	Timeout time.Duration
	// Retries is the maximum number of further calls of the scorer after a failure of the reward,
	// or a failure of a service that is not permanent. The default is 0: one call.
	Retries int
	// Concurrency overrides how many calls of the scorer this process executes at the same time. 0
	// means the number that the scorer reports (Concurrent).
	Concurrency int
	// InvalidValues are scores that mean "failed" in other systems, such as -999 or -1.
	InvalidValues []float64
	// When lists the values of ManagerConfig.RouteBy for which the component is used; for any other
	// sample the component is skipped. If When is empty, the component applies to all samples.
	When []string
	// Clip bounds the scorer's value, and Scale multiplies the result. nil and 0 have no effect. A
	// component with either also reports the scorer's value as reward/<key>/raw.
	Clip  *[2]float64
	Scale float64
	// Steps declares that the component returns step scores. Min, Max and Product are refused
	// together with such a component, because they have no part for each step. If a component
	// returns undeclared step scores with one of these aggregations, the whole reward is on the
	// last step.
	Steps bool

	redact func(string) string // of the profile; nil: none
}

// transforms reports whether the component's value is not what its scorer says.
func (t *Component) transforms() bool { return t.Clip != nil || t.Scale != 0 && t.Scale != 1 }

// value is what the component makes of its scorer's value.
func (t *Component) value(v float64) float64 {
	if t.Clip != nil {
		v = min(max(v, t.Clip[0]), t.Clip[1])
	}
	return t.scaled(v)
}

// scaled is v times Scale.
func (t *Component) scaled(v float64) float64 {
	if t.Scale != 0 {
		v *= t.Scale
	}
	return v
}

// WholeGroup is the MinMembers of a component that scores only complete groups.
const WholeGroup = -1

// ManagerConfig is a reward profile.
type ManagerConfig struct {
	// Components are the components of the profile. There is at least one, and the keys are unique.
	Components []Component
	// Single reports the only component as verl's custom_reward_function does: a plain number as
	// acc, other results under the scorer's own field names. Otherwise the columns are
	// reward/<key>, reward/<key>/<field> and reward/combined.
	Single bool
	// Aggregation defaults to weighted_sum.
	Aggregation Aggregation
	// RouteBy is the name of the field whose value selects components by their When: data_source
	// (the default), or extra_info.<name> for a string in extra_info.
	RouteBy string
	// GroupByPrompt makes one group of all samples of a step that have the same prompt, a
	// group_size and no uid. The gateway needs the same setting (loop.Config).
	GroupByPrompt bool
	// Gate is a condition that every sample waits for, in addition to the dependencies of its
	// components; for example that a trainer has released its memory. nil means no condition.
	Gate Reliant
	// Begun is called with each sample when a pass begins. The function that it returns is called
	// when no part of the pass runs any more. Begun must return quickly. It may be nil.
	Begun func(s *Sample) (ended func())
	// Prepare runs before a sample is scored. Its failure is the sample's failure. It may be nil.
	Prepare Preparer
	// OnSampleFailure is the policy for the fallback beside a null score. The default is none.
	OnSampleFailure SamplePolicy
	// Concurrency is the profile's capacity in this process, in samples, and the maximum number of
	// samples in flight. 0 means the largest concurrency of the components.
	Concurrency int
	// Timeout is the maximum duration of a component without its own timeout. The default is 120 s.
	Timeout time.Duration
	// Backoff is the pause before the first retry; it doubles with each retry. The default is 250
	// ms.
	Backoff time.Duration
	// Redact removes secrets from the failure messages of scorers. If nil, messages are unchanged.
	Redact func(text string) string
}

// Defaults of ManagerConfig.
const (
	DefaultComponentTimeout = 120 * time.Second
	DefaultBackoff          = 250 * time.Millisecond
)

// MaxComponentTimeout is the longest timeout of a component, so that no wait is unlimited.
const MaxComponentTimeout = 24 * time.Hour

// WithDefaults returns a copy with the defaults filled in.
func (c ManagerConfig) WithDefaults() ManagerConfig {
	c.Components = slices.Clone(c.Components)
	if c.Aggregation == "" {
		c.Aggregation = WeightedSum
	}
	if c.RouteBy == "" {
		c.RouteBy = routeByDataSource
	}
	if c.OnSampleFailure.Policy == "" {
		c.OnSampleFailure.Policy = PolicyNone
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultComponentTimeout
	}
	if c.Backoff == 0 {
		c.Backoff = DefaultBackoff
	}
	for i := range c.Components {
		if c.Components[i].Timeout == 0 {
			c.Components[i].Timeout = c.Timeout
		}
	}
	return c
}

// Validate reports everything that is wrong with the profile.
func (c ManagerConfig) Validate() error {
	var errs faults
	if len(c.Components) == 0 {
		errs.add("a reward needs at least one component")
	}
	if c.Single && len(c.Components) != 1 {
		errs.add("a single reward function has one component, not %d", len(c.Components))
	}
	if !slices.Contains(Aggregations(), c.Aggregation) {
		errs.add("aggregation %q: want one of %v", c.Aggregation, Aggregations())
	}
	if c.RouteBy != "" && c.RouteBy != routeByDataSource && (!strings.HasPrefix(c.RouteBy, routeByExtra) || len(c.RouteBy) == len(routeByExtra)) {
		errs.add("components are chosen by %s or extra_info.<name>, got %q", routeByDataSource, c.RouteBy)
	}
	if c.Timeout < 0 || c.Backoff < 0 || c.Concurrency < 0 {
		errs.add("timeout, backoff and concurrency cannot be negative")
	}
	if err := checkPolicy(c.OnSampleFailure.Policy, c.OnSampleFailure.Value, PolicyNone, PolicyZero, PolicyGroupMean); err != nil {
		errs.add("on_sample_failure: %w", err)
	}
	seen, weights := map[string]bool{}, 0.0
	for _, t := range c.Components {
		switch {
		case t.Key == "" || strings.ContainsAny(t.Key, "/ \t\n"):
			errs.add("component key %q: want a name without slashes or spaces", t.Key)
		case !c.Single && componentColumn(t.Key) == combinedColumn:
			errs.add("component key %q: the column %s holds the sum; give the component another name", t.Key, combinedColumn)
		case seen[t.Key]:
			errs.add("component key %q is used twice", t.Key)
		}
		seen[t.Key] = true
		if err := c.Aggregation.Stepless(); err != nil && t.Steps {
			errs.add("component %q returns step scores: %w", t.Key, err)
		}
		t.validate(&errs)
		c.validateDependence(t, &errs)
		weights += t.Weight
	}
	if len(c.Components) > 0 && weights <= 0 && c.Aggregation.weighted() {
		errs.add("the weights sum to %v; %s needs a positive sum", weights, c.Aggregation)
	}
	return errors.Join(errs...)
}

// faults is what is wrong with a profile.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// validate reports what is wrong with the component by itself, but for its key.
func (t *Component) validate(errs *faults) {
	switch {
	case t.Scorer == nil && t.Group == nil:
		errs.add("component %q has no scorer", t.Key)
	case t.Scorer != nil && t.Group != nil:
		errs.add("component %q has a scorer for samples and one for groups; keep one", t.Key)
	case t.Group == nil && t.MinMembers != 0, t.MinMembers < WholeGroup:
		errs.add("component %q: min_members of %d", t.Key, t.MinMembers)
	}
	if !finite(t.Weight) {
		errs.add("component %q: weight %v is not finite", t.Key, t.Weight)
	}
	if c := t.Clip; c != nil && !(finite(c[0]) && finite(c[1]) && c[0] <= c[1]) || !finite(t.Scale) {
		errs.add("component %q: want two finite numbers for clip, the smaller first, and a finite number for scale", t.Key)
	}
	if t.Timeout < 0 || t.Timeout > MaxComponentTimeout || t.Retries < 0 || t.Concurrency < 0 {
		errs.add("component %q: timeout, retries and concurrency cannot be negative, nor the timeout over %v", t.Key, MaxComponentTimeout)
	}
	if err := checkPolicy(t.OnFailure.Policy, t.OnFailure.Value, PolicyFail, PolicyZero, PolicyGroupMean); err != nil {
		errs.add("component %q: on_failure: %w", t.Key, err)
	}
}

// validateDependence reports which components a component looks at and there are not.
func (c ManagerConfig) validateDependence(t Component, errs *faults) {
	d, ok := t.Group.(Dependent)
	if !ok {
		return
	}
	for _, key := range d.DependsOn() {
		if !slices.ContainsFunc(c.Components, func(o Component) bool { return o.Key == key && o.Scorer != nil }) {
			errs.add("component %q uses the value of the component %q, but no component of that name scores single samples", t.Key, key)
		}
	}
}

// implementation is the component's scorer, of either kind.
func (t *Component) implementation() any {
	if t.Group != nil {
		return t.Group
	}
	return t.Scorer
}

// Manager turns samples into results according to one profile. It is safe for concurrent use.
type Manager struct {
	cfg    ManagerConfig
	fields []*componentFields // by component
}

// NewManager checks the profile and the fields that its scorers declare, and returns a Manager.
func NewManager(cfg ManagerConfig) (*Manager, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	for i := range cfg.Components {
		cfg.Components[i].redact = cfg.Redact
	}
	m := &Manager{cfg: cfg}
	var errs []error
	for _, t := range cfg.Components {
		f, err := newComponentFields(t, cfg.Single)
		m.fields, errs = append(m.fields, f), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return m, nil
}

// With returns a manager of the same components with other weights, timeouts, retries or
// concurrency. adjust sets them in a copy of the profile and must not change anything else. Both
// managers share their scorers, so only one of them must be closed. Samples that are being scored
// continue with the old values.
func (m *Manager) With(adjust func(*ManagerConfig)) (*Manager, error) {
	cfg := m.cfg
	cfg.Components = slices.Clone(cfg.Components)
	adjust(&cfg)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Manager{cfg: cfg, fields: m.fields}, nil
}

// Components returns the keys of the components, in order.
func (m *Manager) Components() []string {
	keys := make([]string, len(m.cfg.Components))
	for i, t := range m.cfg.Components {
		keys[i] = t.Key
	}
	return keys
}

// Warm prepares every scorer that is a Warmer. The error contains all scorers that failed.
func (m *Manager) Warm(ctx context.Context) error {
	var errs []error
	for _, t := range m.cfg.Components {
		if w, ok := t.implementation().(Warmer); ok {
			if err := w.Warm(ctx); err != nil {
				errs = append(errs, fmt.Errorf("component %q: %w", t.Key, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Close closes every scorer that is a Closer.
func (m *Manager) Close() error {
	var errs []error
	for _, t := range m.cfg.Components {
		if c, ok := t.implementation().(Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
