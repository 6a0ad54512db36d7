package compat

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// readPickle reads flow_grpo's protocol: the body of a POST is a pickled dict, the
// answer another. It serves the clients of flow_grpo, deepgen and verl-omni's
// http_scorer_client.
//
// Answers, all of them pickles:
//
//	200 {"scores": [float…], "outputs": [float…]}            the same list twice, in the order of the images
//	200 … and "rewards", "strict_rewards", "group_rewards", "group_strict_rewards" to a GenEval request
//	200 {"outputs": [[str]], "scores": [[float]], …} to LLaVA's questions (llava.go)
//	4xx, 503 {"error": str, "failed": [int…]}                "failed" holds the indices of samples without a score
//
// A sample without a score fails its batch, because a list of floats cannot say
// which one is missing, unless the reward names a fallback.
func readPickle(req *Request) (*Batch, *Fault) {
	reward, f := req.reward()
	if f != nil {
		return nil, f
	}
	b, f := readPickled(req, reward)
	if f != nil {
		return nil, f
	}
	return &Batch{Plans: b.plans, Whole: true, Answer: func(results []*wire.Result) (Reply, *Fault) {
		scores, f := allScores(results)
		if f != nil {
			return Reply{}, f
		}
		out := &pickle.Dict{Items: []pickle.Pair{{Key: "scores", Value: scores}, {Key: "outputs", Value: scores}}}
		switch {
		case b.geneval != nil:
			f = b.geneval.complete(out, results, scores, reward)
		case b.llava != nil:
			out, f = b.llava.answer(results, scores)
		}
		if f != nil {
			return Reply{}, f
		}
		data, err := pickle.Encode(out)
		if err != nil { // a reply that is not UTF-8
			return Reply{}, Faultf(rewards.Internal, "the answer cannot be pickled: %v", err)
		}
		return Reply{Status: http.StatusOK, ContentType: binaryType, Body: data}, nil
	}}, nil
}

// pickleBatch is a request's samples.
type pickleBatch struct {
	plans   []Plan
	geneval *geneval // nil: not a GenEval request
	llava   *llava   // nil: no questions
}

// readPickled decodes a body and makes its samples. The decoded value is let go
// before the samples are scored; their pictures alias the body.
func readPickled(req *Request, p *Reward) (*pickleBatch, *Fault) {
	v, err := pickle.Decode(req.Body, pickle.Limits{
		MaxBytes: int(req.Limits.PickleBytes), MaxExpandedBytes: int(4 * req.Limits.PickleBytes), // four samples may share a picture
	})
	if err != nil {
		if errors.Is(err, pickle.ErrLimit) {
			return nil, Faultf(rewards.Malformed, "%v; send fewer samples in one request", err)
		}
		return nil, Faultf(rewards.Malformed, "%v", err)
	}
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil, Faultf(rewards.Malformed, `the body is a %s, want a dict such as {"images": [bytes], "prompts": [str], "metadata": {}}`, pickle.TypeName(v))
	}
	in, f := splitKeys(d)
	if f != nil {
		return nil, f
	}
	media, f := readPictures(in.images, req.Limits.Samples)
	if f != nil {
		return nil, f
	}
	if in.queries != nil {
		return readQuestions(req, in, media, p)
	}
	prompts, f := readPrompts(in.prompts, len(media))
	if f != nil {
		return nil, f
	}
	b := &pickleBatch{plans: make([]Plan, len(media))}
	for i := range media {
		b.plans[i] = newPlan(req, p.Name, i)
		b.plans[i].Sample.Media = media[i]
		if prompts != nil {
			b.plans[i].Sample.Prompt = prompts[i]
		}
	}
	info := &infoBudget{left: req.Limits.PickleBytes}
	if in.metaDatas != nil {
		b.geneval, f = readGenEval(in, b.plans, p, req.Rewards, info)
	} else {
		f = readMetadata(in.metadata, b.plans, info)
	}
	return b, f
}

// pickleInput is the request's dict, taken apart.
type pickleInput struct {
	images, prompts, metadata pickle.Value
	metaDatas, onlyStrict     pickle.Value // GenEval's
	queries, answers          pickle.Value // LLaVA's
}

