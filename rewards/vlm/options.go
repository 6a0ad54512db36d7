package vlm

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// The modes of the scorer.
const (
	modeYesNo      = "yes_no"
	modeDigit      = "digit"
	modeCandidates = "candidates"
	modeGenerate   = "generate"
)

// Other words of the options.
const (
	showAuto   = "auto"
	showAlways = "always"
	showNever  = "never"
	videoMean  = "mean"
	videoClip  = "clip"
	matchFirst = "first"
	matchLast  = "last"
)

// Bounds of options: more is a slip of the keyboard.
const (
	maxFrames     = 384
	maxCandidates = 64
)

// scorerOptions are those of the scorer "vlm".
type scorerOptions struct {
	Options
	// Mode is yes_no, digit, candidates or generate.
	Mode string `json:"mode"`
	// Template is the question, with {prompt}, {response}, {ground_truth}; "": the mode's.
	Template string `json:"template"`
	// System is the system message; "": the model's own, or none.
	System string `json:"system"`
	// Prefix is what the answer is made to begin with.
	Prefix string `json:"prefix"`

	// Show says whether the picture is shown: "always", "auto" (where there is one) or
	// "never".
	Show string `json:"show"`
	// Frames are those of a video that are shown.
	Frames rewards.FrameChoice `json:"frames"`
	// Video is "mean" (each frame is asked about by itself) or "clip" (all in one question).
	Video string `json:"video"`
	// MinMass is the least mass of probability, 0 to 1, that the answers looked for must
	// have together; 0: any.
	MinMass float64 `json:"min_mass"`

	// Low and High are the digits of mode digit that become 0 and 1.
	Low  int `json:"low"`
	High int `json:"high"`

	// Candidates are the answers of mode candidates, with placeholders, and Expected the
	// right one of them; "": the first.
	Candidates []string `json:"candidates"`
	Expected   string   `json:"expected"`
	// Normalise divides the probability of the expected answer by that of all candidates.
	Normalise bool `json:"normalise"`

	// MaxTokens bounds an answer of mode generate.
	MaxTokens int `json:"max_tokens"`
	// Tag or Regex say where the score stands in it, and Match which of several counts.
	Tag   string `json:"tag"`
	Regex string `json:"regex"`
	Match string `json:"match"`
	// Min and Max bound the score; the value is (score·Scale) + Offset.
	Min    *float64 `json:"min"`
	Max    *float64 `json:"max"`
	Scale  float64  `json:"scale"`
	Offset float64  `json:"offset"`
}

func defaultScorerOptions() *scorerOptions {
	return &scorerOptions{
		Options: defaultOptions(), Mode: modeYesNo, Show: showAlways, Frames: rewards.EvenFrames(4), Video: videoMean,
		Low: 1, High: 5, Normalise: true, MaxTokens: 256, Match: matchLast, Scale: 1,
	}
}

var tagName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// validate names everything that is wrong.
func (o *scorerOptions) validate() error {
	errs := rewards.Faults{
		o.Options.validate(),
		oneOf("mode", o.Mode, modeYesNo, modeDigit, modeCandidates, modeGenerate),
		oneOf("show", o.Show, showAlways, showAuto, showNever),
		oneOf("video", o.Video, videoMean, videoClip),
		oneOf("match", o.Match, matchLast, matchFirst),
	}
	check := func(ok bool, format string, args ...any) {
		errs.Add(!ok, format, args...)
	}
	check(o.Frames.Uniform() <= maxFrames, "frames: %d, want at most %d", o.Frames.Uniform(), maxFrames)
	check(o.MinMass >= 0 && o.MinMass <= 1, "min_mass: %v, want 0 to 1", o.MinMass)
	check(o.MinMass == 0 || o.Mode != modeGenerate, "min_mass: mode generate reads no probabilities")
	check(o.Low >= 0 && o.High <= 9 && o.Low < o.High, "low and high: %d and %d, want two digits, the lower first: a longer number is not a single token", o.Low, o.High)
	check(o.MaxTokens >= 1 && o.MaxTokens <= infer.MaxNew, "max_tokens: %d, want 1 to %d", o.MaxTokens, infer.MaxNew)
	check(len(o.System) <= maxText && len(o.Prefix) <= maxText, "system and prefix: %d and %d bytes, want at most %d each", len(o.System), len(o.Prefix), maxText)
	check(o.Template != "" || o.Mode == modeYesNo || o.Mode == modeDigit, "template: mode %s needs a question", o.Mode)
	errs = append(errs, o.validateCandidates(), o.validateExtraction())
	return errors.Join(errs...)
}

func (o *scorerOptions) validateCandidates() error {
	n := len(o.Candidates)
	switch {
	case o.Mode != modeCandidates && (n > 0 || o.Expected != ""):
		return errors.New("candidates and expected: these options are only for mode: candidates")
	case o.Mode != modeCandidates:
		return nil
	case n == 0 || n > maxCandidates:
		return fmt.Errorf("candidates: %d, want 1 to %d answers", n, maxCandidates)
	case n == 1 && o.Normalise:
		return errors.New("candidates: a single one has all of the probability; add others, or set normalise: false")
	case o.Expected != "" && !slices.Contains(o.Candidates, o.Expected) && !strings.Contains(o.Expected+strings.Join(o.Candidates, ""), "{"):
		return fmt.Errorf("expected: %q is none of the candidates", o.Expected)
	}
	return nil
}

