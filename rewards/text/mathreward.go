package text

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/rewards"
)

func mathRewardSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "math_reward",
		Summary: `1 if the content of the last \boxed{} is the right answer after LaTeX is normalised, else 0 (verl, MATH)`,
		Build:   build(noOptions{}, newMathReward),
	}
}

func newMathReward(noOptions) (*scorer, error) {
	return &scorer{rate: func(_ context.Context, s *rewards.Sample, response string) (rewards.Score, error) {
		want, err := truth(s, maxAnswer)
		if err != nil {
			return rewards.Score{}, err
		}
		answer, ok := mathAnswer(response)
		if !ok {
			return rewards.Score{}, nil
		}
		right := number(sameMath(answer, want))
		return rewards.Score{Value: right, Details: map[string]any{"answer": clip(answer)}}, nil
	}}, nil
}

// mathAnswer is what follows the last "\boxed " up to a dollar sign, if that is
// anywhere in s; else what the last \boxed{} holds. The original finds \fbox too,
// and then never accepts it.
func mathAnswer(s string) (string, bool) {
	const open = `\boxed `
	if i := strings.LastIndex(s, open); i >= 0 {
		answer, _, _ := strings.Cut(s[i+len(open):], "$")
		return answer, true
	}
	// A last \boxed without its brace hides the ones before it.
	if i := strings.LastIndex(s, `\boxed`); i < 0 || !strings.HasPrefix(s[i:], boxed) {
		return "", false
	}
	return lastBoxed(s)
}

// sameMath compares two answers in normal form; where one of them has none, as
// they are written.
func sameMath(a, b string) bool {
	na, errA := normaliseMath(a)
	nb, errB := normaliseMath(b)
	if errA != nil || errB != nil {
		return a == b
	}
	return na == nb
}

// errLaTeX is the answer of normaliseMath to LaTeX on which the original fails.
var errLaTeX = errors.New("no normal form")

// mathReplaced is done pair by pair, in this order.
//
//nolint:gochecknoglobals // a table
var mathReplaced = [][2]string{
	{"\n", ""},
	{`\!`, ""},
	{`\\`, `\`},
	{"tfrac", "frac"},
	{"dfrac", "frac"},
	{`\left`, ""},
	{`\right`, ""},
	{`^{\circ}`, ""},
	{`^\circ`, ""},
	{`\$`, ""},
}

// normaliseMath is the normal form of Hendrycks et al., "Measuring Mathematical
// Problem Solving With the MATH Dataset" (2021), as verl has it.
func normaliseMath(s string) (string, error) {
	for _, r := range mathReplaced {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	switch before, after, found := strings.Cut(s, `\text{ `); {
	case found && strings.Contains(after, `\text{ `):
		return "", errLaTeX
	default:
		s = before // A unit on the right is left out.
	}
	for _, r := range [][2]string{{`\\%`, ""}, {`\%`, ""}, {" .", " 0."}, {"{.", "{0."}} {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	if s == "" {
		return "", nil
	}
	if s[0] == '.' {
		s = "0" + s
	}
	if name, value, found := strings.Cut(s, "="); found && !strings.Contains(value, "=") && utf8.RuneCountInString(name) <= 2 {
		s = value
	}
	s, err := braceRoots(s)
	if err != nil {
		return "", err
	}
	if s, err = braceFractions(strings.ReplaceAll(s, " ", "")); err != nil {
		return "", err
	}
	if s == "0.5" {
		return `\frac{1}{2}`, nil
	}
	return slashFraction(s), nil
}

// first splits off the first code point of a text that is not empty.
func first(s string) (head, rest string) {
	_, n := utf8.DecodeRuneInString(s)
	return s[:n], s[n:]
}

// braceRoots writes \sqrt3 as \sqrt{3}.
func braceRoots(s string) (string, error) {
	const root = `\sqrt`
	parts := strings.Split(s, root)
	var b strings.Builder
	b.WriteString(parts[0])
	for _, part := range parts[1:] {
		if part == "" {
			return "", errLaTeX
		}
		b.WriteString(root)
		head, rest := first(part)
		if head != "{" {
			head = "{" + head + "}"
		}
		b.WriteString(head + rest)
	}
	return b.String(), nil
}

// braceFractions writes \frac12 as \frac{1}{2} and \frac1{72} as \frac{1}{72}. A
// \frac with a single character after it leaves the whole text as it is.
func braceFractions(s string) (string, error) {
	const fraction = `\frac`
	parts := strings.Split(s, fraction)
	var b strings.Builder
	b.WriteString(parts[0])
	for _, part := range parts[1:] {
		if part == "" {
			return "", errLaTeX
		}
		b.WriteString(fraction)
		top, rest := first(part)
		if top == "{" {
			b.WriteString(part)
			continue
		}
		if rest == "" {
			return s, nil
		}
		bottom, rest := first(rest)
		if bottom != "{" {
			bottom = "{" + bottom + "}"
		}
		b.WriteString("{" + top + "}" + bottom + rest)
	}
	return b.String(), nil
}

// maxDigits is how long a number Python turns into an int.
const maxDigits = 4300

var wholeNumber = regexp.MustCompile(`^(?:0|-?[1-9][0-9]*)$`)

// slashFraction writes 3/4 as \frac{3}{4} where both are whole numbers without
// leading zeros.
func slashFraction(s string) string {
	top, bottom, found := strings.Cut(s, "/")
	whole := func(n string) bool {
		return wholeNumber.MatchString(n) && len(strings.TrimPrefix(n, "-")) <= maxDigits
	}
	if !found || !whole(top) || !whole(bottom) {
		return s
	}
	return `\frac{` + top + "}{" + bottom + "}"
}
