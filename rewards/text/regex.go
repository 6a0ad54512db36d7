package text

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of a pattern. A match takes at most its instructions times the length of
// the text; maxSteps of them take about a second.
const (
	maxPattern      = 4096 // Bytes.
	maxInstructions = 2000
	maxSteps        = 1 << 27
)

type regexOptions struct {
	// Pattern is what the response must match, in RE2 syntax; required.
	Pattern string `json:"pattern"`
	// FullMatch wants the whole response to match, not a part of it.
	FullMatch bool `json:"full_match"`
	// EqualsGroundTruth compares the match with the ground truth: its first group
	// where the pattern has one, both without whitespace around them. It is the first
	// match; a pattern that begins with (?s).* finds the last. (Going through all
	// matches is not linear: each may look ahead to the end of the text.)
	EqualsGroundTruth bool `json:"equals_ground_truth"`
	// Score is the reward of a response that matches (and is equal); 1.
	Score float64 `json:"score"`
	// MissScore is the reward of a response that does not match; 0.
	MissScore float64 `json:"miss_score"`
}

func (o regexOptions) validate() error {
	if o.FullMatch && o.EqualsGroundTruth {
		return errors.New("full_match and equals_ground_truth: keep one")
	}
	return nil
}

func regexSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "regex",
		Summary: "whether the response matches a pattern, or whether the matched text is the right answer",
		Options: []rewards.Option{
			{Name: "pattern", Type: "string", Default: "required", Doc: "regular expression in RE2 syntax: no backreferences, no look-around; (?i) ignores case, (?s) lets . match a newline"},
			{Name: "full_match", Type: "bool", Default: "false", Doc: "true: the whole response must match the pattern"},
			{Name: "equals_ground_truth", Type: "bool", Default: "false", Doc: "true: the first match (or its group 1, if the pattern has groups) must equal the ground truth; write (?s).* in front for the last match"},
			{Name: "score", Type: "number", Default: "1", Doc: "reward of a response that matches"},
			{Name: "miss_score", Type: "number", Default: "0", Doc: "reward of a response that does not match"},
		},
		Build: build(regexOptions{Score: 1}, newRegex),
	}
}

func newRegex(o regexOptions) (*scorer, error) {
	pattern := o.Pattern
	if o.FullMatch {
		pattern = `\A(?:` + pattern + `)\z`
	}
	re, instructions, err := compile(o.Pattern, pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern: %w", err)
	}
	return &scorer{rate: func(_ context.Context, s *rewards.Sample, response string) (rewards.Score, error) {
		if steps := len(response) * instructions; steps > maxSteps {
			return rewards.Score{}, bad(s, "has a response of %d bytes for a pattern of %d instructions, want at most %d steps for both: write a shorter pattern",
				len(response), instructions, maxSteps)
		}
		if !o.EqualsGroundTruth {
			return o.score(re.MatchString(response)), nil
		}
		want, err := truth(s, maxText)
		if err != nil {
			return rewards.Score{}, err
		}
		answer, ok := match(re, response)
		score := o.score(ok && strip(answer) == strip(want))
		score.Details = map[string]any{"answer": clip(strip(answer))}
		return score, nil
	}}, nil
}

func (o regexOptions) score(hit bool) rewards.Score {
	if hit {
		return rewards.Score{Value: o.Score}
	}
	return rewards.Score{Value: o.MissScore}
}

// match is the first group of the first match, or all of it.
func match(re *regexp.Regexp, s string) (string, bool) {
	m := re.FindStringSubmatch(s)
	if m == nil {
		return "", false
	}
	return m[min(1, len(m)-1)], true
}

// compile compiles a pattern of the configuration and counts its instructions,
// before it is unrolled: (((a{100}){100}){100}) is a million of them.
func compile(written, pattern string) (*regexp.Regexp, int, error) {
	switch {
	case written == "":
		return nil, 0, errors.New("is required")
	case len(written) > maxPattern:
		return nil, 0, fmt.Errorf("is %d bytes long, at most %d", len(written), maxPattern)
	}
	// Parsed as it was written, so that a ) too many cannot close our own bracket.
	tree, err := syntax.Parse(written, syntax.Perl)
	if err != nil {
		return nil, 0, err
	}
	n := instructions(tree) + 2 // One to fail at, one to match at.
	if n > maxInstructions {
		return nil, 0, fmt.Errorf("unrolls to %d instructions, want at most %d: make its repetitions {n,m} smaller", n, maxInstructions)
	}
	re, err := regexp.Compile(pattern)
	return re, n, err
}

// instructions is at least the length of the program of a pattern, and at most
// about twice it.
func instructions(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpConcat:
		return n
	case syntax.OpRepeat:
		return max(re.Min, re.Max, 1) * (n + 1)
	}
	return n + 1 + len(re.Sub)
}