func (o *scorerOptions) validateExtraction() error {
	var errs rewards.Faults
	if o.Regex != "" {
		if re, err := regexp.Compile(o.Regex); err != nil {
			errs = append(errs, fmt.Errorf("regex: %w", err))
		} else if re.NumSubexp() < 1 {
			errs = append(errs, fmt.Errorf("regex: %q has no group; put the score into parentheses", o.Regex))
		}
	}
	errs.Add(o.Tag != "" && o.Regex != "", "regex and tag: set only one")
	errs.Add(o.Tag != "" && !tagName.MatchString(o.Tag), "tag: %q is not a name; want a name such as score for <score>", o.Tag)
	if o.Min != nil && o.Max != nil && *o.Min >= *o.Max {
		errs = append(errs, fmt.Errorf("min and max: %v and %v, want the lower first", *o.Min, *o.Max))
	}
	errs.Add(o.Scale == 0 || !finite(o.Scale) || !finite(o.Offset), "scale and offset: %v and %v, want numbers, and a scale that is not 0", o.Scale, o.Offset)
	return errors.Join(errs...)
}

// oneOf checks an option that is a word.
func oneOf(name, got string, want ...string) error {
	if slices.Contains(want, got) {
		return nil
	}
	return fmt.Errorf("%s: %q is unknown, want one of %q", name, got, want)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// documentation is scorerOptions for people: `rewardloop scorers` prints it.
func documentation() []rewards.Option {
	return []rewards.Option{
		{Name: "model", Type: "string", Default: DefaultModel, Doc: "model: a folder in the layout of transformers.js, or a name that rewardloop models list shows"},
		{Name: "device", Type: "string", Default: infer.CPU, Doc: "device that runs the model: " + infer.DeviceForm},
		{Name: "dtype", Type: "string", Default: "judge.json's, else fp32", Doc: "precision of the model, which selects files of onnx/: fp32, q4, q8, int8, fp16 and so on"},
		{Name: "split", Type: "bool", Default: "judge.json's, else false", Doc: "true: the model also sees large pictures in tiles (idefics3, smolvlm); small print becomes legible, at up to 17 times the cost"},
		{Name: "mode", Type: "string", Default: modeYesNo, Doc: "how the score is made: yes_no, P(yes)/(P(yes)+P(no)); digit, the mean of the digits by probability; candidates, the probability of whole answers; generate, a score that is read from the generated answer"},
		{Name: "template", Type: "string", Default: "yes_no: VQAScore's; digit: how well it matches {prompt}", Doc: "template of the question; placeholders: {prompt}, {response}, {ground_truth}; required with mode: candidates and generate"},
		{Name: "system", Type: "string", Default: "the model's own", Doc: "system message of the question"},
		{Name: "prefix", Type: "string", Default: "none", Doc: "text with which the answer is forced to begin, such as \"Score: \""},
		{Name: "show", Type: "string", Default: showAlways, Doc: "whether the model sees the sample's picture: always (a sample without a picture fails), auto (if there is one), never"},
		{Name: "frames", Type: "string", Default: "uniform:4", Doc: "frames of a video that the model sees: " + rewards.FramesForm + " (at floor(i·N/n)); a number n means uniform:n"},
		{Name: "video", Type: "string", Default: videoMean, Doc: "how a video is judged: mean, the mean of a question for each frame; or clip, all frames in one question"},
		{Name: "min_mass", Type: "number", Default: "0", Doc: "minimum total probability of the valid answers, 0 to 1; below this the sample fails"},
		{Name: "low", Type: "int", Default: "1", Doc: "digit that becomes 0, with mode: digit"},
		{Name: "high", Type: "int", Default: "5", Doc: "digit that becomes 1, with mode: digit"},
		{Name: "candidates", Type: "list", Default: "none", Doc: "list of possible answers, with placeholders as in template, with mode: candidates"},
		{Name: "expected", Type: "string", Default: "the first candidate", Doc: "right answer among the candidates, such as {ground_truth}, with mode: candidates"},
		{Name: "normalise", Type: "bool", Default: "true", Doc: "true: the probability of the right answer is divided by that of all candidates; with mode: candidates"},
		{Name: "max_tokens", Type: "int", Default: "256", Doc: "maximum number of tokens of the answer, with mode: generate"},
		{Name: "tag", Type: "string", Default: "score", Doc: "name of the element around the score in the answer, as in <score>4</score>; with mode: generate"},
		{Name: "regex", Type: "string", Default: "none", Doc: "pattern in place of tag; its group 1 is the score; with mode: generate"},
		{Name: "match", Type: "string", Default: matchLast, Doc: "which score counts if the answer has several: last or first; with mode: generate"},
		{Name: "min", Type: "number", Default: "none", Doc: "lowest valid score; a sample with a lower score fails; with mode: generate"},
		{Name: "max", Type: "number", Default: "none", Doc: "highest valid score; a sample with a higher score fails; with mode: generate"},
		{Name: "scale", Type: "number", Default: "1", Doc: "factor of the reward = score·scale + offset, with mode: generate"},
		{Name: "offset", Type: "number", Default: "0", Doc: "summand of the reward = score·scale + offset, with mode: generate"},
	}
}

// The questions where the options have none: VQAScore's of t2v_metrics, and one for
// digits.
const (
	askYesNo = `Does this figure show "{prompt}"? Please answer yes or no.`
	askDigit = "How well does this image match the description \"{prompt}\"? " +
		"Answer with one digit from %d (not at all) to %d (perfectly), and nothing else."
)

// parseTemplate reads a question, or an answer that is offered with it, of the
// configuration.
func parseTemplate(option, text string) (prompt.Template, error) {
	return prompt.Parse(option, text, prompt.Prompt, prompt.Response, prompt.GroundTruth) //nolint:wrapcheck // it names the option
}
