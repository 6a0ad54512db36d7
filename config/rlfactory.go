package config

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// rlFactory is the section in which RL-Factory's trainers have the model that judges.
const rlFactory = "reward_rollout"

// rlFactoryQuestion is what the judge is asked about each step of a response where the file names no reward of its own.
// RL-Factory has its questions in the Python of its environments (get_prompt_for_reward).
const rlFactoryQuestion = "You rate one step of an assistant that uses tools.\n\nTask:\n{prompt}\n\nReference answer:\n{ground_truth}\n\nStep:\n{response}\n\n" +
	"How much does the step help to reach the reference answer? Write a number from 0 (not at all) to 1 (it is right), such as <score>0.5</score>, and nothing else."

// rewardRollout reads RL-Factory's reward_rollout as what it means in verl's words: a reward_model whose engine is started, and
// where the file names no reward a judge that rates every step of a response. It returns the section reward with both.
func (r *reader) rewardRollout(v, reward value) value {
	o := r.mapping(v)
	on := false
	if use, ok := o.take("if_use_reward_rollout"); ok && !use.null() {
		on, _ = r.boolean(use)
	}
	rollout, _ := o.take("rollout")
	o.refuseRest([]string{"if_use_reward_rollout", "rollout"})
	if !on {
		r.note(v, "has no effect: if_use_reward_rollout is not True")
		return reward
	}
	into := r.mapping(reward)
	if _, twice := into.peek("reward_model"); twice {
		r.fault(v, "and reward.reward_model are both given; keep one")
		return reward
	}
	text := func(s string) *yaml.Node { return r.made(v, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}) }
	mapping := func(pairs ...*yaml.Node) *yaml.Node {
		return r.made(v, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: pairs})
	}
	engine := mapping(text("name"), text("vllm"))
	model := mapping(text("enable"), r.made(v, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}))
	for _, e := range r.mapping(rollout).rest() {
		switch e.name {
		case "model_name":
			model.Content = append(model.Content, text("model_path"), e.node)
		case "name":
			engine.Content[1] = e.node
		default:
			engine.Content = append(engine.Content, e.key, e.node)
		}
	}
	model.Content = append(model.Content, text("rollout"), engine)
	own := mapping()
	if reward.node != nil && reward.node.Kind == yaml.MappingNode {
		own.Content = slices.Clone(reward.node.Content)
	}
	own.Content = append(own.Content, text("reward_model"), model)
	if !slices.ContainsFunc(into.entries, func(e entry) bool { return e.name == "custom_reward_function" || e.name == "reward_functions" }) {
		steps := r.made(v, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{text("<|im_end|>")}})
		judge := mapping(text("template"), text(rlFactoryQuestion), text("steps"), steps, text("min"), text("0"), text("max"), text("1"))
		judge.Content[5].Tag, judge.Content[7].Tag = "!!int", "!!int"
		own.Content = append(own.Content, text("custom_reward_function"), mapping(text("path"), text("builtin://judge"), text("reward_kwargs"), judge))
		r.note(v, "builtin://judge rates every step of a response from 0 to 1 with a question of its own: RL-Factory's are in the Python of its environments. "+
			"Write yours as reward.custom_reward_function.reward_kwargs.template, beside path: builtin://judge and steps: [\"<|im_end|>\"]")
	}
	return value{own, "reward"}
}

// made places a node that is in no file where v is.
func (r *reader) made(v value, n *yaml.Node) *yaml.Node {
	r.origin[n] = r.place(v.node)
	return n
}
