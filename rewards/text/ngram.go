package text

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// The texts ngram_repetition may look at.
const (
	fullScope    = "full"
	thoughtScope = "thought"
)

// maxN bounds n: the work is n times the length of the text.
const maxN = 32

type ngramOptions struct {
	tokenizerOption
	// N is how many tokens make an n-gram; 3.
	N int `json:"n"`
	// PenaltyThreshold is the repetition rate from which the hard penalty begins; 0.3.
	PenaltyThreshold float64 `json:"penalty_threshold"`
	// PenaltyRate is what the hard penalty multiplies the rate beyond it with; 1.
	PenaltyRate float64 `json:"penalty_rate"`
	// UseSoftPenalty takes the soft penalty instead of the hard one.
	UseSoftPenalty bool `json:"use_soft_penalty"`
	// MaxPenalty is the soft penalty of a text that only repeats itself; -1.
	MaxPenalty float64 `json:"max_penalty"`
	// MinScaling is the repetition rate from which the soft penalty begins; 0.
	MinScaling float64 `json:"min_scaling"`
	// AnalyzeScope is "full" (default) or "thought": what stands in <think> tags.
	AnalyzeScope string `json:"analyze_scope"`
}

func (o ngramOptions) validate() error {
	errs := rewards.Faults{o.tokenizerOption.validate(), oneOf("analyze_scope", o.AnalyzeScope, fullScope, thoughtScope)}
	errs.Add(o.N < 1 || o.N > maxN, "n: %d, want 1 to %d", o.N, maxN)
	errs.Add(o.PenaltyThreshold < 0 || o.PenaltyThreshold > 1, "penalty_threshold: %v, want 0 to 1", o.PenaltyThreshold)
	errs.Add(o.PenaltyRate < 0, "penalty_rate: %v, want 0 or more", o.PenaltyRate)
	errs.Add(o.MaxPenalty > 0, "max_penalty: %v, want 0 or less", o.MaxPenalty)
	errs.Add(o.MinScaling < 0 || o.MinScaling >= 1, "min_scaling: %v, want 0 or more and less than 1", o.MinScaling)
	return errors.Join(errs...)
}

func ngramSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "ngram_repetition",
		Summary: "penalty for a response that repeats sequences of words (RM-Gallery)",
		Options: []rewards.Option{
			{Name: "n", Type: "int", Default: "3", Doc: fmt.Sprintf("number of tokens in a sequence, 1 to %d", maxN)},
			{Name: "penalty_threshold", Type: "number", Default: "0.3", Doc: "repetition rate above which the hard penalty begins"},
			{Name: "penalty_rate", Type: "number", Default: "1", Doc: "factor of the hard penalty = (rate − penalty_threshold)·penalty_rate"},
			{Name: "use_soft_penalty", Type: "bool", Default: "false", Doc: "true: a soft penalty in place of the hard one; the soft penalty grows linearly from 0 at a rate of min_scaling to max_penalty at 1"},
			{Name: "max_penalty", Type: "number", Default: "-1", Doc: "soft penalty at a repetition rate of 1, 0 or less"},
			{Name: "min_scaling", Type: "number", Default: "0", Doc: "repetition rate at which the soft penalty begins"},
			{Name: "tokenizer_type", Type: "string", Default: simpleTokens, Doc: tokenizerDoc},
			{Name: "analyze_scope", Type: "string", Default: fullScope, Doc: "text that is searched for repetitions: full, the response; or thought, the content of the <think> tags"},
		},
		Build: build(ngramOptions{
			tokenizerOption: tokenizerOption{simpleTokens}, N: 3, PenaltyThreshold: 0.3, PenaltyRate: 1,
			MaxPenalty: -1, AnalyzeScope: fullScope,
		}, newNgram),
	}
}

func newNgram(o ngramOptions) (*scorer, error) {
	return &scorer{
		fields: []rewards.Field{{Name: "repetition_rate", Kind: rewards.Number}},
		rate: func(_ context.Context, _ *rewards.Sample, response string) (rewards.Score, error) {
			if o.AnalyzeScope == thoughtScope {
				response = thoughts(response)
			}
			rate, ok := o.repetition(lower(response))
			if !ok {
				return rewards.Score{}, nil // Too short to repeat anything.
			}
			return rewards.Score{Value: o.penalty(rate), Extra: map[string]any{"repetition_rate": rate}}, nil
		},
	}, nil
}

// thoughts joins what stands in thinking tags.
func thoughts(s string) string {
	var b strings.Builder
	for thought := range allBetween(s, openThink, endThink) {
		b.WriteString(thought)
		b.WriteByte(' ') // One too many at the end makes no token.
	}
	return b.String()
}

// repetition is 1 − distinct/all over the n-grams of s; false: s has none.
func (o ngramOptions) repetition(s string) (float64, bool) {
	// The tokens with a space after each, and where each begins: an n-gram is a
	// piece of it, and no token holds a space.
	var b strings.Builder
	b.Grow(len(s))
	var begins []int
	for token := range o.tokens(s) {
		begins = append(begins, b.Len())
		b.WriteString(token)
		b.WriteByte(' ')
	}
	all := len(begins) - o.N + 1
	if all < 1 {
		return 0, false
	}
	joined := b.String()
	begins = append(begins, len(joined))
	distinct := make(map[string]struct{})
	for i := range all {
		distinct[joined[begins[i]:begins[i+o.N]]] = struct{}{}
	}
	return 1 - float64(len(distinct))/float64(all), true
}

func (o ngramOptions) penalty(rate float64) float64 {
	switch {
	case !o.UseSoftPenalty && rate > o.PenaltyThreshold:
		return -(rate - o.PenaltyThreshold) * o.PenaltyRate
	case !o.UseSoftPenalty || rate < o.MinScaling:
		return 0
	case rate > o.MinScaling:
		rate = (rate - o.MinScaling) / (1 - o.MinScaling)
	}
	return rate * o.MaxPenalty // At min_scaling itself the rate is not scaled, as in the original.
}
