package judge

import (
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
)

// showing says whether a judge of anything is shown pictures.
type showing struct {
	// Show is "auto" (default: where the sample has some), "always" or "never".
	Show string `json:"show"`
	// Frames are those of a video that are shown; uniform:8.
	Frames rewards.FrameChoice `json:"frames"`
}

// Words of the option.
const (
	showAuto   = "auto"
	showAlways = "always"
	showNever  = "never"
)

func defaultShowing() showing { return showing{Show: showAuto, Frames: rewards.EvenFrames(8)} }

func (o *showing) validate() error {
	errs := rewards.Faults{oneOf("show", o.Show, showAuto, showAlways, showNever)}
	errs.Add(o.Frames.Uniform() > maxFrames, "frames: %d, want at most %d", o.Frames.Uniform(), maxFrames)
	return errors.Join(errs...)
}

func (o *showing) choice(s *rewards.Sample) choice {
	if o.Show == showAlways || (o.Show == showAuto && hasVisual(s)) {
		return together(o.Frames)
	}
	return choice{}
}

func showingDocs() []rewards.Option {
	return []rewards.Option{
		{Name: "show", Type: "string", Default: showAuto, Doc: "whether the judge sees the sample's pictures: auto (if there are any), always (a sample without pictures fails), never"},
		{Name: "frames", Type: "string", Default: "uniform:8", Doc: "frames of a video that are shown in one question: " + rewards.FramesForm + " (at floor(i·N/n)); a number n means uniform:n"},
	}
}

type judgeOptions struct {
	chat.Asking
	chat.Sampling
	chat.Pictures
	showing
	extraction
	calibration
	System   string `json:"system"`
	Template string `json:"template"`
	// Steps are the texts of the stop tokens that end the steps of a response; with
	// them every step is judged by itself ({response} is the step) and has a score of
	// its own (RL-Factory's process rewards, rewards.Segments). Empty: the whole response.
	Steps []string `json:"steps"`
}

func (o *judgeOptions) validate() error {
	return errors.Join(
		o.Asking.Validate(), o.Sampling.Validate(), checkPictures(&o.Pictures), o.showing.validate(),
		o.extraction.validate(), o.calibration.validate(),
	)
}

func judgeSpec(d Deps) rewards.Spec {
	docs := append(chat.AskingDocs(), chat.SamplingDocs("0", "the engine's", "1024")...)
	docs = append(append(docs, pictureDocs("0")...), showingDocs()...)
	docs = append(
		docs,
		rewards.Option{Name: "template", Type: "string", Default: "none, it is required", Doc: "template of the question; placeholders: {prompt}, {response}, {ground_truth}, {data_source}"},
		rewards.Option{Name: "steps", Type: "list", Default: "none", Doc: "texts of stop tokens, such as <|im_end|>, that end a step of the response; each step is judged alone, as {response}; step_scores has the scores, and the value is their sum"},
		rewards.Option{Name: "system", Type: "string", Default: "none", Doc: "system message of the question"},
		rewards.Option{Name: "tag", Type: "string", Default: "score", Doc: "name of the element around the score in the answer, as in <score>4</score>"},
		rewards.Option{Name: "regex", Type: "string", Default: "none", Doc: "pattern in place of tag; its group 1 is the score"},
		rewards.Option{Name: "json", Type: "string", Default: "none", Doc: "path to the score in an answer that is JSON, in place of tag"},
		rewards.Option{Name: "schema", Type: "object", Default: "none", Doc: "JSON schema that the engine enforces for the answer (with json)"},
		rewards.Option{Name: "match", Type: "string", Default: matchLast, Doc: "which score counts if the answer has several: last or first"},
		rewards.Option{Name: "values", Type: "object", Default: "none", Doc: `words that count as scores: {"yes": 1, "no": 0}`},
		rewards.Option{Name: "min", Type: "number", Default: "none", Doc: "lowest valid score"},
		rewards.Option{Name: "max", Type: "number", Default: "none", Doc: "highest valid score"},
		rewards.Option{Name: "out_of_range", Type: "string", Default: outRefuse, Doc: "what happens to a score outside min and max: refuse (the judge is asked again, then the sample fails) or clip"},
		rewards.Option{Name: "scale", Type: "number", Default: "1", Doc: "factor of the reward = score·scale + offset"},
		rewards.Option{Name: "offset", Type: "number", Default: "0", Doc: "summand of the reward = score·scale + offset"},
		rewards.Option{Name: "table", Type: "list", Default: "none", Doc: "list of points [score, reward], in place of scale and offset; the reward is interpolated linearly between the points"},
	)
	return rewards.Spec{
		AsksEngine: true,
		Name:       "judge",
		Summary:    "a judge model answers your template about text or pictures, and the score is read from the answer",
		Options:    docs,
		Build: build(d, func() *judgeOptions {
			return &judgeOptions{
				Asking: chat.DefaultAsking(), Sampling: chat.Greedy(1024), Pictures: defaultPictures(), showing: defaultShowing(),
				extraction: extraction{Match: matchLast, OutOfRange: outRefuse}, calibration: calibration{Scale: 1},
			}
		}, newJudge),
	}
}

// parts are the sample, or one for each step of its response.
func (o *judgeOptions) parts(s *rewards.Sample) []*rewards.Sample {
	if len(o.Steps) == 0 {
		return []*rewards.Sample{s}
	}
	segments := rewards.Segments(s.Response, o.Steps)
	parts := make([]*rewards.Sample, len(segments))
	for i, text := range segments {
		own := *s
		own.Response = text
		parts[i] = &own
	}
	return parts
}

func newJudge(o *judgeOptions) (*scorer, error) {
	t, err := parseTemplate("template", o.Template)
	if err != nil {
		return nil, err
	}
	score := o.reader()
	read := func(r chat.Reply) (reading, error) {
		raw, err := score(r.Text)
		if err != nil {
			return reading{}, err
		}
		return reading{o.of(raw), map[string]float64{"raw_score": raw}}, nil
	}
	sc := &scorer{
		looks: o.Show == showAlways, asking: o.Asking, sampling: o.Sampling, pictures: o.Pictures, fields: numbers("raw_score"),
		prepare: func(s *rewards.Sample) (*inquiry, error) {
			inq := &inquiry{system: o.System, shows: o.choice(s), steps: len(o.Steps) > 0}
			for i, part := range o.parts(s) {
				q, err := t.Fill(part)
				if err != nil {
					return nil, err
				}
				asked := question{text: q, weight: 1, read: read}
				if inq.steps {
					asked.label = fmt.Sprintf("step %d", i)
				}
				inq.questions = append(inq.questions, asked)
			}
			if len(inq.questions) > rewards.MaxSteps {
				return nil, fmt.Errorf("%w: sample %q has %d steps, want at most %d", rewards.BadInput, s.ID, len(inq.questions), rewards.MaxSteps)
			}
			return inq, nil
		},
	}
	if o.hasSchema() {
		sc.format = &chat.Schema{Name: "verdict", Schema: o.Schema}
	}
	return sc, nil
}