// splitKeys looks up the known keys. A key that nobody reads is an error: a scorer
// that did not see it would answer with something else than was asked for.
func splitKeys(d *pickle.Dict) (in pickleInput, f *Fault) {
	fields := map[string]*pickle.Value{
		"images": &in.images, "prompts": &in.prompts, "metadata": &in.metadata,
		"meta_datas": &in.metaDatas, "only_strict": &in.onlyStrict, "queries": &in.queries, "answers": &in.answers,
	}
	for _, it := range d.Items {
		key, _ := it.Key.(string)
		if fields[key] == nil {
			return in, Faultf(rewards.Malformed, "unknown key %q: want images, prompts, metadata, meta_datas, only_strict, queries, answers", strictjson.Clip(fmt.Sprint(it.Key)))
		}
		*fields[key] = it.Value
	}
	if in.images == nil {
		return in, Faultf(rewards.Malformed, `no "images" in the request`)
	}
	if in.answers != nil && in.queries == nil {
		return in, Faultf(rewards.Malformed, `"answers" without "queries"`)
	}
	// deepgen sends GenEval's two keys inside metadata.
	if m, ok := in.metadata.(*pickle.Dict); ok && in.metaDatas == nil {
		if v, ok := m.Get("meta_datas"); ok {
			in.metaDatas = v
			in.onlyStrict, _ = m.Get("only_strict")
		}
	}
	return in, nil
}

// readPictures returns the media of each sample: one picture, or for edits, whose
// images are {"source": […], "edited": […]}, the edited picture and then its
// source, so that a reward for one picture looks at what the model has made.
func readPictures(v pickle.Value, most int) ([][]*rewards.Media, *Fault) {
	lists := []struct {
		name string
		v    pickle.Value
	}{{"images", v}}
	if d, ok := v.(*pickle.Dict); ok {
		edited, hasEdited := d.Get("edited")
		source, hasSource := d.Get("source")
		if !hasEdited || !hasSource || len(d.Items) > 2 {
			return nil, Faultf(rewards.Malformed, `images is a dict: want exactly the keys "source" and "edited"`)
		}
		lists[0].name, lists[0].v = `images["edited"]`, edited
		lists = append(lists, lists[0])
		lists[1].name, lists[1].v = `images["source"]`, source
	}
	var media [][]*rewards.Media
	var bad []int
	for n, l := range lists {
		pictures, err := pickle.ByteSlices(l.v)
		switch {
		case err != nil:
			return nil, Faultf(rewards.Malformed, "%s: %v", l.name, err)
		case len(pictures) == 0:
			return nil, Faultf(rewards.Malformed, "%s is empty", l.name)
		case len(pictures) > most:
			return nil, Faultf(rewards.TooLarge, "%s has %d pictures; the limit is %d", l.name, len(pictures), most)
		case n > 0 && len(pictures) != len(media):
			return nil, Faultf(rewards.Malformed, "%d edited pictures and %d sources", len(media), len(pictures))
		case n == 0:
			media = make([][]*rewards.Media, len(pictures))
		}
		for i, data := range pictures {
			m := Picture(data)
			if m == nil && !slices.Contains(bad, i) {
				bad = append(bad, i)
			}
			media[i] = append(media[i], m)
		}
	}
	if bad != nil {
		slices.Sort(bad)
		f := Faultf(rewards.BadInput, "the pictures at %v are neither JPEG nor PNG nor WebP", bad[:min(len(bad), 20)])
		f.Failed = bad
		return nil, f
	}
	return media, nil
}

// readPrompts returns one prompt for each picture, or nil without any.
func readPrompts(v pickle.Value, n int) ([]string, *Fault) {
	if v == nil {
		return nil, nil
	}
	prompts, err := pickle.Strings(v)
	if err != nil {
		return nil, Faultf(rewards.Malformed, "prompts: %v", err)
	}
	if len(prompts) != n {
		return nil, Faultf(rewards.Malformed, "%d prompts for %d images", len(prompts), n)
	}
	return prompts, nil
}
