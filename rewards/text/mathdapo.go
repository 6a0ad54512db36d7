package text

import (
	"context"
	"regexp"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// tailOfBox is how many code points of the end are looked at for a boxed answer.
const tailOfBox = 100

// noAnswer is what verl takes for the answer of a response without one.
const noAnswer = "[INVALID]"

type mathDAPOOptions struct {
	// StrictBoxVerify wants the answer in \boxed{} within the last 100 characters,
	// letter by letter; off: after "Answer:", normalised.
	StrictBoxVerify bool `json:"strict_box_verify"`
	// BoxedFallback takes a response without "Answer:" as StrictBoxVerify would; on,
	// as in verl from 0.9.1. Off, it has no answer.
	BoxedFallback bool `json:"boxed_fallback"`
}

func (mathDAPOOptions) validate() error { return nil }

func mathDAPOSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "math_dapo",
		Summary: "1 if the text after the last \"Answer:\" is the right answer, else -1 (verl, DAPO and AIME)",
		Options: []rewards.Option{
			{Name: "strict_box_verify", Type: "bool", Default: "false", Doc: `true: the answer is the content of \boxed{} in the last 100 characters, compared exactly`},
			{Name: "boxed_fallback", Type: "bool", Default: "true", Doc: "true: in a response without \"Answer:\" the content of \\boxed{} is the answer (verl 0.9.1 and newer); false: such a response has no answer (older verl)"},
		},
		Build: build(mathDAPOOptions{BoxedFallback: true}, newMathDAPO),
	}
}

func newMathDAPO(o mathDAPOOptions) (*scorer, error) {
	return &scorer{
		fields: []rewards.Field{{Name: "acc", Kind: rewards.Bool}, {Name: "pred", Kind: rewards.String}},
		rate: func(_ context.Context, s *rewards.Sample, response string) (rewards.Score, error) {
			want, err := truth(s, maxAnswer)
			if err != nil {
				return rewards.Score{}, err
			}
			answer, ok, right := o.judge(tail(response, tailOfMath), want)
			extra := map[string]any{"acc": right}
			if ok {
				extra["pred"] = answer
			}
			return rewards.Score{Value: 2*number(right) - 1, Extra: extra}, nil
		},
	}, nil
}

// judge finds the answer and says whether it is the right one. Only the strict way
// may find none.
func (o mathDAPOOptions) judge(response, want string) (answer string, ok, right bool) {
	if !o.StrictBoxVerify {
		answer = minervaAnswer(response)
		if answer != noAnswer || !o.BoxedFallback {
			return answer, true, answer == normaliseMinerva(want)
		}
	}
	inBox, ok := lastBoxed(tail(response, tailOfBox))
	if !ok && !o.StrictBoxVerify {
		return answer, true, answer == normaliseMinerva(want)
	}
	return inBox, ok, ok && inBox == want
}

var answerPattern = regexp.MustCompile(`(?i)Answer` + space + `*:` + space + `*([^\n]+)`)

// minervaAnswer is the normalised rest of the line after the last "Answer:".
func minervaAnswer(s string) string {
	all := answerPattern.FindAllStringSubmatch(s, -1)
	if len(all) == 0 {
		return normaliseMinerva(noAnswer)
	}
	return normaliseMinerva(all[len(all)-1][1])
}

// minervaReplaced is done pair by pair, in this order: articles, LaTeX spaces, and
// spellings of the same thing.
//
//nolint:gochecknoglobals // a table
var minervaReplaced = [][2]string{
	{"an ", ""},
	{"a ", ""},
	{".$", "$"},
	{`\$`, ""},
	{`\ `, ""},
	{" ", ""},
	{"mbox", "text"},
	{`,\text{and}`, ","},
	{`\text{and}`, ","},
	{`\text{m}`, `\text{}`},
}

// minervaRemoved is taken out one after the other, in this order: units and
// typesetting.
//
//nolint:gochecknoglobals // a table
var minervaRemoved = []string{
	"square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", `\ldots`, "sue",
	"points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals",
	"edges", "students", "childrentickets", "multiples",
	`\text{s}`, `\text{.}`, "\\text{\ns}", `\text{}^2`, `\text{}^3`, "\\text{\n}", `\text{}`,
	`\mathrm{th}`, `^\circ`, `^{\circ}`, `\;`, `,\!`, "{,}", `"`, `\dots`,
}

// minervaRewritten are the patterns, in this order: what stands in the first pair
// of dollar signs of a line alone, wrappers without their wrapping, and the
// arguments of \frac and \sqrt in braces.
//
//nolint:gochecknoglobals // a table
var minervaRewritten = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`.*?\$(.*?)\$.*`), "$$${1}$$"},
	{regexp.MustCompile(`\\text\{(.*?)\}`), "${1}"},
	{regexp.MustCompile(`\\textbf\{(.*?)\}`), "${1}"},
	{regexp.MustCompile(`\\overline\{(.*?)\}`), "${1}"},
	{regexp.MustCompile(`\\boxed\{(.*)\}`), "${1}"},
	{regexp.MustCompile(`frac([^{])(.)`), "frac{${1}}{${2}}"},
	{regexp.MustCompile(`sqrt([^{])`), "sqrt{${1}}"},
}

// normaliseMinerva brings an answer to the form in which DAPO compares it; the
// rules are those of Lewkowycz et al., "Solving Quantitative Reasoning Problems
// with Language Models" (Minerva, 2022), as verl has them.
func normaliseMinerva(s string) string {
	s = s[strings.LastIndexByte(s, '=')+1:]
	for _, r := range minervaReplaced {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	for _, r := range minervaRemoved {
		s = strings.ReplaceAll(s, r, "")
	}
	for _, r := range minervaRewritten {
		s = r.pattern.ReplaceAllString(s, r.with)
	}
	s = strings.ReplaceAll(s, "$", "")
	if plain := strings.ReplaceAll(s, ",", ""); isDigits(plain) {
		s = plain
	}
	return strip(s)
}
