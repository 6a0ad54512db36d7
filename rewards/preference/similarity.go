package preference

import (
	"context"
	"fmt"

	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/rewards"
)

// similarityScorer scores how alike a picture and a reference are: for edits, how much of
// the source is left.
type similarityScorer struct {
	judging

	result string
}

// The values of the option result.
const (
	resultFirst = "first"
	resultLast  = "last"
)

var (
	_ rewards.Scorer       = (*similarityScorer)(nil)
	_ rewards.ExtraFielder = (*similarityScorer)(nil)
	_ rewards.Warmer       = (*similarityScorer)(nil)
	_ rewards.Queuer       = (*similarityScorer)(nil)
	_ rewards.Concurrent   = (*similarityScorer)(nil)
)

// ExtraFields declares that there are none: the cosine is the score.
func (s *similarityScorer) ExtraFields() []rewards.Field { return nil }

// Score compares the sample's result with its reference.
func (s *similarityScorer) Score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	score, err := s.score(ctx, sample)
	return score, localmodel.Classify(ctx, err)
}

func (s *similarityScorer) score(ctx context.Context, sample *rewards.Sample) (rewards.Score, error) {
	result, reference, err := s.pick(sample)
	if err != nil {
		return rewards.Score{}, err
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
	v, err := s.sampling.look(ctx, sample, result)
	if err != nil {
		return rewards.Score{}, err
	}
	ref, err := s.sampling.look(ctx, sample, reference)
	if err != nil {
		return rewards.Score{}, err
	}
	if len(ref.frames) != 1 && len(ref.frames) != len(v.frames) {
		return rewards.Score{}, fmt.Errorf("%w: sample %q: %d frames of the result are compared with %d of the reference: want as many, or a reference of one", rewards.BadInput, sample.ID, len(v.frames), len(ref.frames))
	}
	cosines, err := s.cosines(ctx, e, sample, v, ref)
	if err != nil {
		return rewards.Score{}, fmt.Errorf("sample %q: %w", sample.ID, err)
	}
	score := rewards.Score{Value: mean(cosines)}
	if len(cosines) > 1 {
		score.Details = map[string]any{"frames": cosines}
	}
	return score, nil
}

// pick finds the result and the reference among the sample's pictures.
func (s *similarityScorer) pick(sample *rewards.Sample) (result, reference *rewards.Media, err error) {
	var all []*rewards.Media
	for _, m := range sample.Media {
		if m.Kind == rewards.Image || m.Kind == rewards.Video {
			all = append(all, m)
		}
	}
	if len(all) < 2 {
		return nil, nil, fmt.Errorf("%w: sample %q has %d pictures, want a result and a reference", rewards.BadInput, sample.ID, len(all))
	}
	if s.result == resultLast {
		return all[len(all)-1], all[0], nil
	}
	return all[0], all[1], nil
}

func (s *similarityScorer) cosines(ctx context.Context, e *network, sample *rewards.Sample, v, ref visual) ([]float64, error) {
	var t *tokens
	if e.side.Kind == kindCombined { // its graph wants a text, of which the picture's embedding does not depend
		made, err := e.words.encode("", "a", "")
		if err != nil {
			return nil, err
		}
		t = &made
	}
	results, references := make([]embedding, len(v.frames)), make([]embedding, len(ref.frames))
	both := visual{frames: make([]int, 0, len(results)+len(references))}
	both.frames = append(append(both.frames, v.frames...), ref.frames...)
	err := both.each(ctx, func(ctx context.Context, i, frame int) (err error) {
		if i < len(results) {
			results[i], err = e.picture(ctx, item(sample, frame), v.pixels, frame, t)
		} else {
			references[i-len(results)], err = s.model.reference(ctx, e, item(sample, frame)+" reference", ref.pixels, frame, t)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	cosines := make([]float64, len(results))
	for i, r := range results {
		cosines[i] = cosine(r, references[min(i, len(references)-1)])
	}
	return cosines, nil
}
