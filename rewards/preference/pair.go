package preference

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// formula makes a score of the cosine of a picture and its prompt; logit is
// logit_scale·cosine + logit_bias.
type formula func(cosine, logit float64) float64

// pairScorer scores how well a picture fits its prompt.
type pairScorer struct {
	judging

	rate formula
}

var (
	_ rewards.Scorer       = (*pairScorer)(nil)
	_ rewards.ExtraFielder = (*pairScorer)(nil)
	_ rewards.Warmer       = (*pairScorer)(nil)
	_ rewards.Queuer       = (*pairScorer)(nil)
	_ rewards.Concurrent   = (*pairScorer)(nil)
)

// ExtraFields declares cosine (−1 to 1) and logit, the means over the frames of a video,
// and text_truncated, which is 1 where the prompt was longer than the model reads, else 0.
func (s *pairScorer) ExtraFields() []rewards.Field {
	return []rewards.Field{{Name: "cosine", Kind: rewards.Number}, {Name: "logit", Kind: rewards.Number}, truncatedField()}
}

func truncatedField() rewards.Field {
	return rewards.Field{Name: "text_truncated", Kind: rewards.Number}
}

// flag is a bool as trainers average it.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Score scores the sample's first image or video against its prompt.
func (s *pairScorer) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	score, err := s.score(ctx, sample)
	return score, localmodel.Classify(ctx, err)
}

func (s *pairScorer) score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	m, err := sample.Visual()
	if err != nil {
		return rewards.Score{}, err //nolint:wrapcheck // names the sample
	}
	if sample.Prompt == "" {
		return rewards.Score{}, fmt.Errorf("%w: sample %q has no prompt", rewards.BadInput, sample.ID)
	}
	e, err := s.model.network(ctx, s.test)
	if err != nil {
		return rewards.Score{}, err
	}
	leave, err := e.enter(ctx)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	defer leave()
	v, err := s.sampling.look(ctx, sample, m)
	if err != nil {
		return rewards.Score{}, err
	}
	cosines, truncated, err := s.cosines(ctx, e, sample, v)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	return s.combine(cosines, truncated), nil
}

// cosines are those of the frames and the prompt, computed at the same time.
func (s *pairScorer) cosines(ctx context.Context, e *network, sample *rewards.Sample, v visual) (cosines []float64, truncated bool, err error) {
	if e.side.Kind == kindCombined {
		return s.together(ctx, e, sample, v)
	}
	var text embedding
	images := make([]embedding, len(v.frames))
	g, all := errgroup.WithContext(ctx)
	g.Go(func() error {
		return rewards.Guard(func() (err error) {
			text, err = s.model.sentence(all, e, sample.ID, sample.Prompt)
			return err
		})
	})
	err = v.each(all, func(ctx context.Context, i, frame int) (err error) {
		images[i], err = e.picture(ctx, item(sample, frame), v.pixels, frame, nil)
		return err
	})
	if err != nil {
		g.Go(func() error { return err }) // ends the text's waiting, too
	}
	if err := g.Wait(); err != nil {
		return nil, false, err //nolint:wrapcheck // score names the sample
	}
	for _, image := range images {
		cosines = append(cosines, cosine(image, text))
	}
	return cosines, text.truncated, nil
}

// together runs the one graph of kind combined: the text goes in with every picture.
func (s *pairScorer) together(ctx context.Context, e *network, sample *rewards.Sample, v visual) ([]float64, bool, error) {
	t, err := e.words.encode("", sample.Prompt, "")
	if err != nil {
		return nil, false, err
	}
	cosines := make([]float64, len(v.frames))
	err = v.each(ctx, func(ctx context.Context, i, frame int) error {
		image, text, err := e.both(ctx, item(sample, frame), v.pixels, frame, t)
		if err == nil {
			cosines[i] = cosine(image, text)
		}
		return err
	})
	return cosines, t.truncated, err
}

func (s *pairScorer) combine(cosines []float64, truncated bool) rewards.Score {
	scale := 1.0
	if s.model.side.LogitScale != nil {
		scale = *s.model.side.LogitScale
	}
	logits, values := make([]float64, len(cosines)), make([]float64, len(cosines))
	for i, c := range cosines {
		logits[i] = scale*c + s.model.side.LogitBias
		values[i] = s.rate(c, logits[i])
	}
	score := rewards.Score{
		Value: mean(values),
		Extra: map[string]any{"cosine": mean(cosines), "logit": mean(logits), "text_truncated": flag(truncated)},
	}
	if len(cosines) > 1 {
		score.Details = map[string]any{"frames": values}
	}
	return score
}
