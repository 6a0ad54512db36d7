package vlm

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// Specs describes the scorer "vlm" for a registry.
func Specs(j *Judges) []rewards.Spec {
	return []rewards.Spec{{
		Name:    "vlm",
		Summary: "a vision-language model in this process judges a picture or video: P(yes), a digit, whole answers, or a generated score (VQAScore)",
		Options: documentation(), Concurrency: localmodel.Concurrency,
		Build: func(raw json.RawMessage) (rewards.Scorer, error) {
			o := defaultScorerOptions()
			if err := rewards.DecodeOptions(raw, o); err != nil {
				return nil, err
			}
			if err := o.validate(); err != nil {
				return nil, err
			}
			s, err := newScorer(o)
			if err != nil {
				return nil, err
			}
			if s.judge, err = j.Judge(o.Options); err != nil {
				return nil, err
			}
			return s, nil
		},
	}}
}

// scorer asks a judge one question about each sample. It holds no state of samples.
type scorer struct {
	judge      *Judge
	options    *scorerOptions
	read       reader
	fields     []string
	question   prompt.Template
	candidates []prompt.Template
	expected   prompt.Template // of options.Expected, if there is one; else it is the first candidate
}

var (
	_ rewards.Scorer       = (*scorer)(nil)
	_ rewards.ExtraFielder = (*scorer)(nil)
	_ rewards.Warmer       = (*scorer)(nil)
	_ rewards.Queuer       = (*scorer)(nil)
	_ rewards.Concurrent   = (*scorer)(nil)
)

// Concurrency is the judge's.
func (s *scorer) Concurrency() int { return s.judge.Concurrency() }

// ConcurrencyReason is the judge's.
func (s *scorer) ConcurrencyReason() string { return s.judge.ConcurrencyReason() }

// Queues says that the component's time begins when the model begins with a picture or text.
func (*scorer) Queues() {}

// newScorer makes a scorer of valid options, without its judge.
func newScorer(o *scorerOptions) (*scorer, error) {
	s := &scorer{options: o}
	s.read, s.fields = o.mode()
	text := o.Template
	switch {
	case text != "":
	case o.Mode == modeDigit:
		text = fmt.Sprintf(askDigit, o.Low, o.High)
	default:
		text = askYesNo
	}
	var err error
	if s.question, err = parseTemplate("template", text); err != nil {
		return nil, err
	}
	for i, c := range o.Candidates {
		t, err := parseTemplate(fmt.Sprintf("candidates[%d]", i), c)
		if err != nil {
			return nil, err
		}
		s.candidates = append(s.candidates, t)
	}
	if o.Expected != "" {
		s.expected, err = parseTemplate("expected", o.Expected)
	}
	return s, err
}

// ExtraFields declares the columns of the mode, see the package's README.
func (s *scorer) ExtraFields() []rewards.Field {
	fields := make([]rewards.Field, 0, len(s.fields))
	for _, name := range s.fields {
		fields = append(fields, rewards.Field{Name: name, Kind: rewards.Number})
	}
	return fields
}

// Warm loads the judge, and says whether it can do what the mode asks.
func (s *scorer) Warm(ctx context.Context) error {
	if err := s.judge.Warm(ctx); err != nil {
		return err
	}
	l, err := s.judge.ready(ctx)
	if err != nil {
		return err
	}
	return s.options.possible(l)
}

// maxQuestionsAtOnce bounds the questions about one sample that are under way together,
// and with them the pictures in memory.
const maxQuestionsAtOnce = 8

