package rewards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Component is one scorer's part in a reward.
type Component struct {
	// Key names the component in reward_extra_info: reward/<key>.
	Key string
	// Weight multiplies the value in a weighted aggregation.
	Weight float64
	// Required makes the component's final failure the sample's failure.
	Required bool
	// Scorer looks at one sample, Group at a whole prompt group; a component has one of them.
	Scorer Scorer
	Group  GroupScorer
	// MinMembers is how many members a Group needs: fewer, because others never came
	// or failed, fail the component. Defaults to 2; WholeGroup wants every one; with 1 a
	// sample without a group is one of its own.
	MinMembers int
	// OnFailure says what stands in for the value of a component that is not required.
	// The zero value means group_mean for a sample that has a group, else fail.
	OnFailure ComponentPolicy
	// Timeout bounds the component, retries included; at most MaxComponentTimeout. Defaults to
	// ManagerConfig.Timeout.
	Timeout time.Duration
	// Retries is how many more times the scorer is called when the failure is the reward's,
	// or that of a service it asks and not permanent. Defaults to 0: one call.
	Retries int
	// Concurrency is how many calls of the scorer this process is taken to execute at a
	// time; 0: what the scorer says (Concurrent).
	Concurrency int
	// InvalidValues are other systems' ways of saying "failed" (-999, -1).
	InvalidValues []float64
	// When lists the values of ManagerConfig.RouteBy of the samples that the component is
	// for; it is skipped for others. Empty: it is for all.
	When []string
	// Clip bounds what the scorer says, Scale multiplies it then; nil and 0: as it is.
	// A component that has either reports what the scorer said as reward/<key>/raw.
	Clip  *[2]float64
	Scale float64
	// Steps says that the component gives step scores. Min, Max and Product, which have no
	// part for each step, are refused beside it; beside them the whole reward of a component
	// that gives some undeclared is on the last step.
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

// WholeGroup is the MinMembers of a component that compares nothing but whole groups.
const WholeGroup = -1

// ManagerConfig is a reward profile.
type ManagerConfig struct {
	// Components are the scorers; at least one, keys unique.
	Components []Component
	// Single reports the one component as verl's custom_reward_function does: a bare
	// number as acc, other scorers under their own field names. Otherwise the keys
	// are reward/<key>, reward/<key>/<field> and reward/combined.
	Single bool
	// Aggregation defaults to weighted_sum.
	Aggregation Aggregation
	// RouteBy names the field whose value chooses among components by their When: data_source
	// (the default), or extra_info.<name> for a string in there.
	RouteBy string
	// GroupByPrompt makes one group of the samples of a step that have the same prompt, a
	// group_size and no uid. The gateway must be told the same (loop.Config).
	GroupByPrompt bool
	// Gate is something that every sample waits for besides what its components ask, such as that a
	// trainer has given its memory back; nil: there is nothing.
	Gate Reliant
	// Begun is told of each sample that a pass begins with; it returns what is told when nothing of the pass
	// runs any more. It must return soon. nil: nobody wants to know.
	Begun func(s *Sample) (ended func())
	// Prepare is asked before a sample is scored; nil: nobody is. Its failure is the
	// sample's.
	Prepare Preparer
	// OnSampleFailure is what stands beside a null score. Defaults to none.
	OnSampleFailure SamplePolicy
	// Concurrency is the profile's capacity in this process, in samples, and bounds how many
	// of them are under way; 0: the largest concurrency of its components.
	Concurrency int
	// Timeout bounds a component that names none. Defaults to 120 s.
	Timeout time.Duration
	// Backoff is the pause before the first retry; it doubles with each. Defaults to 250 ms.
	Backoff time.Duration
	// Redact takes secrets out of what scorers say of failures; nil: it is told as it is.
	Redact func(text string) string
}

// Defaults of ManagerConfig.
const (
	DefaultComponentTimeout = 120 * time.Second
	DefaultBackoff          = 250 * time.Millisecond
)

// MaxComponentTimeout is the longest a component may take: nobody waits for ever.
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

// Manager turns samples into results by one profile. It is safe for concurrent use.
type Manager struct {
	cfg    ManagerConfig
	fields []*componentFields // by component
}

// NewManager checks the profile and the fields its scorers declare.
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

// With returns a manager of the same components with other weights, times, retries or
// concurrency: adjust sets them in a copy of the profile, and must leave everything else as it
// is. The two share their scorers, so that one of them is closed; samples that run go on as
// they began.
func (m *Manager) With(adjust func(*ManagerConfig)) (*Manager, error) {
	cfg := m.cfg
	cfg.Components = slices.Clone(cfg.Components)
	adjust(&cfg)
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Manager{cfg: cfg, fields: m.fields}, nil
}

// Components returns the keys of the components in order.
func (m *Manager) Components() []string {
	keys := make([]string, len(m.cfg.Components))
	for i, t := range m.cfg.Components {
		keys[i] = t.Key
	}
	return keys
}

// Warm readies every scorer that needs it; it reports all that cannot be.
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

// Close closes every scorer that holds something.
func (m *Manager) Close() error {
	var errs []error
	for _, t := range m.cfg.Components {
		if c, ok := t.implementation().(Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
