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
		{Name: "show", Type: "string", Default: showAuto, Doc: "the pictures: auto (where there are some), always (a sample without fails), never"},
		{Name: "frames", Type: "string", Default: "uniform:8", Doc: "which frames of a video are shown in one question: " + rewards.FramesForm + " (at floor(i·N/n)); a number n means uniform:n"},
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
		rewards.Option{Name: "template", Type: "string", Default: "none, it is required", Doc: "the question, with {prompt}, {response}, {ground_truth}, {data_source}"},
		rewards.Option{Name: "steps", Type: "list", Default: "none", Doc: "stop tokens' texts, such as <|im_end|>: every step between them is judged by itself, as {response}; the scores become step_scores, and their sum the value"},
		rewards.Option{Name: "system", Type: "string", Default: "none", Doc: "the system message"},
		rewards.Option{Name: "tag", Type: "string", Default: "score", Doc: "the score stands in this element: <score>4</score>"},
		rewards.Option{Name: "regex", Type: "string", Default: "none", Doc: "instead of tag: the score is group 1 of this pattern"},
		rewards.Option{Name: "json", Type: "string", Default: "none", Doc: "instead of tag: the path to the score in the answer's JSON"},
		rewards.Option{Name: "schema", Type: "object", Default: "none", Doc: "with json: a JSON schema the engine holds the answer to"},
		rewards.Option{Name: "match", Type: "string", Default: matchLast, Doc: "which counts of several: last or first"},
		rewards.Option{Name: "values", Type: "object", Default: "none", Doc: `words that are scores: {"yes": 1, "no": 0}`},
		rewards.Option{Name: "min", Type: "number", Default: "none", Doc: "the lowest score"},
		rewards.Option{Name: "max", Type: "number", Default: "none", Doc: "the highest score"},
		rewards.Option{Name: "out_of_range", Type: "string", Default: outRefuse, Doc: "a score beyond them: refuse (asked again, then failed) or clip"},
		rewards.Option{Name: "scale", Type: "number", Default: "1", Doc: "the reward is score·scale + offset"},
		rewards.Option{Name: "offset", Type: "number", Default: "0", Doc: "see scale"},
		rewards.Option{Name: "table", Type: "list", Default: "none", Doc: "instead: points [score, reward], joined by straight lines"},
	)
	return rewards.Spec{
		AsksEngine: true,
		Name:       "judge",
		Summary:    "a model rates text or pictures by a template of yours, and the score is taken out of its answer",
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
