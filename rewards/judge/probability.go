package judge

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/chat"
)

// topTokens is how many alternatives of the first token are asked for: what OpenAI
// gives at most, and what Flow-Factory and GenEval2 ask for.
const topTokens = 20

// alternatives are the likeliest first tokens of an answer. What is not among them
// is less likely than the last of them, and counts as 0, as everywhere.
func alternatives(r chat.Reply) ([]chat.Token, error) {
	if len(r.Logprobs) == 0 {
		return nil, errors.New("the answer has no tokens")
	}
	top := r.Logprobs[0].Top
	if len(top) == 0 {
		top = r.Logprobs[:1]
	}
	return top, nil
}

// pair is how likely the two answers are.
type pair struct{ yes, no float64 }

// yesNo adds up the probabilities of Yes and No: of the tokens "Yes" and "No", or
// with folded of all that are these without regard to case and surrounding space.
// An answer that may be neither was not to the question.
func yesNo(r chat.Reply, folded bool) (pair, error) {
	top, err := alternatives(r)
	if err != nil {
		return pair{}, err
	}
	yes, no, found := math.Inf(-1), math.Inf(-1), false
	for _, t := range top {
		word := t.Text
		if folded {
			word = strings.ToLower(strings.TrimSpace(word))
		}
		switch {
		case word == "Yes" || (folded && word == "yes"):
			yes, found = addLog(yes, t.Logprob), true
		case word == "No" || (folded && word == "no"):
			no, found = addLog(no, t.Logprob), true
		}
	}
	if !found {
		return pair{}, fmt.Errorf("neither Yes nor No is among the %d likeliest first tokens", len(top))
	}
	return pair{yes, no}, nil
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

// mass is the probability of either answer; little of it means that the question is
// put so that the model answers with something else.
func (p pair) mass() float64 { return min(math.Exp(p.yes)+math.Exp(p.no), 1) }

// ratio is P(Yes)/(P(Yes)+P(No)), by the difference of the logarithms, which holds
// where both are too small for a float64.
func (p pair) ratio() float64 { return 1 / (1 + math.Exp(p.no-p.yes)) }

// expectedDigit is Σ d·P(d) / Σ P(d) over the digits low to high among the likeliest
// first tokens, and Σ P(d).
func expectedDigit(r chat.Reply, low, high int) (expected, mass float64, err error) {
	top, err := alternatives(r)
	if err != nil {
		return 0, 0, err
	}
	// Relative to the likeliest digit, so that a sum of tiny ones does not vanish.
	most := math.Inf(-1)
	digits := make(map[int]float64, high-low+1)
	for _, t := range top {
		word := strings.TrimSpace(t.Text)
		d, err := strconv.Atoi(word)
		if err != nil || len(word) != 1 || d < low || d > high {
			continue
		}
		known, ok := digits[d]
		if !ok {
			known = math.Inf(-1)
		}
		digits[d] = addLog(known, t.Logprob)
		most = max(most, digits[d])
	}
	if len(digits) == 0 {
		return 0, 0, fmt.Errorf("no digit from %d to %d is among the %d likeliest first tokens", low, high, len(top))
	}
	sum, total := 0.0, 0.0
	for d := low; d <= high; d++ { // in order, for the sum to be the same every time
		if lp, ok := digits[d]; ok {
			w := math.Exp(lp - most)
			sum += w * float64(d)
			total += w
		}
	}
	return sum / total, min(total*math.Exp(most), 1), nil
}
