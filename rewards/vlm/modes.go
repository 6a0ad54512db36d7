package vlm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/rewards"
)

// asked is what a question of one sample is, its templates filled.
type asked struct {
	text       string
	candidates []string // of mode candidates, each once
	expected   int      // which of them is right
}

// reading is what was read off a model.
type reading struct {
	value  float64
	fields map[string]float64
	text   string // what was said, of mode generate
}

// reader is a mode: it reads the value off the answer to a question.
type reader func(ctx context.Context, l *loaded, o opened, a asked) (reading, error)

// mode is the reader of the options, and the names of its fields.
func (o *scorerOptions) mode() (reader, []string) {
	switch o.Mode {
	case modeDigit:
		return o.readDigit, []string{"expected", "mass"}
	case modeCandidates:
		return o.readCandidates, []string{"logprob", "mass"}
	case modeGenerate:
		return o.readScore(), []string{"raw_score"}
	}
	return o.readYesNo, []string{"mass"}
}

// possible says whether a model has what the mode reads.
func (o *scorerOptions) possible(l *loaded) error {
	switch {
	case o.Mode == modeYesNo && (len(l.words.yes) == 0 || len(l.words.no) == 0):
		return fmt.Errorf("%w: mode yes_no: none of %q, or none of %q, is a single token of this model; use candidates", errLoad, yesForms(), noForms())
	case o.Mode == modeDigit:
		for d := o.Low; d <= o.High; d++ {
			if len(l.words.digits[d]) == 0 {
				return fmt.Errorf("%w: mode digit: %d is not a single token of this model; use candidates", errLoad, d)
			}
		}
	}
	return nil
}

// readYesNo is P(yes)/(P(yes)+P(no)), each the sum over its forms.
func (o *scorerOptions) readYesNo(ctx context.Context, l *loaded, q opened, _ asked) (reading, error) {
	places, err := l.pick(ctx, modeYesNo, q.prompt, q.seen, nil, 1, union(l.words.yes, l.words.no))
	if err != nil {
		return reading{}, err
	}
	yes, yesErr := places[0].logprob(l.words.yes)
	no, noErr := places[0].logprob(l.words.no)
	if err := errors.Join(yesErr, noErr); err != nil {
		return reading{}, fmt.Errorf("%w: %w", rewards.Internal, err)
	}
	return o.weighed(share(yes, no), addLog(yes, no), nil)
}

// readDigit is (E−low)/(high−low), for E the mean digit by probability.
func (o *scorerOptions) readDigit(ctx context.Context, l *loaded, q opened, _ asked) (reading, error) {
	digits := l.words.digits[o.Low : o.High+1]
	places, err := l.pick(ctx, modeDigit, q.prompt, q.seen, nil, 1, union(digits...))
	if err != nil {
		return reading{}, err
	}
	logs := make([]float64, len(digits))
	for i, ids := range digits {
		if logs[i], err = places[0].logprob(ids); err != nil {
			return reading{}, fmt.Errorf("%w: %w", rewards.Internal, err)
		}
	}
	shares, total := softmax(logs)
	expected := 0.0
	for i, p := range shares {
		expected += p * float64(o.Low+i)
	}
	return o.weighed((expected-float64(o.Low))/float64(o.High-o.Low), total, map[string]float64{"expected": expected})
}

// readCandidates is how likely the expected answer is: among the candidates, or at all.
func (o *scorerOptions) readCandidates(ctx context.Context, l *loaded, q opened, a asked) (reading, error) {
	lead := l.family.Lead()
	if o.Prefix != "" { // which ends as its author wants it to
		lead = ""
	}
	texts := make([]string, len(a.candidates))
	for i, c := range a.candidates {
		texts[i] = c
		if !strings.HasPrefix(c, " ") {
			texts[i] = lead + c
		}
	}
	logs, err := l.likelihoods(ctx, q, texts)
	if err != nil {
		return reading{}, err
	}
	shares, total := softmax(logs)
	right := logs[a.expected]
	value := probability(right)
	if o.Normalise {
		value = shares[a.expected]
	}
	return o.weighed(value, total, map[string]float64{"logprob": right})
}

// weighed is a value read off answers that have a mass of probability, given as a
// logarithm. Little of it says that the model would answer with something else.
func (o *scorerOptions) weighed(value, mass float64, fields map[string]float64) (reading, error) {
	if fields == nil {
		fields = make(map[string]float64, 1)
	}
	fields["mass"] = probability(mass)
	if !finite(value) {
		return reading{}, fmt.Errorf("%w: the value is %v", rewards.InvalidScore, value)
	}
	if fields["mass"] < o.MinMass {
		return reading{}, fmt.Errorf("%w: the candidate answers have a probability of %.3g together, min_mass is %v: the model prefers another answer; "+
			"ask for them in the template, or begin the answer with prefix", rewards.InvalidScore, fields["mass"], o.MinMass)
	}
	return reading{value: value, fields: fields}, nil
}

