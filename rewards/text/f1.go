package text

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/rewardloop/rewardloop/rewards"
)

// The ways of f1 to count.
const (
	setMode   = "set"
	squadMode = "squad"
)

type f1Options struct {
	tokenizerOption
	// Mode is "set" (default): distinct tokens, lower-cased (RM-Gallery); or "squad":
	// every occurrence, normalised as in SQuAD.
	Mode string `json:"mode"`
}

func (o f1Options) validate() error {
	return errors.Join(o.tokenizerOption.validate(), oneOf("mode", o.Mode, setMode, squadMode))
}

func f1Spec() rewards.Spec {
	return rewards.Spec{
		Name:    "f1",
		Summary: "F1 of the words that response and reference share, in any order (RM-Gallery, SQuAD)",
		Options: []rewards.Option{
			{Name: "mode", Type: "string", Default: setMode, Doc: "tokens that are compared: set, distinct tokens in lower case (RM-Gallery); or squad, all tokens without punctuation and articles"},
			{Name: "tokenizer_type", Type: "string", Default: simpleTokens, Doc: tokenizerDoc},
		},
		Build: build(f1Options{tokenizerOption{simpleTokens}, setMode}, newF1),
	}
}

func newF1(o f1Options) (*scorer, error) {
	normalise := lower
	if o.Mode == squadMode {
		normalise = normaliseQA
	}
	return &scorer{
		fields: []rewards.Field{{Name: "precision", Kind: rewards.Number}, {Name: "recall", Kind: rewards.Number}},
		rate: func(ctx context.Context, s *rewards.Sample, response string) (rewards.Score, error) {
			want, err := targets(s)
			if err != nil {
				return rewards.Score{}, err
			}
			said := o.bag(o.tokens(normalise(response)))
			best := overlap{f: -1}
			for _, w := range want {
				if err := ctx.Err(); err != nil {
					return rewards.Score{}, fmt.Errorf("sample %q: %w", s.ID, err)
				}
				if v := said.compare(o.bag(o.tokens(normalise(w)))); v.f > best.f {
					best = v
				}
			}
			return rewards.Score{Value: best.f, Extra: map[string]any{"precision": best.precision, "recall": best.recall}}, nil
		},
	}, nil
}

// bag is how often each token occurs.
type bag struct {
	counts map[string]int
	size   int
}

func (o f1Options) bag(tokens iter.Seq[string]) bag {
	b := bag{counts: make(map[string]int)}
	for token := range tokens {
		if o.Mode == setMode && b.counts[token] > 0 {
			continue
		}
		b.counts[token]++
		b.size++
	}
	return b
}

// overlap is how much two bags share.
type overlap struct{ f, precision, recall float64 }

func (said bag) compare(want bag) overlap {
	if said.size == 0 && want.size == 0 {
		return overlap{1, 1, 1}
	}
	common := 0
	for token, n := range want.counts {
		common += min(n, said.counts[token])
	}
	if common == 0 {
		return overlap{}
	}
	return overlap{
		f:         harmonic(common, said.size, want.size),
		precision: float64(common) / float64(said.size),
		recall:    float64(common) / float64(want.size),
	}
}
