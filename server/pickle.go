package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// pickleEdge speaks flow_grpo's protocol: the body of a POST is a pickled dict, the
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
// which one is missing, unless the profile names a substitute.
func (s *Server) pickleEdge() edge {
	return edge{
		run: "_pickle", limit: s.cfg.PickleBytes, copies: 1,
		fault: func(f *fault) answer { return f.pickled() },
		score: func(ctx context.Context, req *request) answer {
			a, f := s.scorePickle(ctx, req)
			if f != nil {
				return f.pickled()
			}
			return a
		},
	}
}

func (s *Server) scorePickle(ctx context.Context, req *request) (answer, *fault) {
	profile, f := s.profile(req.profile)
	if f != nil {
		return answer{}, f
	}
	batch, f := s.readPickle(ctx, req, profile)
	if f != nil {
		return answer{}, f
	}
	results := s.scoreAll(ctx, s.pickleEdge().run, req, batch.plans, nil, true, req.body.release)
	scores, f := allScores(results)
	if f != nil {
		return answer{}, f
	}
	out := &pickle.Dict{Items: []pickle.Pair{{Key: "scores", Value: scores}, {Key: "outputs", Value: scores}}}
	switch {
	case batch.geneval != nil:
		f = batch.geneval.complete(out, results, scores, profile)
	case batch.llava != nil:
		out, f = batch.llava.answer(results, scores)
	}
	if f != nil {
		return answer{}, f
	}
	data, err := pickle.Encode(out)
	if err != nil { // a reply that is not UTF-8
		return answer{}, faultf(rewards.Internal, "the answer cannot be pickled: %v", err)
	}
	return answer{status: http.StatusOK, contentType: pickleType, body: data}, nil
}

// allScores returns the score of every result, or one fault for all that have none.
func allScores(results []*wire.Result) ([]float64, *fault) {
	const named = 3 // samples whose reason goes into the message
	scores := make([]float64, len(results))
	var f *fault
	var texts []string
	for i, r := range results {
		v, ok := scoreOf(r)
		if ok {
			scores[i] = v
			continue
		}
		class, text := failureOf(r)
		if f == nil {
			f = &fault{class: class, status: statusOf(class), pause: true}
		} else if weight(class) > weight(f.class) {
			f.class, f.status = class, statusOf(class)
		}
		f.failed = append(f.failed, i)
		f.pause = f.pause && pauses(class)
		if len(texts) < named {
			texts = append(texts, fmt.Sprintf("sample %d: %s", i, text))
		}
	}
	if f == nil {
		return scores, nil
	}
	if n := len(f.failed) - len(texts); n > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", n))
	}
	if f.status == http.StatusBadRequest || f.status == http.StatusRequestEntityTooLarge {
		f.status = http.StatusUnprocessableEntity // the request was fine, a sample of it was not
	}
	f.message = fmt.Sprintf("%d of %d samples have no score: %s", len(f.failed), len(results), strings.Join(texts, "; "))
	return nil, f
}

// pickleBatch is a request's samples.
type pickleBatch struct {
	plans   []plan
	geneval *geneval // nil: not a GenEval request
	llava   *llava   // nil: no questions
}

