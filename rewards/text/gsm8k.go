package text

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// tailOfMath is how many code points of the end of a response verl looks at for
// the answer to a question of mathematics.
const tailOfMath = 300

// The two ways of gsm8k to find the answer.
const (
	strictMethod   = "strict"
	flexibleMethod = "flexible"
)

var (
	markedNumber = regexp.MustCompile(`#### (-?[0-9.,]+)`)
	anyNumber    = regexp.MustCompile(`-?[0-9.,]+`)
)

type gsm8kOptions struct {
	// Method is "strict" (default): the last number after ####, without commas; or
	// "flexible": the last number, as it is written.
	Method string `json:"method"`
	// FormatScore is the reward of a wrong answer; 0.
	FormatScore float64 `json:"format_score"`
	// Score is the reward of the right answer; 1.
	Score float64 `json:"score"`
}

func (o gsm8kOptions) validate() error {
	return oneOf("method", o.Method, strictMethod, flexibleMethod)
}

func gsm8kSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "gsm8k",
		Summary: "whether the number at the end of the response is right (verl, grade-school mathematics)",
		Options: []rewards.Option{
			{Name: "method", Type: "string", Default: strictMethod, Doc: "which number is the answer: strict, the last number after ####; or flexible, the last number of the response"},
			{Name: "format_score", Type: "number", Default: "0", Doc: "reward of a wrong answer; a response without an answer gets 0"},
			{Name: "score", Type: "number", Default: "1", Doc: "reward of the right answer"},
		},
		Build: build(gsm8kOptions{Method: strictMethod, Score: 1}, newGSM8K),
	}
}

func newGSM8K(o gsm8kOptions) (*scorer, error) {
	return &scorer{rate: func(_ context.Context, s *rewards.Sample, response string) (rewards.Score, error) {
		want, err := truth(s, maxAnswer)
		if err != nil {
			return rewards.Score{}, err
		}
		answer, ok := gsm8kAnswer(tail(response, tailOfMath), o.Method)
		switch {
		case !ok:
			return rewards.Score{}, nil
		case answer == want:
			return rewards.Score{Value: o.Score, Details: map[string]any{"answer": answer}}, nil
		}
		return rewards.Score{Value: o.FormatScore, Details: map[string]any{"answer": answer}}, nil
	}}, nil
}

// gsm8kAnswer finds the number. Of a text with nothing but full stops, flexible
// takes the first, as the original does.
func gsm8kAnswer(s, method string) (string, bool) {
	if method == strictMethod {
		all := markedNumber.FindAllStringSubmatch(s, -1)
		if len(all) == 0 {
			return "", false
		}
		return strings.ReplaceAll(all[len(all)-1][1], ",", ""), true
	}
	all := anyNumber.FindAllString(s, -1)
	for i, answer := range slices.Backward(all) {
		if answer != "." || i == 0 {
			return answer, true
		}
	}
	return "", false
}
