package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/rewardloop/rewardloop/rewards"
)

// standing scores members by where another component's value of each stands among those of
// the group. It is read-only.
type standing struct {
	of    string
	among func(values []float64) []float64
}

var _ rewards.GroupScorer = (*standing)(nil)

// ScoreGroup gives each member with a value its standing. The others fail as NoScore, and
// do not count.
func (s *standing) ScoreGroup(_ context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
	scores := make([]rewards.MemberScore, len(g.Members))
	var at []int
	var values []float64
	for i, m := range g.Members {
		v, ok := m.Values[s.of]
		if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
			scores[i].Err = rewards.Blamed(rewards.BlameNobody, fmt.Errorf("%w: sample %q has no value of %s", rewards.NoScore, m.Sample.ID, s.of))
			continue
		}
		at, values = append(at, i), append(values, v)
	}
	if len(values) == 1 {
		scores[at[0]].Err = rewards.Blamed(rewards.BlameNobody, fmt.Errorf("%w: of the %d members of group %q only sample %q has a value of %s: a comparison needs two",
			rewards.NoScore, len(g.Members), g.UID, g.Members[at[0]].Sample.ID, s.of))
		return scores, nil
	}
	for i, v := range s.among(values) {
		scores[at[i]].Score = rewards.Score{Value: v, Details: map[string]any{"of": s.of, "value": values[i], "members": len(values)}}
	}
	return scores, nil
}

// of is the option that all of them have.
type of struct {
	// Of is the key of another component of the profile.
	Of string `json:"of"`
}

func (o of) validate() error {
	if o.Of == "" {
		return errors.New("of: is empty, want the key of another component")
	}
	return nil
}

// spread is the option of those that divide by it.
type spread struct {
	// MinSpread is the difference of the highest and the lowest value below which all
	// count as equal. 1e-6.
	MinSpread float64 `json:"min_spread"`
}

func (s spread) validate() error {
	if !(s.MinSpread >= 0 && s.MinSpread <= math.MaxFloat64) {
		return fmt.Errorf("min_spread: %v, want 0 or more", s.MinSpread)
	}
	return nil
}

type rankOptions struct {
	of
	// Scale is "unit", rank/(n−1), or "flow_factory", rank/n.
	Scale string `json:"scale"`
}

// The scales of rank.
const (
	scaleUnit        = "unit"
	scaleFlowFactory = "flow_factory"
)

type zscoreOptions struct {
	of
	spread
	// DDOF is what is taken from n below the sum of squares: 0 or 1.
	DDOF int `json:"ddof"`
}

type minmaxOptions struct {
	of
	spread
}

func standingSpecs() []rewards.Spec {
	key := rewards.Option{Name: "of", Type: "string", Default: "none, it is required", Doc: "key of the component whose values are used; the component must score single samples"}
	flatness := rewards.Option{Name: "min_spread", Type: "number", Default: "1e-6", Doc: "minimum difference between the highest and the lowest value of a group; below this difference all values are 0"}
	return []rewards.Spec{
		{
			Name:    "rank",
			Summary: "rank of another component's value in the prompt group: rank/(n−1), or Flow-Factory's rank/n",
			Options: []rewards.Option{key, {Name: "scale", Type: "string", Default: scaleUnit, Doc: "formula: unit, rank/(n−1); or flow_factory, rank/n"}},
			BuildGroup: func(raw json.RawMessage) (rewards.GroupScorer, error) {
				o := rankOptions{Scale: scaleUnit}
				if err := rewards.DecodeOptions(raw, &o); err != nil {
					return nil, err // it names the option
				}
				s := &standing{o.Of, rankUnit}
				if o.Scale == scaleFlowFactory {
					s.among = rankFlowFactory
				}
				return finished(s, o.validate(), oneOf("scale", o.Scale, scaleUnit, scaleFlowFactory))
			},
		},
		{
			Name:    "zscore",
			Summary: "another component's value minus the mean of the prompt group, divided by the group's standard deviation",
			Options: []rewards.Option{key, flatness, {Name: "ddof", Type: "int", Default: "0", Doc: "degrees of freedom that the standard deviation subtracts from n: 0 (NumPy's default) or 1 (PyTorch's)"}},
			BuildGroup: func(raw json.RawMessage) (rewards.GroupScorer, error) {
				o := zscoreOptions{spread: spread{flat}}
				if err := rewards.DecodeOptions(raw, &o); err != nil {
					return nil, err // it names the option
				}
				s := &standing{o.Of, func(v []float64) []float64 { return zScore(v, o.DDOF, o.MinSpread) }}
				return finished(s, o.of.validate(), o.spread.validate(), within("ddof", o.DDOF, 0, 1))
			},
		},
		{
			Name:    "minmax",
			Summary: "another component's value, scaled so that the lowest of the prompt group is −1 and the highest 1 (RM-Gallery)",
			Options: []rewards.Option{key, flatness},
			BuildGroup: func(raw json.RawMessage) (rewards.GroupScorer, error) {
				o := minmaxOptions{spread: spread{flat}}
				if err := rewards.DecodeOptions(raw, &o); err != nil {
					return nil, err // it names the option
				}
				s := &standing{o.Of, func(v []float64) []float64 { return minMax(v, o.MinSpread) }}
				return finished(s, o.of.validate(), o.spread.validate())
			},
		},
	}
}

// finished is a scorer whose options were right.
func finished(s *standing, errs ...error) (rewards.GroupScorer, error) {
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// ExtraFields declares that there are none.
func (s *standing) ExtraFields() []rewards.Field { return nil }

// DependsOn names the component whose values are compared.
func (s *standing) DependsOn() []string { return []string{s.of} }