// Score asks about the sample's picture, or each frame of its video. One question
// without a readable answer fails the sample.
func (s *scorer) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	a, err := s.ask(sample)
	if err != nil {
		return rewards.Score{}, err
	}
	m, err := s.shown(sample)
	if err != nil {
		return rewards.Score{}, err
	}
	l, err := s.judge.ready(ctx)
	if err != nil {
		return rewards.Score{}, err
	}
	if err := s.options.possible(l); err != nil {
		return rewards.Score{}, rewards.Permanent(rewards.BlameDependency, fmt.Errorf("%w: vlm: %w", rewards.Internal, err))
	}
	groups := [][]int{nil}
	if m != nil {
		leave, err := l.enter(ctx)
		if err != nil {
			return rewards.Score{}, fmt.Errorf("vlm: %s: sample %q: %w", s.judge.model.name, sample.ID, localmodel.Classify(ctx, err))
		}
		defer leave()
		if groups, err = s.frames(ctx, sample, m); err != nil {
			return rewards.Score{}, err
		}
	}
	readings := make([]reading, len(groups))
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(maxQuestionsAtOnce)
	for i, frames := range groups {
		g.Go(func() error {
			return rewards.Guard(func() (err error) {
				readings[i], err = s.one(within, l, a, m, frames)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return rewards.Score{}, fmt.Errorf("vlm: %s: sample %q: %w", s.judge.model.name, sample.ID, localmodel.Classify(ctx, err))
	}
	return s.combine(a, groups, readings), nil
}

// ask fills the templates. It looks at no pixels.
func (s *scorer) ask(sample *rewards.Sample) (asked, error) {
	var a asked
	var err error
	if a.text, err = s.question.Fill(sample); err != nil || len(s.candidates) == 0 {
		return a, err
	}
	for _, t := range s.candidates {
		c, err := t.Fill(sample)
		if err != nil {
			return a, err
		}
		if !slices.Contains(a.candidates, c) { // the ground truth may be one that is there
			a.candidates = append(a.candidates, c)
		}
	}
	right := a.candidates[0]
	if s.options.Expected != "" {
		if right, err = s.expected.Fill(sample); err != nil {
			return a, err
		}
	}
	if a.expected = slices.Index(a.candidates, right); a.expected < 0 {
		return a, fmt.Errorf("%w: sample %q: the expected answer %q is none of the candidates", rewards.BadInput, sample.ID, clipTo(right, 100))
	}
	if s.options.Normalise && len(a.candidates) < 2 {
		return a, fmt.Errorf("%w: sample %q: all candidates are the same: %q", rewards.BadInput, sample.ID, clipTo(right, 100))
	}
	return a, nil
}

// shown is what is shown of a sample; nil: nothing.
func (s *scorer) shown(sample *rewards.Sample) (*rewards.Media, error) {
	o := s.options
	if o.Show == showNever || (o.Show == showAuto && !hasVisual(sample)) {
		return nil, nil
	}
	return sample.Visual() //nolint:wrapcheck // it names the sample
}

// frames are the frames of each question. The picture is decoded to count them; the questions
// borrow its pixels again, each for as long as it looks at them.
func (s *scorer) frames(ctx context.Context, sample *rewards.Sample, m *rewards.Media) ([][]int, error) {
	v, giveBack, err := m.BorrowFrames(ctx, s.options.Frames)
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	defer giveBack()
	frames := v.Number
	if len(frames) > maxFrames {
		return nil, fmt.Errorf("%w: %d frames of sample %q are selected, want at most %d", rewards.BadInput, len(frames), sample.ID, maxFrames)
	}
	if s.options.Video == videoClip {
		return [][]int{frames}, nil
	}
	groups := make([][]int, len(frames))
	for i, f := range frames {
		groups[i] = []int{f}
	}
	return groups, nil
}

// hasVisual says whether the sample carries an image or a video.
func hasVisual(s *rewards.Sample) bool {
	_, err := s.Visual()
	return err == nil
}

// one asks about some frames; of no media: about none.
func (s *scorer) one(ctx context.Context, l *loaded, a asked, m *rewards.Media, frames []int) (reading, error) {
	q := inquiry{
		prefix: s.options.Prefix,
		turns:  func(pictures int) []turn { return turnsOf(s.options.System, a.text, pictures) },
	}
	var views []*view
	if m != nil {
		v, giveBack, err := m.BorrowFrames(ctx, s.options.Frames)
		if err != nil {
			return reading{}, err
		}
		views, err = s.judge.views(ctx, l, v.Pixels, v.Places(frames))
		giveBack()
		if err != nil {
			return reading{}, err
		}
	}
	o, err := s.judge.put(ctx, l, q, views)
	if err != nil {
		return reading{}, err
	}
	return s.read(ctx, l, o, a)
}

// Bounds of what goes into details, per sample and per text.
const (
	maxDetailAnswers = 64
	maxDetailText    = 4096
)

// Answer is the entry of one question in the details.
type Answer struct {
	// Frames are the indices of the frames that were shown.
	Frames []int   `json:"frames,omitempty"`
	Value  float64 `json:"value"`
	// Fields are the columns of this answer. The sample's columns are the means over its answers.
	Fields map[string]float64 `json:"fields,omitempty"`
	// Text is the model's answer in the mode generate.
	Text string `json:"text,omitempty"`
}

// combine makes the mean of the readings.
func (s *scorer) combine(a asked, groups [][]int, readings []reading) rewards.Score {
	value := 0.0
	extra := make(map[string]any, len(s.fields))
	for _, r := range readings {
		value += r.value / float64(len(readings))
	}
	for _, name := range s.fields {
		sum := 0.0
		for _, r := range readings {
			sum += r.fields[name]
		}
		extra[name] = sum / float64(len(readings))
	}
	answers := make([]Answer, 0, min(len(readings), maxDetailAnswers))
	for i, r := range readings[:min(len(readings), maxDetailAnswers)] {
		answers = append(answers, Answer{Frames: groups[i], Value: r.value, Fields: r.fields, Text: clipTo(r.text, maxDetailText)})
	}
	return rewards.Score{Value: value, Extra: extra, Details: map[string]any{
		"question": clipTo(a.text, maxDetailText), "mode": s.options.Mode, "answers": answers, "asked": len(readings),
	}}
}
