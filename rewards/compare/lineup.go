package compare

import (
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// lineUp is who takes part in the comparisons of a group.
type lineUp struct {
	// people are the members that can be shown, in the order of the group, and the
	// reference, if there is one, last.
	people []*participant
	// reference is its place in people, or −1.
	reference int
	// scores has one entry for each member of the group; those of members that cannot
	// be shown hold the reason.
	scores []rewards.MemberScore
}

// lineUp makes the members of a group participants, and in validation the reference.
func (s *showing) lineUp(ctx context.Context, g *rewards.Group, path string) (*lineUp, error) {
	members, faults, err := s.participants(ctx, g)
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", g.UID, err)
	}
	l := &lineUp{reference: -1, scores: make([]rewards.MemberScore, len(g.Members))}
	for i, p := range members {
		if l.scores[i].Err = faults[i]; p != nil {
			l.people = append(l.people, p)
		}
	}
	if path != "" && g.Split == rewards.Val && len(l.people) > 0 {
		p, err := referee(g, members, path)
		if err != nil {
			return nil, err
		}
		l.reference = len(l.people)
		l.people = append(l.people, p)
	}
	return l, nil
}

// alone is the end of a group of which fewer than two can be shown.
func (l *lineUp) alone() []rewards.MemberScore {
	for _, p := range l.people {
		l.scores[p.member].Err = rewards.Blamed(rewards.BlameNobody, fmt.Errorf("%w: sample %q has no other member to compare with", rewards.NoScore, p.id))
	}
	return l.scores
}

// referenceFields are the columns of a scorer that holds members against a reference;
// in training they are null.
func referenceFields(path string) []rewards.Field {
	if path == "" {
		return nil
	}
	return numbers("win", "win_and")
}

// againstReference are RM-Gallery's win (better than the reference) and win_and (at
// least as good), for the outcome of comparing a member with it; nothing if unknown.
func againstReference(o outcome) map[string]any {
	switch o {
	case aBetter:
		return map[string]any{"win": 1.0, "win_and": 1.0}
	case tie:
		return map[string]any{"win": 0.0, "win_and": 1.0}
	case bBetter:
		return map[string]any{"win": 0.0, "win_and": 0.0}
	}
	return nil
}

func numbers(names ...string) []rewards.Field {
	var fields []rewards.Field
	for _, name := range names {
		fields = append(fields, rewards.Field{Name: name, Kind: rewards.Number})
	}
	return fields
}

// maxTold bounds the comparisons that the details of a member hold.
const maxTold = 32

// comparison is what the details of a member hold of a comparison.
type comparison struct {
	// With is the other sample's id, or "reference".
	With string `json:"with"`
	// outcome is "win", "loss", "tie" or "unknown".
	Outcome string `json:"outcome"`
	// Same says that both showed the same, and nobody was asked.
	Same bool `json:"same,omitempty"`
	// Disagreed says that the two orders did, and it is a tie for that.
	Disagreed bool `json:"disagreed,omitempty"`
	// Answers are what the judge said, for each order.
	Answers []said `json:"answers,omitempty"`
}

// retell lists the comparisons of one participant.
func (l *lineUp) retell(who int, contests []contest) []comparison {
	words := map[outcome]string{aBetter: "win", bBetter: "loss", tie: "tie", Unknown: "unknown"}
	var told []comparison
	for _, c := range contests {
		other, o := c.b, c.outcome
		switch who {
		case c.a:
		case c.b:
			other, o = c.a, o.Flip()
		default:
			continue
		}
		if len(told) == maxTold {
			break
		}
		told = append(told, comparison{
			With: l.people[other].id, Outcome: words[o], Same: c.same, Disagreed: c.biased, Answers: c.answers,
		})
	}
	return told
}
