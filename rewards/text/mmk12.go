package text

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// The ways of mmk12 to compare values, for which the original has math_verify.
const (
	refuseValues = "refuse"
	equalText    = "equal_text"
)

type mmk12Options struct {
	// FormatScore is what a response gets for its form alone; 0.3.
	FormatScore float64 `json:"format_score"`
	// Values says what becomes of an answer that is no letter: "refuse" (default)
	// fails the sample, "equal_text" compares it character by character.
	Values string `json:"values"`
}

func (o mmk12Options) validate() error {
	var errs rewards.Faults
	errs.Add(o.FormatScore < 0, "format_score: %v, want 0 or more", o.FormatScore)
	return errors.Join(append(errs, oneOf("values", o.Values, refuseValues, equalText))...)
}

func mmk12Spec() rewards.Spec {
	return rewards.Spec{
		Name:    "mmk12",
		Summary: "is the letter of the <answer> the right one, and is the answer tagged and boxed (verl-omni, MMK12 choices)",
		Options: []rewards.Option{
			{Name: "format_score", Type: "number", Default: "0.3", Doc: "what the form counts beside the answer's 1, before both are scaled to 0…1"},
			{Name: "values", Type: "string", Default: refuseValues, Doc: "answers that are not a letter: refuse fails the sample, equal_text compares them character by character"},
		},
		Build: build(mmk12Options{FormatScore: 0.3, Values: refuseValues}, newMMK12),
	}
}

func newMMK12(o mmk12Options) (*scorer, error) {
	return &scorer{
		fields: []rewards.Field{{Name: "format_reward", Kind: rewards.Number}, {Name: "accuracy", Kind: rewards.Number}},
		rate: func(_ context.Context, s *rewards.Sample, response string) (rewards.Score, error) {
			gt, err := truth(s, maxText)
			if err != nil {
				return rewards.Score{}, err
			}
			gt, response = withoutDegrees(strip(gt)), withoutDegrees(response)
			content := response
			inner, tagged := between(response, openAnswer, endAnswer)
			if tagged {
				inner = strip(inner)
				content = inner
			}
			accuracy, err := o.accuracy(s, content, gt)
			if err != nil {
				return rewards.Score{}, err
			}
			checks := 0.0
			if tagged {
				once := strings.Count(response, openAnswer) == 1 && strings.Count(response, endAnswer) == 1
				checks = number(once) + number(strings.Contains(inner, boxed))
			}
			format := o.FormatScore * checks / 2
			return rewards.Score{
				Value:   (accuracy + format) / (1 + o.FormatScore),
				Extra:   map[string]any{"format_reward": format, "accuracy": accuracy},
				Details: map[string]any{"answer": clip(content)},
			}, nil
		},
	}, nil
}

// accuracy is 1 for the right letter, half of what the value is worth for the
// text of the right option, and what the value is worth where no letter is asked.
func (o mmk12Options) accuracy(s *rewards.Sample, content, gt string) (float64, error) {
	if len(gt) != 1 || !strings.Contains("ABCDEabcde", gt) {
		return o.value(s, content, gt)
	}
	want := strings.ToUpper(gt)
	if letter := lastLetter(content); letter != "" {
		return number(letter == want), nil
	}
	raw, err := extraInfo(s, "options")
	if err != nil {
		return 0, err
	}
	option, err := optionText(raw, want)
	if err != nil {
		return 0, bad(s, "%v", err)
	}
	if option == "" {
		return 0, nil
	}
	v, err := o.value(s, content, option)
	return v * 0.5, err
}

// value is what math_verify would say of two mathematical expressions.
func (o mmk12Options) value(s *rewards.Sample, content, want string) (float64, error) {
	if o.Values == equalText {
		return number(content == want), nil
	}
	return 0, bad(s, "answers with a value, not a letter A to E (%.40q against %.40q): numeric answers need math_verify; "+
		"run verl_omni/utils/reward_score/mmk12_reward.py in a Python process (path: mmk12_reward.py, name: compute_score), "+
		"or set values: equal_text to compare the characters", content, want)
}

// optionText is the text of an option: extra_info.options is a string holding a
// JSON object, letter to text. Anything but a string has no options.
func optionText(raw json.RawMessage, letter string) (string, error) {
	var inner string
	isText := json.Unmarshal(raw, &inner) == nil
	if !isText || !json.Valid([]byte(inner)) {
		return "", nil
	}
	var options map[string]json.RawMessage
	if err := json.Unmarshal([]byte(inner), &options); err != nil {
		return "", fmt.Errorf("has extra_info.options that are not a JSON object: %.40s", inner)
	}
	switch text := string(options[letter]); text {
	case "", "null", "false", "0", "0.0", "[]", "{}":
		return "", nil // What Python takes for nothing.
	default:
		var option string
		if err := json.Unmarshal(options[letter], &option); err != nil {
			return "", fmt.Errorf("has an option %s in extra_info.options that is not a text: %.40s", letter, text)
		}
		return option, nil
	}
}

// lastLetter is the last A to E that is no part of an ASCII word.
func lastLetter(s string) string {
	letter := func(i int) bool {
		return i >= 0 && i < len(s) && ('a' <= s[i]|0x20 && s[i]|0x20 <= 'z')
	}
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] >= 'A' && s[i] <= 'E' && !letter(i-1) && !letter(i+1) {
			return s[i : i+1]
		}
	}
	return ""
}

var degrees = regexp.MustCompile(`(\p{Nd})` + space + `*(?:°|\^\\circ|\\circ)`)

// withoutDegrees drops the degree signs after numbers.
func withoutDegrees(s string) string {
	if !strings.Contains(s, "°") && !strings.Contains(s, `\circ`) {
		return s
	}
	return degrees.ReplaceAllString(s, "$1")
}
