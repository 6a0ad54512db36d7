package text

import (
	"context"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
)

// maxReference bounds the tokens of all references of a sample together: with a bit
// for each, and one for each reference, a token of the response costs at most 80 steps,
// and the sets of positions take at most 2.5 MiB.
const maxReference = 4096

func rougeSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "rouge_l",
		Summary: "ROUGE-L F1 of response and reference: words shared in the same order (RM-Gallery)",
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
		references, length := make([][]string, len(want)), 0
		for i, w := range want {
			references[i] = slices.Collect(o.tokens(lower(w)))
			if length += len(references[i]); length > maxReference {
				return rewards.Score{}, bad(s, "has references of more than %d tokens", maxReference)
			}
		}
		common, n, err := commonLengths(ctx, references, o.tokens(lower(response)))
		if err != nil {
			return rewards.Score{}, fmt.Errorf("sample %q: %w", s.ID, err)
		}
		best := 0.0
		for i, reference := range references {
			best = max(best, rougeL(common[i], n, len(reference)))
		}
		return rewards.Score{Value: best}, nil
	}}, nil
}

// rougeL is the F value of C.-Y. Lin, "ROUGE" (2004), with equal weights: of two texts
// of n and m tokens, of which as many as common are in both in one order.
func rougeL(common, n, m int) float64 {
	if n == 0 && m == 0 {
		return 1
	}
	return harmonic(common, n, m)
}

// harmonic is the harmonic mean of common/a and common/b; 0 where there is none.
func harmonic(common, a, b int) float64 {
	if common == 0 {
		return 0
	}
	precision, recall := float64(common)/float64(a), float64(common)/float64(b)
	return 2 * precision * recall / (precision + recall)
}

// commonLengths returns the lengths of the longest common subsequences of some lists of
// tokens, each with b, and the length of b. It follows H. Hyyrö, "Bit-parallel LCS-length
// computation revisited" (2004): one bit for each token of the lists, and for each token
// of b a few operations per 64 of them. All lists stand in one row of bits, a bit behind
// each, in which its carry ends, so that b is gone through once.
func commonLengths(ctx context.Context, lists [][]string, b iter.Seq[string]) (common []int, n int, err error) {
	size := 0
	for _, a := range lists {
		size += len(a) + 1
	}
	words := (size + 63) / 64
	places := make(map[string][]uint64) // where each token stands
	row, inside := make([]uint64, words), make([]uint64, words)
	at := 0
	for _, a := range lists {
		for _, token := range a {
			if places[token] == nil {
				places[token] = make([]uint64, words)
			}
			places[token][at/64] |= 1 << (at % 64)
			inside[at/64] |= 1 << (at % 64)
			at++
		}
		at++
	}
	copy(row, inside)
	for token := range b {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		var carry uint64
		for i, place := range places[token] {
			v := row[i]
			var sum uint64
			sum, carry = bits.Add64(v, v&place, carry)
			row[i] = (sum | v&^place) & inside[i]
		}
	}
	common = make([]int, len(lists))
	at = 0
	for i, a := range lists {
		for range a {
			if row[at/64]>>(at%64)&1 == 0 {
				common[i]++
			}
			at++
		}
		at++
	}
	return common, n, nil
}
