package remote

import (
	"slices"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
)

// genEvalLists are the lists of which one may be the value: scores is the soft
// score that flow_grpo trains on, the others are 0 or 1.
func genEvalLists() []string { return []string{"scores", "rewards", "strict_rewards"} }

// genEvalTags are the groups of GenEval's prompts.
func genEvalTags() []string {
	return []string{"single_object", "two_object", "counting", "colors", "position", "color_attr"}
}

// notInGroup is what reward-server writes for a sample in the groups that are not
// its own.
const notInGroup = -10

// genEvalFields are flow_grpo's names: accuracy, strict_accuracy, and of the
// sample's own group <tag>_accuracy and <tag>_strict_accuracy.
func genEvalFields() []rewards.Field {
	fields := []rewards.Field{{Name: "accuracy", Kind: rewards.Number}, {Name: "strict_accuracy", Kind: rewards.Number}}
	for _, tag := range genEvalTags() {
		fields = append(fields,
			rewards.Field{Name: tag + "_accuracy", Kind: rewards.Number},
			rewards.Field{Name: tag + "_strict_accuracy", Kind: rewards.Number})
	}
	return fields
}

// readGenEval fills in the columns. With only_strict the server forces what is not
// strict to 0, which is then absent here.
func (p *pickled) readGenEval(d *pickle.Dict, out []verdict) error {
	lists := []struct{ key, column string }{{"strict_rewards", "strict_accuracy"}, {"rewards", "accuracy"}}
	groups := []struct{ key, suffix string }{{"group_strict_rewards", "_strict_accuracy"}, {"group_rewards", "_accuracy"}}
	if p.strict {
		lists, groups = lists[:1], groups[:1]
	}
	for _, l := range lists {
		values, err := listOf(d, l.key, len(out))
		if err != nil {
			return err
		}
		fill(out, l.column, rewards.Number, values)
	}
	for _, g := range groups {
		v, _ := d.Get(g.key)
		tags, ok := v.(*pickle.Dict)
		if !ok {
			continue
		}
		for _, tag := range genEvalTags() {
			if _, there := tags.Get(tag); !there {
				continue
			}
			values, err := listOf(tags, tag, len(out))
			if err != nil {
				return err
			}
			values = slices.Clone(values)
			for i, v := range values {
				if f, err := number(v); err == nil && f == notInGroup {
					values[i] = nil
				}
			}
			fill(out, tag+g.suffix, rewards.Number, values)
		}
	}
	return nil
}
