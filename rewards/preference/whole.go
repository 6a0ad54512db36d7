package preference

import (
	"context"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// wholeScorer takes the score that a graph answers with.
type wholeScorer struct {
	judging

	template string // "": the model's
	scale    float64
}

var (
	_ rewards.Scorer       = (*wholeScorer)(nil)
	_ rewards.ExtraFielder = (*wholeScorer)(nil)
	_ rewards.Warmer       = (*wholeScorer)(nil)
	_ rewards.Queuer       = (*wholeScorer)(nil)
	_ rewards.Concurrent   = (*wholeScorer)(nil)
)

// ExtraFields declares output, the graph's number before any transform and scale, the mean
// over the frames of a video; and where the model reads a text tokens, their number
// without padding, and text_truncated, which is 1 where the text was longer, else 0.
func (s *wholeScorer) ExtraFields() []rewards.Field {
	all := []rewards.Field{{Name: "output", Kind: rewards.Number}}
	if s.model.side.Text != nil {
		all = append(all, rewards.Field{Name: "tokens", Kind: rewards.Number}, truncatedField())
	}
	return all
}

// Score asks the graph about the sample's first image or video, its texts, or both.
func (s *wholeScorer) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	score, err := s.score(ctx, sample)
	return score, localmodel.Classify(ctx, err)
}

func (s *wholeScorer) score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	var m *rewards.Media
	if s.model.side.Image != nil {
		var err error
		if m, err = sample.Visual(); err != nil {
			return rewards.Score{}, err //nolint:wrapcheck // names the sample
		}
	}
	if err := s.complete(sample); err != nil {
		return rewards.Score{}, err
	}
	e, err := s.model.network(ctx, s.test)
	if err != nil {
		return rewards.Score{}, err
	}
	var t *tokens
	if e.words != nil {
		made, err := e.words.encode(s.template, sample.Prompt, sample.Response)
		if err != nil {
			return rewards.Score{}, fmt.Errorf("sample %q: %w", sample.ID, err)
		}
		t = &made
	}
	all, err := s.outputs(ctx, e, sample, m, t)
	if err != nil {
		return rewards.Score{}, err
	}
	return s.combine(all, t), nil
}

// complete says which of the texts that the model reads is missing. A rollout that ended
// at once has an empty response; it is missing where the sample carries media instead.
func (s *wholeScorer) complete(sample *rewards.Sample) error {
	rules := s.model.side.Text
	if rules == nil {
		return nil
	}
	template := orElse(s.template, rules.Template)
	if template == "" {
		template = promptPlace
		if s.model.side.Kind == kindText {
			template += responsePlace
		}
	}
	if strings.Contains(template, promptPlace) && sample.Prompt == "" {
		return fmt.Errorf("%w: sample %q has no prompt", rewards.BadInput, sample.ID)
	}
	if strings.Contains(template, responsePlace) && sample.Response == "" && (len(sample.Media) > 0 || sample.Prompt == "") {
		return fmt.Errorf("%w: sample %q has no response", rewards.BadInput, sample.ID)
	}
	return nil
}

// outputs are what the graph says of every frame; of no picture, one.
func (s *wholeScorer) outputs(ctx context.Context, e *network, sample *rewards.Sample, m *rewards.Media, t *tokens) ([]rated, error) {
	if m == nil {
		r, err := e.output(ctx, sample.ID, nil, t)
		if err != nil {
			return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
		}
		return []rated{r}, nil
	}
	leave, err := e.enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	defer leave()
	v, err := s.sampling.look(ctx, sample, m)
	if err != nil {
		return nil, err
	}
	all := make([]rated, len(v.frames))
	err = v.each(ctx, func(ctx context.Context, i, frame int) error {
		var in *infer.Tensor
		in, err := e.tensor(v.pixels, frame)
		if err == nil {
			all[i], err = e.output(ctx, item(sample, frame), in, t)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	return all, nil
}

func (s *wholeScorer) combine(all []rated, t *tokens) rewards.Score {
	values, outputs := make([]float64, len(all)), make([]float64, len(all))
	for i, r := range all {
		values[i], outputs[i] = r.value*s.scale, r.output
	}
	score := rewards.Score{Value: mean(values), Extra: map[string]any{"output": mean(outputs)}}
	if t != nil {
		score.Extra["tokens"], score.Extra["text_truncated"] = int64(t.count), flag(t.truncated)
	}
	if len(all) > 1 {
		score.Details = map[string]any{"frames": values}
	}
	return score
}
