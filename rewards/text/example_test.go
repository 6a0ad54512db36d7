package text_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/text"
)

// A registry builds the scorers by name; a rollout is scored against its ground
// truth.
func ExampleSpecs() {
	var reg rewards.Registry
	for _, spec := range text.Specs() {
		reg.Register(spec)
	}
	scorer, err := reg.Build("gsm8k", json.RawMessage(`{"method": "strict"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	score, err := scorer.Score(context.Background(), &rewards.Sample{
		ID: "1", Response: "4 rows of 25 are 100.\n#### 100", GroundTruth: json.RawMessage(`"100"`),
	})
	fmt.Println(score.Value, score.Details["answer"], err)
	// Output: 1 100 <nil>
}
