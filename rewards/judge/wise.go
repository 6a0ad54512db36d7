package judge

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// The protocol of WISE (arXiv 2503.07265) in words of our own: the same three axes,
// 0 to 2 each, the same strictness, and the three lines its gpt_eval.py reads.
const wisePrompt = `Rate the image on three axes, each 0, 1 or 2. Be extremely strict: give a 2 only where the image meets the highest standard, and the lower score where there is doubt.

Consistency: how completely and accurately the image shows what the PROMPT asks for, as the EXPLANATION says what that is.
0: key elements are missing, or it contradicts the prompt. 1: some elements are there, others are missing or wrong. 2: every element and nuance of the prompt is there, without a flaw.

Realism: how realistically it is rendered.
0: physically implausible, clearly artificial. 1: mostly believable, with minor inconsistencies. 2: not to be told from a photograph: physics, materials and space are right.

Aesthetic Quality: its artistic appeal.
0: poor composition, unappealing. 1: appealing and harmonious, without distinction. 2: outstanding composition, colour and style, as of a masterpiece.

Answer with three lines and nothing else, in this form:
Consistency: 2
Realism: 1
Aesthetic Quality: 0

PROMPT: "%s"
EXPLANATION: "%s"`

// wiseScore is the pattern of WISE's gpt_eval.py; space is Python's \s.
var wiseScore = regexp.MustCompile(`(?i)\*{0,2}(Consistency|Realism|Aesthetic Quality)\*{0,2}` + space + `[:：]?` + space + `([0-9])`)

type wiseOptions struct {
	chat.Asking
	chat.Sampling
	chat.Pictures
	interval
	Template string `json:"template"`
}

func (o *wiseOptions) validate() error {
	return errors.Join(o.Asking.Validate(), o.Sampling.Validate(), checkPictures(&o.Pictures), positive(o.FrameInterval))
}

func wiseSpec(d Deps) rewards.Spec {
	docs := append(chat.AskingDocs(), chat.SamplingDocs("0.2", "the engine's", "2000")...)
	docs = append(docs, pictureDocs("0")...)
	return rewards.Spec{
		AsksEngine: true,
		Name:       "wise",
		Summary:    "WiScore: consistency with world knowledge, realism and beauty of an image, rated 0 to 2 (WISE)",
		Options: append(append(docs, frameDocs()...),
			rewards.Option{Name: "template", Type: "string", Default: "the axes of WISE in our words", Doc: "your own question, with {prompt} and {ground_truth}; the question must ask for the same three lines"}),
		Build: build(d, func() *wiseOptions {
			temperature := 0.2
			return &wiseOptions{
				Asking: chat.DefaultAsking(), Pictures: defaultPictures(), interval: interval{FrameInterval: 4},
				Sampling: chat.Sampling{Temperature: &temperature, MaxTokens: 2000},
			}
		}, newWise),
	}
}

func newWise(o *wiseOptions) (*scorer, error) {
	ask := wiseQuestion
	if o.Template != "" {
		t, err := parseTemplate("template", o.Template)
		if err != nil {
			return nil, err
		}
		ask = t.Fill
	}
	return &scorer{
		looks: true, asking: o.Asking, sampling: o.Sampling, pictures: o.Pictures,
		fields: numbers("consistency", "realism", "aesthetic_quality"),
		prepare: func(s *rewards.Sample) (*inquiry, error) {
			q, err := ask(s)
			if err != nil {
				return nil, err
			}
			return one(each(o.choice()), q, readWise), nil
		},
	}, nil
}

// wiseQuestion takes the explanation from extra_info ("explanation", or
// "Explanation" as in WISE's own files), else from a ground truth that is a string.
func wiseQuestion(s *rewards.Sample) (string, error) {
	c, err := prompt.Of(s, prompt.Prompt)
	if err != nil {
		return "", err
	}
	info := prompt.ExtraInfo(s)
	explanation := text(info["explanation"])
	if explanation == "" {
		explanation = text(info["Explanation"])
	}
	if explanation == "" {
		explanation, _ = s.Truth()
	}
	if explanation == "" {
		return "", fmt.Errorf("%w: sample %q has no explanation of its prompt: want extra_info.explanation, or a ground_truth that is a string", rewards.BadInput, s.ID)
	}
	return fmt.Sprintf(wisePrompt, c, explanation), prompt.Bounded(s, "explanation", explanation)
}

// readWise is WiScore: (0.7·consistency + 0.2·realism + 0.1·aesthetic quality)/2, of
// the last score of each axis. WISE writes 9.9 where one is missing; here that is a
// failure, and so is a score above 2.
func readWise(r chat.Reply) (reading, error) {
	axes := map[string]float64{}
	for _, m := range wiseScore.FindAllStringSubmatch(r.Text, -1) {
		axes[strings.ReplaceAll(strings.ToLower(m[1]), " ", "_")] = float64(m[2][0] - '0')
	}
	for _, name := range []string{"consistency", "realism", "aesthetic_quality"} {
		v, ok := axes[name]
		if !ok {
			return reading{}, fmt.Errorf("no score of %s", name)
		}
		if v > 2 {
			return reading{}, fmt.Errorf("the score of %s is %v, not 0 to 2", name, v)
		}
	}
	return reading{(0.7*axes["consistency"] + 0.2*axes["realism"] + 0.1*axes["aesthetic_quality"]) / 2, axes}, nil
}
