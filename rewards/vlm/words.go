package vlm

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/internal/hftok"
)

// tokenizer is what is used of one.
type tokenizer interface {
	Encode(text string, special bool) ([]int64, error)
	Decode(ids []int64, skipSpecial bool) (string, error)
	ID(token string) (int64, bool)
	Size() int
}

var _ tokenizer = (*hftok.Tokenizer)(nil)

// Forms of the answers. An answer may begin with a space (SmolVLM's "Assistant:" is
// followed by one) or not (Qwen's turn begins on a line of its own).
func yesForms() []string { return []string{"Yes", "yes", " Yes", " yes"} }
func noForms() []string  { return []string{"No", "no", " No", " no"} }

// words are the ids of the answers whose probabilities are read.
type words struct {
	yes, no []int64
	digits  [10][]int64
}

func findWords(t tokenizer) words {
	w := words{yes: single(t, yesForms()...), no: single(t, noForms()...)}
	for d := range w.digits {
		s := strconv.Itoa(d)
		w.digits[d] = single(t, s, " "+s)
	}
	return w
}

// single are the ids of those forms that are one token, and that the token says again:
// what a vocabulary lacks is an unknown token, or several.
func single(t tokenizer, forms ...string) []int64 {
	var found []int64
	for _, form := range forms {
		got, err := t.Encode(form, false)
		if err != nil || len(got) != 1 {
			continue
		}
		said, err := t.Decode(got, true)
		if err != nil || strings.TrimSpace(said) != strings.TrimSpace(form) {
			continue
		}
		found = append(found, got[0])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// readSpecial reads from tokenizer.json the texts of the special tokens, which a text
// of a sample must not have the effect of.
func readSpecial(data []byte) ([]string, error) {
	var t struct {
		Added []struct {
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens"`
	}
	if err := decodeLoose("tokenizer.json", data, &t); err != nil {
		return nil, err
	}
	var found []string
	for _, a := range t.Added {
		if a.Special && a.Content != "" {
			found = append(found, a.Content)
		}
	}
	return found, nil
}

// harmless makes a text of a sample mean nothing but text: where it holds the text of a
// special token, a space behind the first character takes the effect. Without this a
// prompt that says <|im_end|> ends the question, and can answer it itself.
func harmless(special []string) *strings.Replacer {
	pairs := make([]string, 0, 2*len(special))
	for _, s := range special {
		if _, n := utf8.DecodeRuneInString(s); len(s) > n {
			pairs = append(pairs, s, s[:n]+" "+s[n:])
		}
	}
	return strings.NewReplacer(pairs...)
}

// logits are those of some tokens at one place.
type logits struct {
	ids []int64
	// of are the tokens' logits, and total is log Σ exp over the whole vocabulary.
	of    []float32
	total float64
}

// logprob is log Σ P over the ids, which must be among those that were asked for.
func (l logits) logprob(ids []int64) (float64, error) {
	sum := math.Inf(-1)
	for _, id := range ids {
		i := slices.Index(l.ids, id)
		if i < 0 {
			return 0, fmt.Errorf("token %d was not requested", id)
		}
		sum = addLog(sum, float64(l.of[i]))
	}
	return sum - l.total, nil
}

// addLog is log(eᵃ + eᵇ).
func addLog(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	if math.IsInf(b, -1) {
		return a
	}
	return a + math.Log1p(math.Exp(b-a))
}

// share is eᵃ/(eᵃ+eᵇ), by the difference of the logarithms, which holds where both are
// too small for a float64.
func share(a, b float64) float64 { return 1 / (1 + math.Exp(b-a)) }

// softmax makes shares of logarithms of probabilities, and the logarithm of their sum.
func softmax(logs []float64) (shares []float64, total float64) {
	most := slices.Max(logs)
	shares = make([]float64, len(logs))
	sum := 0.0
	for i, v := range logs {
		shares[i] = math.Exp(v - most)
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares, most + math.Log(sum)
}

// probability is eᵃ, at most 1: sums of rounded float32 may pass it by a hair.
func probability(log float64) float64 { return min(math.Exp(log), 1) }