// readPickle decodes a body and makes its samples. The decoded value is let go
// before the samples are scored; their pictures alias the body.
func (s *Server) readPickle(ctx context.Context, req *request, p *Profile) (*pickleBatch, *fault) {
	leave, err := s.turn(ctx)
	if err != nil {
		return nil, faultf(rewards.Cancelled, "the caller left")
	}
	defer leave()
	v, err := pickle.Decode(req.body.data, s.pickleLimits)
	if err != nil {
		if errors.Is(err, pickle.ErrLimit) {
			return nil, faultf(rewards.Malformed, "%v; send fewer samples in one request", err)
		}
		return nil, faultf(rewards.Malformed, "%v", err)
	}
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil, faultf(rewards.Malformed, `the body is a %s, want a dict such as {"images": [bytes], "prompts": [str], "metadata": {}}`, pickle.TypeName(v))
	}
	in, f := splitKeys(d)
	if f != nil {
		return nil, f
	}
	media, f := readPictures(in.images, s.cfg.BatchSamples)
	if f != nil {
		return nil, f
	}
	if in.queries != nil {
		return s.readQuestions(req, in, media, p)
	}
	prompts, f := readPrompts(in.prompts, len(media))
	if f != nil {
		return nil, f
	}
	b := &pickleBatch{plans: make([]plan, len(media))}
	for i := range media {
		sample := &rewards.Sample{ID: fmt.Sprintf("%s-%d", req.id, i), Reward: p.Name, Media: media[i]}
		if prompts != nil {
			sample.Prompt = prompts[i]
		}
		b.plans[i].sample = sample
	}
	info := &infoBudget{left: s.cfg.PickleBytes}
	if in.metaDatas != nil {
		b.geneval, f = readGenEval(in, b.plans, p, s.rewards(), info)
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
func splitKeys(d *pickle.Dict) (in pickleInput, f *fault) {
	for _, it := range d.Items {
		switch key := it.Key; key {
		case "images":
			in.images = it.Value
		case "prompts":
			in.prompts = it.Value
		case "metadata":
			in.metadata = it.Value
		case "meta_datas":
			in.metaDatas = it.Value
		case "only_strict":
			in.onlyStrict = it.Value
		case "queries":
			in.queries = it.Value
		case "answers":
			in.answers = it.Value
		default:
			return in, faultf(rewards.Malformed, "unknown key %q: want images, prompts, metadata, meta_datas, only_strict, queries, answers", clip(fmt.Sprint(key)))
		}
	}
	if in.images == nil {
		return in, faultf(rewards.Malformed, `no "images" in the request`)
	}
	if in.answers != nil && in.queries == nil {
		return in, faultf(rewards.Malformed, `"answers" without "queries"`)
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
func readPictures(v pickle.Value, most int) ([][]*rewards.Media, *fault) {
	lists := []struct {
		name string
		v    pickle.Value
	}{{"images", v}}
	if d, ok := v.(*pickle.Dict); ok {
		edited, hasEdited := d.Get("edited")
		source, hasSource := d.Get("source")
		if !hasEdited || !hasSource || len(d.Items) > 2 {
			return nil, faultf(rewards.Malformed, `images is a dict: want exactly the keys "source" and "edited"`)
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
			return nil, faultf(rewards.Malformed, "%s: %v", l.name, err)
		case len(pictures) == 0:
			return nil, faultf(rewards.Malformed, "%s is empty", l.name)
		case len(pictures) > most:
			return nil, faultf(rewards.TooLarge, "%s has %d pictures; the limit is %d", l.name, len(pictures), most)
		case n > 0 && len(pictures) != len(media):
			return nil, faultf(rewards.Malformed, "%d edited pictures and %d sources", len(media), len(pictures))
		case n == 0:
			media = make([][]*rewards.Media, len(pictures))
		}
		for i, data := range pictures {
			m := picture(data)
			if m == nil && !slices.Contains(bad, i) {
				bad = append(bad, i)
			}
			media[i] = append(media[i], m)
		}
	}
	if bad != nil {
		slices.Sort(bad)
		f := faultf(rewards.BadInput, "the pictures at %v are neither JPEG nor PNG nor WebP", bad[:min(len(bad), 20)])
		f.failed = bad
		return nil, f
	}
	return media, nil
}

// picture makes the media of an encoded picture by its first bytes; nil for one
// that is none of those that can be decoded.
func picture(data []byte) *rewards.Media {
	encoding := media.Sniff(data)
	if encoding == "" {
		return nil
	}
	return &rewards.Media{Kind: rewards.Image, Encoding: encoding, DType: "U8", Shape: []int{len(data)}, Data: data}
}

// readPrompts returns one prompt for each picture, or nil without any.
func readPrompts(v pickle.Value, n int) ([]string, *fault) {
	if v == nil {
		return nil, nil
	}
	prompts, err := pickle.Strings(v)
	if err != nil {
		return nil, faultf(rewards.Malformed, "prompts: %v", err)
	}
	if len(prompts) != n {
		return nil, faultf(rewards.Malformed, "%d prompts for %d images", len(prompts), n)
	}
	return prompts, nil
}
