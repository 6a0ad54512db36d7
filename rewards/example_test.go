package rewards_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// A profile of two components: the weighted sum is the reward, and the parts stay
// visible to the trainer.
func ExampleManager_Run() {
	words := rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		return rewards.Score{Value: float64(len(strings.Fields(s.Response)))}, nil
	})
	exact := rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
		want, ok := s.Truth()
		if !ok {
			return rewards.Score{}, fmt.Errorf("%w: sample %q has no ground truth", rewards.BadInput, s.ID)
		}
		if s.Response == want {
			return rewards.Score{Value: 1}, nil
		}
		return rewards.Score{Value: 0}, nil
	})
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{
		{Key: "exact", Weight: 1, Scorer: exact, Required: true},
		{Key: "words", Weight: -0.1, Scorer: words},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}

	good := m.Run(context.Background(), &rewards.Sample{
		ID: "1", Response: "forty two", GroundTruth: json.RawMessage(`"forty two"`),
	})
	fmt.Println(good.Result.Outcome, good.Result.Score, good.Result.Extra["reward/words"])

	bad := m.Run(context.Background(), &rewards.Sample{ID: "2", Response: "forty two"})
	fmt.Println(bad.Result.Outcome, bad.Result.Errors[0].Message)

	<-good.Done() // the samples may be given up
	<-bad.Done()
	// Output:
	// scored 0.8 2
	// failed sample "2" has no ground truth
}

// A failed component of a prompt group waits for the mean of the other members.
func ExamplePending_Resolve() {
	p := rewards.Pending{
		Aggregation: rewards.WeightedSum,
		Have:        []rewards.WeightedValue{{Key: "ocr", Weight: 1, Value: 0.75}},
		Want:        []rewards.WeightedValue{{Key: "judge", Weight: 0.5}},
	}
	extra := map[string]any{}
	done, ok := p.Resolve(extra, func(string) (mean float64, found bool) { return 0.5, true })
	fmt.Println(done.Score, ok, extra["reward/judge/imputed"])
	// Output: 1 true true
}

// A scorer is registered under a name and built with the options of the
// configuration, which are refused where they are not its own.
func ExampleRegistry() {
	var reg rewards.Registry
	reg.Register(rewards.Spec{
		Name:    "length",
		Summary: "length of the response in characters, up to a limit",
		Options: []rewards.Option{{Name: "limit", Type: "int", Default: "100", Doc: "no more than this counts"}},
		Build: func(raw json.RawMessage) (rewards.Scorer, error) {
			opt := struct {
				Limit int `json:"limit"`
			}{Limit: 100}
			if err := rewards.DecodeOptions(raw, &opt); err != nil {
				return nil, err
			}
			return rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
				return rewards.Score{Value: float64(min(len([]rune(s.Response)), opt.Limit))}, nil
			}), nil
		},
	})

	sc, err := reg.Build("length", json.RawMessage(`{"limit": 5}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	score, err := sc.Score(context.Background(), &rewards.Sample{Response: "nine runes"})
	fmt.Println(score.Value, err)
	_, err = reg.Build("length", json.RawMessage(`{"max": 5}`))
	fmt.Println(err)
	_, err = reg.Build("words", nil)
	fmt.Println(err)
	// Output:
	// 5 <nil>
	// scorer "length": options.max: unknown option
	// unknown scorer "words", want one of length
}