// union are the ids of several lists, sorted, each once.
func union(lists ...[]int64) []int64 {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// likelihoods are log P of texts as answers: Σ log p over the tokens of each. The texts'
// tokens stand behind the prompt's, as evaluation harnesses put them. Texts that differ
// in their last token alone share a run: those of one token all do.
func (l *loaded) likelihoods(ctx context.Context, q opened, texts []string) ([]float64, error) {
	type group struct {
		said []int64 // all but the last token
		ids  []int64 // the picked ones
		of   []int   // texts
	}
	tokens := make([][]int64, len(texts))
	var order []string
	groups := map[string]*group{}
	for i, text := range texts {
		ids, err := l.tokenizer.Encode(l.harmless.Replace(text), false)
		if err != nil {
			return nil, fmt.Errorf("%w: candidate %q: %w", rewards.BadInput, clipTo(text, 100), err)
		}
		if len(ids) == 0 || len(ids) > infer.MaxKeep {
			return nil, fmt.Errorf("%w: candidate %q has %d tokens, want 1 to %d", rewards.BadInput, clipTo(text, 100), len(ids), infer.MaxKeep)
		}
		tokens[i] = ids
		said := ids[:len(ids)-1]
		key := fmt.Sprint(said)
		if groups[key] == nil {
			groups[key] = &group{said: said}
			order = append(order, key)
		}
		groups[key].ids, groups[key].of = append(groups[key].ids, ids...), append(groups[key].of, i)
	}
	logs := make([]float64, len(texts))
	for _, key := range order {
		g := groups[key]
		places, err := l.pick(ctx, modeCandidates, q.prompt, q.seen, g.said, len(g.said)+1, union(g.ids))
		if err != nil {
			return nil, err
		}
		for _, i := range g.of {
			for k, id := range tokens[i] {
				lp, err := places[k].logprob([]int64{id})
				if err != nil {
					return nil, fmt.Errorf("%w: %w", rewards.Internal, err)
				}
				logs[i] += lp
			}
		}
	}
	return logs, nil
}

// decimal is a number as a model writes one.
var decimal = regexp.MustCompile(`^[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?$`)

// readScore has the model answer, and takes the score out of what it says. An answer
// without one fails: it is not a score of 0.
func (o *scorerOptions) readScore() reader {
	pattern := o.Regex
	if pattern == "" {
		tag := o.Tag
		if tag == "" {
			tag = "score"
		}
		pattern = `(?is)<` + tag + `>(.*?)</` + tag + `>`
	}
	where := regexp.MustCompile(pattern) // validate has compiled it
	return func(ctx context.Context, l *loaded, q opened, _ asked) (reading, error) {
		most := min(o.MaxTokens, l.context-len(q.prompt.ids))
		a, err := l.say(ctx, modeGenerate, q.prompt, q.seen, most, 0)
		if err != nil {
			return reading{}, err
		}
		text := o.Prefix + a.text
		raw, err := o.extract(where, text)
		if err != nil {
			why := ""
			if !a.stopped {
				why = fmt.Sprintf(" (cut off after %d tokens: raise max_tokens)", len(a.tokens))
			}
			return reading{}, fmt.Errorf("%w: no score can be read: %w%s; the answer begins with %q", rewards.InvalidScore, err, why, clipTo(text, 200))
		}
		value := raw*o.Scale + o.Offset
		if !finite(value) {
			return reading{}, fmt.Errorf("%w: the score %v becomes %v", rewards.InvalidScore, raw, value)
		}
		return reading{value: value, fields: map[string]float64{"raw_score": raw}, text: text}, nil
	}
}

// extract finds the score in an answer.
func (o *scorerOptions) extract(where *regexp.Regexp, text string) (float64, error) {
	if i := strings.LastIndex(text, "</think>"); i >= 0 {
		text = text[i+len("</think>"):]
	}
	n := -1
	if o.Match == matchFirst {
		n = 1
	}
	all := where.FindAllStringSubmatch(text, n)
	if len(all) == 0 {
		return 0, fmt.Errorf("no match for %s", clipTo(where.String(), 200))
	}
	found := strings.TrimSpace(all[len(all)-1][1])
	if !decimal.MatchString(found) {
		return 0, fmt.Errorf("the score %q is not a number", clipTo(found, 50))
	}
	v, err := strconv.ParseFloat(found, 64)
	if err != nil {
		return 0, fmt.Errorf("the score %q is too large for a 64-bit float", clipTo(found, 50))
	}
	if (o.Min != nil && v < *o.Min) || (o.Max != nil && v > *o.Max) {
		return 0, fmt.Errorf("the score %v is out of range", v)
	}
	return v, nil
}
