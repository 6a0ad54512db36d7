package python

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// postProcess is the post_process_scores of a user's class, which sees the scores of
// a finished group. It has no processes of its own: those of its Scorer work for it.
type postProcess struct {
	of string // key of the Scorer's component
	s  *Scorer
}

var (
	_ rewards.GroupScorer = (*postProcess)(nil)
	_ rewards.Dependent   = (*postProcess)(nil)
	_ rewards.Queuer      = (*postProcess)(nil)
)

// PostProcess returns a GroupScorer that calls post_process_scores of the class, with the values
// that the members of a group got from the component with the key of, whose scorer is s. It must be
// called before Warm and the first Score. Warm then fails if the class does not have that method.
// Without PostProcess, a class that has the method is refused, because the method would never be
// called.
//
// The class is called with one list of floats, one for each member in the order of Group.Members:
// the component's value, clipped and scaled, or NaN if the member has no value. The class returns a
// list of the same length. None or NaN for a member is a failure of class NoScore, and any other
// value that is not a finite number is a failure of class InvalidScore; neither affects other
// members. A wrong length fails all members, as do the errors of Score. The call runs in one of the
// function's processes; if there are several, other objects of the class may have scored some of
// the members.
//
// The GroupScorer holds no resources; it is unusable after Close of the Scorer.
func (s *Scorer) PostProcess(of string) (rewards.GroupScorer, error) {
	if err := s.pool.expectGroups(); err != nil {
		return nil, err
	}
	return &postProcess{of, s}, nil
}

// DependsOn returns the key of the component whose values are worked on.
func (p *postProcess) DependsOn() []string { return []string{p.of} }

// Queues implements rewards.Queuer, as Scorer does.
func (*postProcess) Queues() {}

// ScoreGroup calls post_process_scores once. What it printed is among the details of
// the first member that has a score.
func (p *postProcess) ScoreGroup(ctx context.Context, g *rewards.Group) ([]rewards.MemberScore, error) {
	scores, some := make([]*float64, len(g.Members)), false
	for i, m := range g.Members {
		if v, ok := m.Values[p.of]; ok {
			scores[i], some = &v, true
		}
	}
	if !some {
		return nil, fmt.Errorf("%w: none of the %d members of group %q has a value of %q", rewards.NoScore, len(scores), g.UID, p.of)
	}
	r, err := p.s.ask(ctx, call{Op: "group", Scores: scores})
	if err != nil {
		return nil, err
	}
	if r.Op != "result" || len(r.Scores) != len(scores) {
		return nil, fmt.Errorf("%w: %s: the process answered %q with %d scores for %d members",
			rewards.Internal, p.s.opts.label(), r.Op, len(r.Scores), len(scores))
	}
	out := make([]rewards.MemberScore, len(scores))
	for i, said := range r.Scores {
		out[i] = p.member(said)
		if r.Output != "" && out[i].Err == nil {
			out[i].Score.Details = map[string]any{"printed": r.Output}
			r.Output = ""
		}
	}
	return out, nil
}

// member reads what was said of one member.
func (p *postProcess) member(said any) rewards.MemberScore {
	switch said := said.(type) {
	case json.Number:
		if value, err := said.Float64(); err == nil {
			return rewards.MemberScore{Score: rewards.Score{Value: value}}
		}
	case nil:
		return rewards.MemberScore{Err: fmt.Errorf("%w: %s: post_process_scores returned no score for the member", rewards.NoScore, p.s.opts.label())}
	}
	return rewards.MemberScore{Err: fmt.Errorf("%w: %s: post_process_scores: %v", rewards.InvalidScore, p.s.opts.label(), said)}
}
