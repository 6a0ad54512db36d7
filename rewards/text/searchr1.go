package text

import (
	"context"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

type searchR1Options struct {
	// FormatScore is the reward of a wrong answer; 0.
	FormatScore float64 `json:"format_score"`
	// Score is the reward of the right answer; 1.
	Score float64 `json:"score"`
}

func (searchR1Options) validate() error { return nil }

// searchR1 is one of the two comparisons of Search-R1.
type searchR1 struct {
	name, summary string
	same          func(answer, want string) bool
	// manyTags is how many opening or closing answer tags a response may have; with
	// more a right answer counts a quarter. 0: it does not matter.
	manyTags int
}

func exactMatch() searchR1 {
	return searchR1{
		name: "search_r1_qa_em", summary: "1 if the last <answer> equals one of the right answers after normalising, else 0 (verl, Search-R1, exact match)",
		same: func(answer, want string) bool { return answer == want }, manyTags: 10,
	}
}

func containment() searchR1 {
	return searchR1{
		name: "search_r1_qa_subem", summary: "1 if the last <answer> contains one of the right answers after normalising, else 0 (verl, Search-R1)",
		same: strings.Contains,
	}
}

func searchR1Spec(kind searchR1) rewards.Spec {
	return rewards.Spec{
		Name:    kind.name,
		Summary: kind.summary,
		Options: []rewards.Option{
			{Name: "format_score", Type: "number", Default: "0", Doc: "reward of a wrong answer; a response without an answer gets 0"},
			{Name: "score", Type: "number", Default: "1", Doc: "reward of the right answer"},
		},
		Build: build(searchR1Options{Score: 1}, kind.scorer),
	}
}

func (kind searchR1) scorer(o searchR1Options) (*scorer, error) {
	return &scorer{rate: func(ctx context.Context, s *rewards.Sample, response string) (rewards.Score, error) {
		want, err := targets(s)
		if err != nil {
			return rewards.Score{}, err
		}
		answer, ok := lastBetween(response, openAnswer, endAnswer)
		if !ok {
			return rewards.Score{}, nil
		}
		details := map[string]any{"answer": clip(strip(answer))}
		answer = normaliseQA(answer)
		for _, w := range want {
			if err := ctx.Err(); err != nil { // There may be a thousand.
				return rewards.Score{}, fmt.Errorf("sample %q: %w", s.ID, err)
			}
			if !kind.same(answer, normaliseQA(w)) {
				continue
			}
			value := o.Score
			if n := kind.manyTags; n > 0 && (strings.Count(response, openAnswer) > n || strings.Count(response, endAnswer) > n) {
				value /= 4
			}
			return rewards.Score{Value: value, Details: details}, nil
		}
		return rewards.Score{Value: o.FormatScore, Details: details}, nil
	}}, nil
}

// punctuation is Python's string.punctuation.
const punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// normaliseQA is the normal form of Rajpurkar et al., "SQuAD" (2016): lower case,
// without ASCII punctuation and English articles, single spaces.
func normaliseQA(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x80 && strings.IndexByte(punctuation, byte(r)) >= 0 {
			return -1
		}
		return r
	}, lower(s))
	var b strings.Builder
	b.Grow(len(s))
	for word := range strings.FieldsFuncSeq(withoutArticles(s), isSpace) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}

// withoutArticles replaces \b(a|an|the)\b by a space. A combining mark ends a
// word, as in Python.
func withoutArticles(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for s != "" {
		word := s[:runLength(s, isWord)]
		s = s[len(word):]
		switch word {
		case "a", "an", "the":
			b.WriteByte(' ')
		default:
			b.WriteString(word)
		}
		gap := s[:runLength(s, func(r rune) bool { return !isWord(r) })]
		s = s[len(gap):]
		b.WriteString(gap)
	}
	return b.String()
}

// runLength is the number of bytes at the beginning of s whose characters are all in the set.
func runLength(s string, in func(rune) bool) int {
	for i, r := range s {
		if !in(r) {
			return i
		}
	}
	return len(s)
}
