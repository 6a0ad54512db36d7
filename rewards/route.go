package rewards

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// What RouteBy may be.
const (
	routeByDataSource = "data_source"
	routeByExtra      = "extra_info."
)

// Preparer processes a sample before it is scored, for example with the verify tools. Prepare
// returns the sample for the scorers: the same sample, or a shallow copy with more in its
// ExtraInfo. An error, which wraps a Class, fails the sample. Prepare must return soon after ctx
// ends and must be safe for concurrent use.
type Preparer interface {
	Prepare(ctx context.Context, s *Sample) (*Sample, error)
}

// PreparerFunc adapts a function to Preparer.
type PreparerFunc func(ctx context.Context, s *Sample) (*Sample, error)

// Prepare calls f.
func (f PreparerFunc) Prepare(ctx context.Context, s *Sample) (*Sample, error) { return f(ctx, s) }

// named is the sample with the uid of its prompt where the profile groups by it.
func (m *Manager) named(s *Sample) *Sample {
	if !m.cfg.GroupByPrompt || s.UID != "" || s.GroupSize < 2 {
		return s
	}
	own := *s
	own.UID = PromptUID(s.Prompt)
	return &own
}

// prepare asks the profile's Preparer; a panic in it is a failure.
func (m *Manager) prepare(ctx context.Context, s *Sample) (out *Sample, err error) {
	if m.cfg.Prepare == nil {
		return s, nil
	}
	err = Guard(func() (err error) {
		out, err = m.cfg.Prepare.Prepare(ctx, s)
		return err
	})
	return out, err
}

// unprepared is the result of a sample whose preparation failed.
func (m *Manager) unprepared(err error) Result {
	components := make([]ComponentResult, len(m.cfg.Components))
	for i, t := range m.cfg.Components {
		components[i] = ComponentResult{Key: t.Key, Status: StatusSkipped, Reason: "the sample failed before it was scored"}
	}
	r := m.describe(components)
	r.Outcome = Failed
	blame, permanent := BlameOf(err)
	r.Errors = []ComponentError{{Class: ClassOf(err), Message: tell(m.cfg.Redact, MessageOf(err)), Blame: blame, Permanent: permanent, Attempts: 1}}
	return r
}

// route is the value that chooses among components; "" where the sample has none.
func (m *Manager) route(s *Sample) string {
	if m.cfg.RouteBy == routeByDataSource {
		return s.DataSource
	}
	var extra map[string]json.RawMessage
	var value string
	if json.Unmarshal(s.ExtraInfo, &extra) != nil || json.Unmarshal(extra[strings.TrimPrefix(m.cfg.RouteBy, routeByExtra)], &value) != nil {
		return ""
	}
	return value
}

// routed reports whether any component is only for some samples.
func (m *Manager) routed() bool {
	return slices.ContainsFunc(m.cfg.Components, func(t Component) bool { return len(t.When) > 0 })
}

// elsewhere is what a component says of a sample that it is not for; ok is false for others.
func (m *Manager) elsewhere(t *Component, value string) (r ComponentResult, ok bool) {
	if len(t.When) == 0 || slices.Contains(t.When, value) {
		return r, false
	}
	return ComponentResult{Key: t.Key, Status: StatusSkipped, Reason: fmt.Sprintf("it is not for %s %q", m.cfg.RouteBy, clip(value, 100))}, true
}

// nobody says that no component is for a sample, and for which samples there are some.
func (m *Manager) nobody(s *Sample) string {
	var known []string
	for _, t := range m.cfg.Components {
		known = append(known, t.When...)
	}
	slices.Sort(known)
	return fmt.Sprintf("no component is for %s %q; there are components for %q: add the value to the when of a component", m.cfg.RouteBy, clip(m.route(s), 100), slices.Compact(known))
}
