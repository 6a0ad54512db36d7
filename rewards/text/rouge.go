package text

import (
	"context"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// maxReference bounds the tokens of all references of a sample together: a token
// of the response costs at most maxReference/64 steps, and the sets of positions
// take at most 2 MiB.
const maxReference = 4096

func rougeSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "rouge_l",
		Summary: "how much of the reference the response says in the same order: ROUGE-L F (RM-Gallery)",
		Options: []rewards.Option{
			{Name: "tokenizer_type", Type: "string", Default: simpleTokens, Doc: tokenizerDoc},
		},
		Build: build(tokenizerOption{simpleTokens}, newRouge),
	}
}

func newRouge(o tokenizerOption) (*scorer, error) {
	return &scorer{rate: func(ctx context.Context, s *rewards.Sample, response string) (rewards.Score, error) {
		want, err := targets(s)
		if err != nil {
			return rewards.Score{}, err
		}
		response = lower(response)
		best, length := 0.0, 0
		for _, w := range want {
			reference := slices.Collect(o.tokens(lower(w)))
			if length += len(reference); length > maxReference {
				return rewards.Score{}, bad(s, "has references of more than %d tokens", maxReference)
			}
			v, err := rougeL(ctx, reference, o.tokens(response))
			if err != nil {
				return rewards.Score{}, fmt.Errorf("sample %q: %w", s.ID, err)
			}
			best = max(best, v)
		}
		return rewards.Score{Value: best}, nil
	}}, nil
}

// rougeL is the F value of C.-Y. Lin, "ROUGE" (2004), with equal weights.
func rougeL(ctx context.Context, reference []string, response iter.Seq[string]) (float64, error) {
	common, n, err := commonLength(ctx, reference, response)
	if err != nil {
		return 0, err
	}
	if n == 0 && len(reference) == 0 {
		return 1, nil
	}
	return harmonic(common, n, len(reference)), nil
}

// harmonic is the harmonic mean of common/a and common/b; 0 where there is none.
func harmonic(common, a, b int) float64 {
	if common == 0 {
		return 0
	}
	precision, recall := float64(common)/float64(a), float64(common)/float64(b)
	return 2 * precision * recall / (precision + recall)
}

// commonLength returns the length of the longest common subsequence of two lists
// of tokens, and the length of the second. It follows H. Hyyrö, "Bit-parallel LCS-
// length computation revisited" (2004): one bit for each token of the first, and
// for each token of the second a few operations per 64 of them.
func commonLength(ctx context.Context, a []string, b iter.Seq[string]) (common, n int, err error) {
	words := (len(a) + 63) / 64
	places := make(map[string][]uint64) // Where in a each token stands.
	for i, token := range a {
		if places[token] == nil {
			places[token] = make([]uint64, words)
		}
		places[token][i/64] |= 1 << (i % 64)
	}
	row := make([]uint64, words)
	for i := range row {
		row[i] = ^uint64(0)
	}
	for token := range b {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		var carry uint64
		for i, place := range places[token] {
			v := row[i]
			var sum uint64
			sum, carry = bits.Add64(v, v&place, carry)
			row[i] = sum | v&^place
		}
	}
	for _, v := range row {
		common += bits.OnesCount64(^v)
	}
	return common, n, nil
}
