package compat

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
func readMetadata(v pickle.Value, plans []Plan, info *infoBudget) *Fault {
	if v == nil {
		return nil
	}
	if items, ok := pickle.Items(v); ok {
		return readMetadataList(items, plans, info)
	}
	truth, fields, f := splitTruth(v)
	if f != nil {
		return f
	}
	each, perSample := truth.([]any)
	perSample = perSample && len(each) == len(plans)
	var shared json.RawMessage
	if truth != nil && !perSample {
		if shared, f = info.json(truthKey, truth); f != nil {
			return f
		}
	}
	extra, f := info.json("metadata", fields)
	if f != nil {
		return f
	}
	for i := range plans {
		s := plans[i].Sample
		s.ExtraInfo, s.GroundTruth = extra, shared
		if perSample && each[i] != nil {
			if s.GroundTruth, f = info.json(truthKey, each[i]); f != nil {
				return f
			}
		}
	}
	return nil
}

func readMetadataList(items []pickle.Value, plans []Plan, info *infoBudget) *Fault {
	if len(items) == 0 {
		return nil
	}
	if len(items) != len(plans) {
		return Faultf(rewards.Malformed, "metadata has %d entries for %d images", len(items), len(plans))
	}
	for i, item := range items {
		if item == nil {
			continue
		}
		truth, fields, f := splitTruth(item)
		if f != nil {
			return f
		}
		s := plans[i].Sample
		if truth != nil {
			if s.GroundTruth, f = info.json(truthKey, truth); f != nil {
				return f
			}
		}
		if s.ExtraInfo, f = info.json("metadata", fields); f != nil {
			return f
		}
	}
	return nil
}

// splitTruth takes ground_truth out of a metadata dict.
func splitTruth(v pickle.Value) (truth any, fields map[string]any, f *Fault) {
	fields, f = plainDict(v, "metadata")
	if f != nil {
		return nil, nil, f
	}
	truth = fields[truthKey]
	delete(fields, truthKey)
	return truth, fields, nil
}

// plainDict turns a dict into what JSON can hold.
func plainDict(v pickle.Value, name string) (map[string]any, *Fault) {
	plain, err := pickle.Plain(v)
	if err != nil {
		return nil, Faultf(rewards.Malformed, "%s: %v", name, err)
	}
	fields, ok := plain.(map[string]any)
	if !ok {
		return nil, Faultf(rewards.Malformed, "%s is or contains a %s, want a dict", name, pickle.TypeName(v))
	}
	return fields, nil
}

// infoBudget bounds what a batch's metadata becomes as JSON: values that a pickle
// shares are written out once for each sample.
type infoBudget struct{ left int64 }

// json encodes v; nil for an empty dict. NaN and infinities are refused: JSON has
// none, and absence is not zero.
func (b *infoBudget) json(name string, v any) (json.RawMessage, *Fault) {
	if fields, ok := v.(map[string]any); ok && len(fields) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, Faultf(rewards.Malformed, "%s: %v", name, err)
	}
	if b.left -= int64(len(text)); b.left < 0 || len(text) > wire.MaxHeaderBytes {
		return nil, Faultf(rewards.TooLarge, "%s of %d bytes as JSON; the limit is %d for a sample and pickle_bytes for a batch", name, len(text), wire.MaxHeaderBytes)
	}
	return text, nil
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
	// maxTags bounds the lists of an answer, one as long as the batch for each tag.
	maxTags = 64
)

// readGenEval hands each sample its entry of meta_datas, as extra_info, together
// with only_strict; an entry's prompt stands in for a missing one.
func readGenEval(in pickleInput, plans []Plan, p *Reward, all []Reward, info *infoBudget) (*geneval, *Fault) {
	if p.keyOfField(strictField) == "" {
		return nil, Faultf(rewards.UnknownReward,
			"meta_datas asks for GenEval, but reward %q does not report %s; POST to /scorers/{name} of one that does: here are %q", p.Name, strictField, reporting(all, strictField))
	}
	metas, err := pickle.Dicts(in.metaDatas)
	if err != nil {
		return nil, Faultf(rewards.Malformed, "meta_datas: %v", err)
	}
	if len(metas) != len(plans) {
		return nil, Faultf(rewards.Malformed, "meta_datas has %d entries for %d images", len(metas), len(plans))
	}
	strict, ok := in.onlyStrict.(bool)
	if !ok && in.onlyStrict != nil {
		return nil, Faultf(rewards.Malformed, "only_strict is a %s, want a bool", pickle.TypeName(in.onlyStrict))
	}
	g := &geneval{}
	for i, m := range metas {
		fields, f := plainDict(m, "meta_datas")
		if f != nil {
			return nil, f
		}
		tag, ok := fields["tag"].(string)
		if !ok {
			return nil, Faultf(rewards.Malformed, "meta_datas[%d] has no tag", i)
		}
		g.tags = append(g.tags, tag)
		fields["only_strict"] = strict
		if prompt, ok := fields["prompt"].(string); ok && plans[i].Sample.Prompt == "" {
			plans[i].Sample.Prompt = prompt
		}
		if plans[i].Sample.ExtraInfo, f = info.json("meta_datas", fields); f != nil {
			return nil, f
		}
	}
	if n := len(g.allTags()); n > maxTags {
		return nil, Faultf(rewards.Malformed, "meta_datas has %d different tags; the limit is %d", n, maxTags)
	}
	return g, nil
}

// complete adds GenEval's further four keys: rewards are the scores, strict_rewards
// what the profile reports, and both once more by tag.
func (g *geneval) complete(out *pickle.Dict, results []*wire.Result, scores []float64, p *Reward) *Fault {
	key := p.keyOfField(strictField)
	strict := make([]float64, len(results))
	for i, r := range results {
		v, ok := number(r.ExtraInfo[key])
		if !ok {
			f := Faultf(rewards.NoScore, "sample %d: reward %q did not report %s", i, p.Name, key)
			f.Failed = []int{i}
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
	d := &pickle.Dict{}
	for _, tag := range g.allTags() {
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

// allTags are the six and whatever else the request names.
func (g *geneval) allTags() []string {
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
	return tags
}
