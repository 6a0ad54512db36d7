package server

import (
	"encoding/json"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// truthKey is the entry of metadata that becomes the sample's ground_truth.
const truthKey = "ground_truth"

// readMetadata hands metadata on: a dict to all samples, a list of dicts to one
// each. Its ground_truth becomes the samples'; in a dict for all, a list as long as
// the batch gives one to each. The rest is extra_info.
func readMetadata(v pickle.Value, plans []plan) *fault {
	if v == nil {
		return nil
	}
	if items, ok := pickle.Items(v); ok {
		if len(items) == 0 {
			return nil
		}
		if len(items) != len(plans) {
			return faultf(rewards.Malformed, "metadata has %d entries for %d images", len(items), len(plans))
		}
		for i, item := range items {
			if item == nil {
				continue
			}
			fields, f := plainDict(item, "metadata")
			if f != nil {
				return f
			}
			truth := fields[truthKey]
			delete(fields, truthKey)
			if f := setInfo(plans[i].sample, truth, fields); f != nil {
				return f
			}
		}
		return nil
	}
	fields, f := plainDict(v, "metadata")
	if f != nil {
		return f
	}
	truth := fields[truthKey]
	delete(fields, truthKey)
	each, perSample := truth.([]any)
	perSample = perSample && len(each) == len(plans)
	for i := range plans {
		t := truth
		if perSample {
			t = each[i]
		}
		if f := setInfo(plans[i].sample, t, fields); f != nil {
			return f
		}
	}
	return nil
}

// plainDict turns a dict into what JSON can hold.
func plainDict(v pickle.Value, name string) (map[string]any, *fault) {
	plain, err := pickle.Plain(v)
	if err != nil {
		return nil, faultf(rewards.Malformed, "%s: %v", name, err)
	}
	fields, ok := plain.(map[string]any)
	if !ok {
		return nil, faultf(rewards.Malformed, "%s is or holds a %s where a dict is needed", name, pickle.TypeName(v))
	}
	return fields, nil
}

// setInfo writes ground truth and extra info of a sample. NaN and infinities are
// refused: JSON has none, and absence is not zero.
func setInfo(s *rewards.Sample, truth any, fields map[string]any) *fault {
	if truth != nil {
		b, err := json.Marshal(truth)
		if err != nil {
			return faultf(rewards.Malformed, "ground_truth: %v", err)
		}
		s.GroundTruth = b
	}
	if len(fields) > 0 {
		b, err := json.Marshal(fields)
		if err != nil {
			return faultf(rewards.Malformed, "metadata: %v", err)
		}
		s.ExtraInfo = b
	}
	return nil
}

// geneval is what a GenEval request needs beside its samples: reward-server's
// answer has the scores five times over, twice of them by tag.
type geneval struct {
	tags []string // of each sample
}

// genevalTags are the six tasks of GenEval, in the benchmark's order. Every one is
// among the groups of an answer.
func genevalTags() []string {
	return []string{"single_object", "two_object", "counting", "colors", "position", "color_attr"}
}

const (
	// strictField is the number a profile must report to answer GenEval requests: 1
	// if everything the prompt names is in the picture, exactly as often, else 0.
	strictField = "strict_reward"
	// otherTag fills the lists of the tags that a sample does not have.
	otherTag = -10.0
)

// readGenEval hands each sample its entry of meta_datas, as extra_info, together
// with only_strict; an entry's prompt stands in for a missing one.
func readGenEval(in pickleInput, plans []plan, p *Profile, all []Profile) (*geneval, *fault) {
	if strictKey(p) == "" {
		able := make([]string, 0, 1)
		for i := range all {
			if strictKey(&all[i]) != "" {
				able = append(able, all[i].Name)
			}
		}
		return nil, faultf(rewards.UnknownReward,
			"meta_datas asks for GenEval, but reward %q does not report %s; POST to /scorers/{name} of one that does: here are %q", p.Name, strictField, able)
	}
	metas, err := pickle.Dicts(in.metaDatas)
	if err != nil {
		return nil, faultf(rewards.Malformed, "meta_datas: %v", err)
	}
	if len(metas) != len(plans) {
		return nil, faultf(rewards.Malformed, "meta_datas has %d entries for %d images", len(metas), len(plans))
	}
	strict, ok := in.onlyStrict.(bool)
	if !ok && in.onlyStrict != nil {
		return nil, faultf(rewards.Malformed, "only_strict is a %s, want a bool", pickle.TypeName(in.onlyStrict))
	}
	g := &geneval{}
	for i, m := range metas {
		fields, f := plainDict(m, "meta_datas")
		if f != nil {
			return nil, f
		}
		tag, ok := fields["tag"].(string)
		if !ok {
			return nil, faultf(rewards.Malformed, "meta_datas[%d] has no tag", i)
		}
		g.tags = append(g.tags, tag)
		fields["only_strict"] = strict
		if prompt, ok := fields["prompt"].(string); ok && plans[i].sample.Prompt == "" {
			plans[i].sample.Prompt = prompt
		}
		if f := setInfo(plans[i].sample, nil, fields); f != nil {
			return nil, f
		}
	}
	return g, nil
}

// strictKey is the name under which a profile reports strict_reward: by itself, or
// reward/<key>/strict_reward.
func strictKey(p *Profile) string {
	for _, k := range p.Extra {
		if fieldOf(k.Name) == strictField {
			return k.Name
		}
	}
	return ""
}

// fieldOf is the last part of an extra key.
func fieldOf(key string) string {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] == '/' {
			return key[i+1:]
		}
	}
	return key
}

// complete adds GenEval's further four keys: rewards are the scores, strict_rewards
// what the profile reports, and both once more by tag.
func (g *geneval) complete(out *pickle.Dict, results []*wire.Result, scores []float64, p *Profile) *fault {
	key := strictKey(p)
	strict := make([]float64, len(results))
	for i, r := range results {
		v, ok := r.ExtraInfo[key].(float64)
		if !ok {
			f := faultf(rewards.NoScore, "sample %d: reward %q did not report %s", i, p.Name, key)
			f.failed = []int{i}
			return f
		}
		strict[i] = v
	}
	add := func(key string, v pickle.Value) { out.Items = append(out.Items, pickle.Pair{Key: key, Value: v}) }
	add("rewards", scores)
	add("strict_rewards", strict)
	add("group_rewards", g.byTag(scores))
	add("group_strict_rewards", g.byTag(strict))
	return nil
}

// byTag spreads values over one list for each tag, as long as the batch.
func (g *geneval) byTag(values []float64) *pickle.Dict {
	tags := genevalTags()
	known := map[string]bool{}
	for _, t := range tags {
		known[t] = true
	}
	for _, t := range g.tags {
		if !known[t] {
			known[t] = true
			tags = append(tags, t)
		}
	}
	d := &pickle.Dict{}
	for _, tag := range tags {
		list := make([]float64, len(values))
		for i, v := range values {
			list[i] = otherTag
			if g.tags[i] == tag {
				list[i] = v
			}
		}
		d.Items = append(d.Items, pickle.Pair{Key: tag, Value: list})
	}
	return d
}

