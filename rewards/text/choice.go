package text

import (
	"context"

	"github.com/rewardloop/rewardloop/rewards"
)

type choiceOptions struct {
	// BareGroundTruth takes a ground truth without answer tags as the answer itself,
	// and a response without them as no answer; off.
	BareGroundTruth bool `json:"bare_ground_truth"`
}

func (choiceOptions) validate() error { return nil }

func choiceSpec() rewards.Spec {
	return rewards.Spec{
		Name:    "choice",
		Summary: "1 if the first <answer> of the response equals that of the ground truth exactly, else 0 (verl-omni, AVQA)",
		Options: []rewards.Option{
			{Name: "bare_ground_truth", Type: "bool", Default: "false", Doc: "true: a ground truth without <answer> tags is the answer itself; false: such a ground truth matches every response without <answer> tags"},
		},
		Build: build(choiceOptions{}, newChoice),
	}
}

func newChoice(o choiceOptions) (*scorer, error) {
	return &scorer{
		fields: []rewards.Field{{Name: "accuracy", Kind: rewards.Number}},
		rate: func(_ context.Context, s *rewards.Sample, response string) (rewards.Score, error) {
			gt, err := truth(s, maxText)
			if err != nil {
				return rewards.Score{}, err
			}
			// The original takes a missing tag for an empty answer, so that two missing
			// ones agree.
			answer, answered := between(response, openAnswer, endAnswer)
			want, tagged := between(gt, openAnswer, endAnswer)
			right := strip(answer) == strip(want)
			if o.BareGroundTruth {
				if !tagged {
					want = gt
				}
				right = answered && strip(answer) == strip(want)
			}
			v := number(right)
			return rewards.Score{
				Value: v, Extra: map[string]any{"accuracy": v}, Details: map[string]any{"answer": clip(strip(answer))},
			}, nil
		},
	}, nil
}
