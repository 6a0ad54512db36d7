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

// PostProcess returns what calls post_process_scores of the class, with the values
// that the component with the key of, which is this Scorer's, gave the members of a group.
// It comes before Warm and the first Score; from then on the class must have that
// method, and Warm fails where it has not. Without PostProcess a class that has it is
// refused, because nobody would call it.
//
// The class is called with one list of floats, a member's each, in the order of
// Group.Members: its value as the component has it, clipped and scaled, or NaN where it has
// none. It returns a list of the same length. None or NaN for a member is a failure of
// class NoScore, anything else that is no finite number one of class InvalidScore, and
// neither is the others'. A wrong length fails all, as do the errors of Score. It runs
// in one of the function's processes: with several, not all members were scored by the
// object that is called.
//
// The scorer holds nothing: Close of the Scorer ends it too.
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
