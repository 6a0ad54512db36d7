package compat

import (
	"encoding/json"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// answerField is the text that a profile must report to answer questions about
// pictures, as LLaVA-server does for ddpo-pytorch: its reply to the prompt.
const answerField = "answer"

// llavaMeasures are how near a reply is to the expected one (BERTScore, in the
// original). A profile must report them all where expected replies are sent.
func llavaMeasures() []string { return []string{"precision", "recall", "f1"} }

// llava is a request of ddpo-pytorch: every picture comes with questions, and with
// the expected replies or without. Each question is a sample of its own, its prompt
// the question and its ground_truth the expected reply.
//
//	{"images": [bytes], "queries": [[str]], "answers": [[str]]}
//	200 {"outputs": [[str]], "scores": [[float]], "precision", "recall", "f1": [[float]]}
type llava struct {
	questions []int // of each picture
	answered  bool  // expected replies were sent
	profile   *Reward
}

// readQuestions makes a sample of every question.
func readQuestions(req *Request, in pickleInput, media [][]*rewards.Media, p *Reward) (*pickleBatch, *Fault) {
	if p.keyOfField(answerField, rewards.String) == "" {
		return nil, Faultf(rewards.UnknownReward,
			"queries asks LLaVA's questions (ddpo-pytorch), but reward %q reports no text named %q; POST to /scorers/{name} of one that does: here are %q", p.Name, answerField, reporting(req.Rewards, answerField, rewards.String))
	}
	for _, name := range llavaMeasures() {
		if in.answers != nil && p.keyOfField(name, rewards.Number) == "" {
			return nil, Faultf(rewards.UnknownReward, "answers asks for the similarity of replies and answers, but reward %q does not report %q", p.Name, llavaMeasures())
		}
	}
	if in.prompts != nil || in.metadata != nil || in.metaDatas != nil {
		return nil, Faultf(rewards.Malformed, "queries go with images and answers only")
	}
	queries, f := readTexts("queries", in.queries, len(media))
	if f != nil {
		return nil, f
	}
	var answers [][]string
	if in.answers != nil {
		if answers, f = readTexts("answers", in.answers, len(media)); f != nil {
			return nil, f
		}
	}
	b := &pickleBatch{llava: &llava{answered: answers != nil, profile: p}}
	for i, list := range queries {
		b.llava.questions = append(b.llava.questions, len(list))
		if answers != nil && len(answers[i]) != len(list) {
			return nil, Faultf(rewards.Malformed, "picture %d has %d queries and %d answers", i, len(list), len(answers[i]))
		}
		if len(list) > req.Limits.Samples-len(b.plans) {
			return nil, req.tooMany()
		}
		for n, text := range list {
			pl := newPlan(req, p.Name, len(b.plans))
			pl.Sample.Prompt, pl.Sample.Media = text, media[i]
			if answers != nil {
				pl.Sample.GroundTruth, _ = json.Marshal(answers[i][n]) //nolint:errchkjson // a string
			}
			b.plans = append(b.plans, pl)
		}
	}
	return b, nil
}

// readTexts reads a list of strings for each of n pictures.
func readTexts(key string, v pickle.Value, n int) ([][]string, *Fault) {
	items, ok := pickle.Items(v)
	if !ok {
		return nil, Faultf(rewards.Malformed, "%s is a %s, want a list of strings for each picture", key, pickle.TypeName(v))
	}
	if len(items) != n {
		return nil, Faultf(rewards.Malformed, "%d entries in %s for %d images", len(items), key, n)
	}
	texts := make([][]string, n)
	for i, item := range items {
		var err error
		if texts[i], err = pickle.Strings(item); err != nil {
			return nil, Faultf(rewards.Malformed, "%s[%d]: %v", key, i, err)
		}
	}
	return texts, nil
}

// answer makes the dict of replies and scores, nested as the questions were.
func (l *llava) answer(results []*wire.Result, scores []float64) (*pickle.Dict, *Fault) {
	key := l.profile.keyOfField(answerField, rewards.String)
	replies := make([]pickle.Value, len(results))
	values := make([]pickle.Value, len(results))
	for i, r := range results {
		text, ok := r.ExtraInfo[key].(string)
		if !ok || r.Outcome != rewards.Scored {
			return nil, l.missing(i, key)
		}
		replies[i], values[i] = text, scores[i]
	}
	out := &pickle.Dict{Items: []pickle.Pair{{Key: "outputs", Value: l.nest(replies)}, {Key: "scores", Value: l.nest(values)}}}
	if !l.answered {
		return out, nil
	}
	for _, name := range llavaMeasures() {
		key := l.profile.keyOfField(name, rewards.Number)
		list := make([]pickle.Value, len(results))
		for i, r := range results {
			n, ok := number(r.ExtraInfo[key])
			if !ok {
				return nil, l.missing(i, key)
			}
			list[i] = n
		}
		out.Items = append(out.Items, pickle.Pair{Key: name, Value: l.nest(list)})
	}
	return out, nil
}

// missing is the fault of a question without what the answer needs of it.
func (l *llava) missing(i int, key string) *Fault {
	f := Faultf(rewards.NoScore, "question %d: reward %q did not report %s", i, l.profile.Name, key)
	f.Failed = []int{i}
	return f
}

// nest splits a list into one for each picture.
func (l *llava) nest(flat []pickle.Value) []pickle.Value {
	out := make([]pickle.Value, len(l.questions))
	for i, n := range l.questions {
		out[i], flat = flat[:n:n], flat[n:]
	}
	return out
}
